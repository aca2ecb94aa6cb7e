"""What a line costs, and how soon it is seen. The bounds are several times what was measured."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

from duetime.logs.folder import FolderLogs
from duetime.telemetry.clock import SystemClock
from logs.reading import read_all
from patience import PATIENCE_SECONDS
from samples import new_id

LIMIT = 1024 * 1024

FLOOD = """
import asyncio, resource, sys, time
from pathlib import Path
from duetime.logs.folder import FolderLogs
from duetime.telemetry.clock import SystemClock

async def main():
    logs = FolderLogs(Path(sys.argv[1]), 1 << 20, SystemClock())
    await logs.start()
    writer = logs.open(sys.argv[2], 1)
    writer.write("stdout", "warm\\n")
    chunk = ("x" * 79 + "\\n") * 819 + "y" * 16
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for number in range(1600):
        writer.write("stdout", chunk)
        if number % 8 == 0:
            await asyncio.sleep(0)
    await writer.close()
    took = time.process_time() - began
    print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    await logs.stop()

asyncio.run(main())
"""


async def test_a_line_is_seen_here_within_50_ms_at_the_median(tmp_path: Path):
    logs = FolderLogs(tmp_path, LIMIT, SystemClock())
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    delays: list[float] = []

    async def read() -> None:
        after = 0
        while len(delays) < 50:
            if await logs.wait(execution, after, 10):
                for line in await logs.read(execution, after, 100):
                    delays.append(time.perf_counter() - float(line.text))
                    after = line.number

    reading = asyncio.create_task(read())
    for _ in range(50):
        writer.write("stdout", f"{time.perf_counter()}\n")
        await asyncio.sleep(0.005)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reading
    await writer.close()
    await logs.stop()
    assert statistics.median(delays) < 0.05  # 0.1 ms here


async def test_a_hundred_attempts_of_a_hundred_lines_cost_little(tmp_path: Path):
    logs = FolderLogs(tmp_path, LIMIT, SystemClock())
    await logs.start()
    executions = [new_id() for _ in range(100)]

    async def attempt(execution: str) -> None:
        writer = logs.open(execution, 1)
        for number in range(100):
            writer.write("stdout", f"line {number} of an attempt that says a little\n")
            await asyncio.sleep(0)
        await writer.close()

    began = time.process_time()
    await asyncio.gather(*(attempt(execution) for execution in executions))
    cost = (time.process_time() - began) / 10_000
    for execution in executions:
        assert len(await read_all(logs, execution)) == 100
    await logs.stop()
    assert cost < 0.0005  # 8 µs here, with the thread that appends


def test_a_flood_of_100_mb_costs_neither_time_nor_memory(tmp_path: Path):
    command = [sys.executable, "-c", FLOOD, str(tmp_path), new_id()]
    answer = subprocess.run(command, timeout=PATIENCE_SECONDS, check=True, capture_output=True, text=True).stdout
    seconds, growth = (float(part) for part in answer.split())
    growth *= 1 if sys.platform == "darwin" else 1024
    assert seconds < 1.0  # 0.04 s here
    assert growth < 24e6
