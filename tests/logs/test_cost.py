"""The cost of a line, and of waking its followers: counted, and compared within one run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.logs import folder
from duetime.logs.folder import FolderLogs
from duetime.process.clock import SystemClock
from logs.reading import read_all
from patience import PATIENCE_SECONDS
from samples import new_id

LIMIT = 1024 * 1024

FLOOD = """
import asyncio, resource, sys, time
from pathlib import Path
from duetime.logs.folder import FolderLogs
from duetime.process.clock import SystemClock

async def main():
    logs = FolderLogs(Path(sys.argv[1]), 1 << 20, SystemClock())
    await logs.start()
    writer = logs.open(sys.argv[2], 1)
    writer.write("stdout", "warm\\n")
    chunk = ("x" * 79 + "\\n") * 819 + "y" * 16
    began = time.process_time()
    lines = sum(len(chunk.splitlines()) for _ in range(1600))
    compared = time.process_time() - began
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for number in range(1600):
        writer.write("stdout", chunk)
        if number % 8 == 0:
            await asyncio.sleep(0)
    await writer.close()
    took = time.process_time() - began
    print(took / compared, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    await logs.stop()

asyncio.run(main())
"""


async def test_a_line_wakes_the_followers_on_the_same_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("FLUSH_SECONDS", "LOOK_SECONDS"):  # so that neither a periodic read nor an append can be the cause
        monkeypatch.setattr(folder, name, 3600.0)
    logs = FolderLogs(tmp_path, LIMIT, SystemClock())
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    after = 0
    for number in range(50):
        waiting = asyncio.create_task(logs.wait(execution, after, 3600))
        await asyncio.sleep(0)
        writer.write("stdout", f"line {number}\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await waiting
        (line,) = await logs.read(execution, after, 100)
        assert line.text == f"line {number}"
        after = line.number
    await writer.close()
    await logs.stop()


async def test_a_hundred_attempts_of_a_hundred_lines_are_appended_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    appends: list[int] = []
    whole = folder.append
    monkeypatch.setattr(folder, "append", lambda *args: appends.append(1) or whole(*args))
    monkeypatch.setattr(folder, "FLUSH_SECONDS", 3600.0)  # lines are gathered until the attempt ends
    logs = FolderLogs(tmp_path, LIMIT, SystemClock())
    await logs.start()
    executions = [new_id() for _ in range(100)]

    async def attempt(execution: str) -> None:
        writer = logs.open(execution, 1)
        for number in range(100):
            writer.write("stdout", f"line {number} of an attempt that says a little\n")
            await asyncio.sleep(0)
        await writer.close()

    await asyncio.gather(*(attempt(execution) for execution in executions))
    for execution in executions:
        assert len(await read_all(logs, execution)) == 100
    await logs.stop()
    assert len(appends) <= 4 * 100, "10,000 lines: a few appends a log, none a line"


def test_a_flood_of_100_mb_costs_neither_time_nor_memory(tmp_path: Path):
    command = [sys.executable, "-c", FLOOD, str(tmp_path), new_id()]
    answer = subprocess.run(command, timeout=PATIENCE_SECONDS, check=True, capture_output=True, text=True).stdout
    ratio, growth = (float(part) for part in answer.split())
    growth *= 1 if sys.platform == "darwin" else 1024
    assert ratio < 5  # relative to finding its lines once: 0.3 here
    assert growth < 24e6
