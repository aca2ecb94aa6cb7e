"""Logs of scripts on a real node: followed line by line, and limited in size."""

from __future__ import annotations

import http.client
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.processes import Server
from executors.script.watching import on_linux, python
from patience import PATIENCE_SECONDS
from work.workers import Asker

pytestmark = [pytest.mark.slow, on_linux]

LINES = 15
MIB = 1024 * 1024
FLOOD = "x" * 99


@pytest.fixture
def fifo() -> Iterator[Path]:
    """A folder that a script can read under any user."""
    folder = Path(tempfile.mkdtemp(prefix="duetime-fifo-"))
    folder.chmod(0o755)
    path = folder / "fifo"
    os.mkfifo(path)
    path.chmod(0o666)
    yield path
    shutil.rmtree(folder)


def events(server: Server, execution_id: str) -> Iterator[str]:
    """Reads the stream of the log like a browser."""
    connection = http.client.HTTPConnection("127.0.0.1", server.client.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", f"/api/v1/executions/{execution_id}/logs", headers={"Accept": "text/event-stream"})
    for raw in connection.getresponse():
        if raw.startswith(b"data: "):
            yield raw[6:].decode().strip()
    connection.close()


@contextmanager
def command(server: Server, job_id: str) -> Iterator[Iterable[str]]:
    """Runs `duetime job logs -f`."""
    program = str(Path(sys.executable).with_name("duetime"))
    url = f"http://127.0.0.1:{server.client.port}"
    with subprocess.Popen(
        [program, "--url", url, "job", "logs", job_id, "-f"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield (line.strip() for line in process.stdout)
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("reader", ["events", "command"])
def test_a_line_is_readable_while_the_script_runs(server: Server, ask: Asker, fifo: Path, reader: str) -> None:
    server.start()
    job_id = ask.script(f'echo ready; while read line; do echo "$line"; done < {fifo}', timeout_seconds=600)
    execution_id = ask.wait_for_run(job_id)
    if reader == "events":
        self_paced(events(server, execution_id), fifo)
    else:
        with command(server, job_id) as lines:
            self_paced(lines, fifo)
    assert ask.wait_for_end(job_id)["state"] == "COMPLETED"


def self_paced(lines: Iterable[str], fifo: Path) -> None:
    """The script writes the next line only when the last one was read: each is readable while it runs."""
    seen: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in lines:
            seen.put(line)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert seen.get(timeout=PATIENCE_SECONDS) == "ready"
    with fifo.open("w", buffering=1) as script:
        for number in range(LINES):
            script.write(f"line {number}\n")
            assert seen.get(timeout=PATIENCE_SECONDS) == f"line {number}"
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the stream ends with the script"


def test_a_log_of_100_mb_is_cut_and_costs_the_node_no_memory(server: Server, ask: Asker) -> None:
    server.start(LOG_SIZE_LIMIT="1MB")
    warm = ask.script("echo warm")
    assert ask.wait_for_end(warm)["state"] == "COMPLETED"
    assert server.process is not None
    before = peak_bytes(server.process.pid)
    flood = "import os\nfor _ in range(100): os.write(1, (b'x' * 99 + b'\\n') * 10_486)"
    job_id = ask.script(flood, python(), timeout_seconds=600)
    ended = ask.wait_for_end(job_id, 120)
    assert ended["state"] == "COMPLETED", ended
    assert peak_bytes(server.process.pid) - before < 60 * MIB
    log = ask.logs(ended["execution_id"])
    assert len(log) < 2 * MIB
    lines = log.splitlines()
    kept = next(number for number, line in enumerate(lines) if line != FLOOD)
    found = re.fullmatch(r"the log is full at 1.0 MiB: ([\d,]+) bytes more were left out", lines[kept])
    assert found is not None, lines[kept]
    assert int(found[1].replace(",", "")) + kept * 100 == 100 * 10_486 * 100


def peak_bytes(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_a_long_log_is_read_in_pages(server: Server, ask: Asker) -> None:
    server.start()
    job_id = ask.script("seq 1 500")
    execution_id = ask.wait_for_end(job_id)["execution_id"]
    read, after, pages = "", 0, 0
    while after is not None:
        page = server.client.get(f"/executions/{execution_id}/logs?after={after}&lines=100").json()
        read, after, pages = read + page["logs"], page["next_after"], pages + 1
    assert read == ask.logs(execution_id)
    assert read.splitlines()[:500] == [str(number) for number in range(1, 501)]
    assert pages == 5
