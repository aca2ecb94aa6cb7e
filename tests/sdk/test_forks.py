"""Programs that fork, like gunicorn --preload, uWSGI and multiprocessing: enqueue works in all processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duetime import Client, Duetime
from patience import PATIENCE_SECONDS
from served import served

PROGRAM = Path(__file__).with_name("forking.py")
# How it forks, and how often it enqueues.
HOW = [("fork", 6), ("multiprocessing", 10), ("async", 6), ("threads", 14), ("grandchildren", 10)]


def run(*arguments: str, program: Path = PROGRAM) -> list[str]:
    """Returns the lines that the program prints. A program that hangs is killed with its children."""
    with subprocess.Popen(
        [sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0
    return said.splitlines()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as url:
        yield url


@pytest.mark.parametrize(("how", "count"), [*HOW, ("client", 6), ("async client", 5)])
def test_parent_and_children_enqueue_at_a_server(url: str, how: str, count: int) -> None:
    made = run(url, how)
    assert len(set(made)) == count
    with Client(url) as client:
        assert {client.get_job(job_id).name for job_id in made} == {"forked"}


@pytest.mark.parametrize(("how", "count"), HOW)
def test_parent_and_children_enqueue_in_an_embedded_app_and_the_parent_runs_it(
    tmp_path: Path, how: str, count: int
) -> None:
    said = run(f"sqlite:///{tmp_path / 'jobs'}", how, str(count))
    made = [line for line in said if not line.startswith("ran ")]
    ran = [line for line in said if line.startswith("ran ")]
    assert (len(set(made)), len(set(ran))) == (count, count)


def test_a_child_that_outlives_its_embedded_parent_gets_an_error_and_does_not_lock_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), f"sqlite:///{folder}", "outlive"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.wait(PATIENCE_SECONDS) == -9
            process.stdin.write("gone\n")
            process.stdin.flush()
            made = process.stdout.readline().strip()
            said = process.stdout.readline()
            assert said.startswith("away this process was forked from one with an embedded Duetime")
            app = Duetime(f"sqlite:///{folder}")
            with app:  # while the child lives
                found = app.enqueue("forked", "after").job_id
            assert found != made
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_childs_stop_does_not_stop_the_parents_app(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading\n"
        "from duetime import Duetime\n"
        f"app = Duetime('sqlite:///{tmp_path / 'jobs'}')\n"
        "done = threading.Event()\n"
        "@app.job(name='f')\n"
        "def f(): done.set()\n"
        "with app:\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        assert os.waitpid(child, 0)[1] == 0\n"
        "        app.enqueue(f)\n"
        f"        assert done.wait({PATIENCE_SECONDS})\n"
        "    else:\n"
        "        app.enqueue(f, at='2100-01-01T00:00Z')\n"
    )
    assert run(program=program) == []


def test_killed_children_lose_and_repeat_no_call_of_the_others(tmp_path: Path) -> None:
    """Each killed child had at most one call under way. All calls with a response are stored once."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, threading\n"
        "from duetime import Duetime\n"
        "from duetime.client import operations\n"
        f"app = Duetime('sqlite:///{tmp_path / 'jobs'}')\n"
        "def enqueue():\n"
        "    return app.enqueue('f', at='2100-01-01T00:00Z').job_id\n"
        "with app:\n"
        "    read, write = os.pipe()\n"
        "    stop, made = threading.Event(), []\n"
        "    def enqueue_on():\n"
        "        while not stop.is_set():\n"
        "            made.append(enqueue())\n"
        "    busy = threading.Thread(target=enqueue_on)\n"
        "    busy.start()\n"  # so that forks happen while the parent's own calls are under way
        "    children = []\n"
        "    for number in range(16):\n"
        "        child = os.fork()\n"
        "        if not child:\n"
        "            for turn in range(10_000 if number % 2 else 5):\n"
        "                os.write(write, (enqueue() + '\\n').encode())\n"
        "            os._exit(0)\n"
        "        children.append(child)\n"
        "    os.close(write)\n"
        "    answered = os.fdopen(read)\n"
        "    made += [answered.readline().strip() for _ in range(64)]\n"
        "    for child in children[1::2]:\n"
        "        os.kill(child, signal.SIGKILL)\n"
        "    made += answered.read().split()\n"
        "    ends = [os.waitpid(child, 0)[1] for child in children]\n"
        "    assert ends == [0, 9] * 8, ends\n"
        "    stop.set()\n"
        "    busy.join()\n"
        "    made.append(enqueue())\n"
        "    stored, cursor = [], None\n"
        "    while not stored or cursor:\n"
        "        page = app._ask().ask(operations.list_jobs().page(100, cursor))\n"
        "        stored += [job.job_id for job in page.jobs]\n"
        "        cursor = page.next_cursor\n"
        "    assert len(set(made)) == len(made)\n"
        "    assert set(made) <= set(stored)\n"
        "    assert len(stored) <= len(made) + 8, (len(stored), len(made))\n"
    )
    assert run(program=program) == []


def test_the_end_of_a_parent_is_detected_after_a_fork_without_hooks(tmp_path: Path) -> None:
    """Like a server that forks in C: the child has copies of the parent's sockets until its first call."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "from duetime import Duetime\n"
        "from duetime.client import ServerAway\n"
        "from duetime.sdk import forked\n"
        f"app = Duetime('sqlite:///{tmp_path / 'jobs'}')\n"
        "read, write = os.pipe()\n"
        "if os.fork():\n"
        "    os.close(write)\n"
        "    assert os.read(read, 100) == b'away'\n"
        "    os._exit(0)\n"
        "app.start()\n"
        "forked._here.clear()\n"
        "gone, end = os.pipe()\n"
        "if os.fork():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.close(end)\n"
        "os.read(gone, 1)\n"  # its parent has ended
        "try:\n"
        "    app.enqueue('f')\n"
        "except ServerAway as error:\n"
        "    os.write(write, b'away' if 'has ended' in str(error) else str(error).encode())\n"
        "os._exit(0)\n"
    )
    assert run(program=program) == []
