"""W5: a million no-op executions due at one instant: how fast decisions and results are recorded, no network."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

from bench import limits, processes
from bench.machine import Busy
from bench.results import Kind, Result, measured
from bench.workloads import Setting


def measure(setting: Setting) -> Iterator[Result]:
    count = setting.scale.decisions
    bare = "bare SQLite writes of the same rows"
    yield measured("w5", bare, Kind.LIMIT, lambda: limits.sqlite_executions(count))
    yield measured("w5", "Duetime", Kind.US, lambda: duetime(count))


def duetime(count: int) -> dict[str, float]:
    folder = processes.scratch("noop")
    try:
        return engines(1, count, str(folder))
    finally:
        processes.remove(folder)


def engines(nodes: int, count: int, where: str) -> dict[str, float]:
    """Stores the jobs, then lets so many engines run them at once; the last one's seconds count.

    `bench.noop_engine` calls the engine's classes, so it is taken from the checkout that is measured.
    """
    checkout = processes.MEASURED
    command = [processes.PYTHON, "-m", "bench.noop_engine"]
    load = [*command, "load", str(count), where]
    due_at = processes.run(load, cwd=checkout, timeout_seconds=300).decode().strip()
    children = [
        processes.start([*command, "run", str(count), where, due_at], stdout=subprocess.PIPE, cwd=checkout)
        for _ in range(nodes)
    ]
    try:
        time.sleep(max(0.0, int(due_at) / 1000 - time.time()))
        busy = Busy()
        answers = [child.communicate(timeout=600)[0] for child in children]
        used = busy.share()
    finally:
        for child in children:
            processes.kill(child)
    if any(child.returncode for child in children):
        raise RuntimeError("an engine failed: see above")
    seconds = max(float(answer) for answer in answers)
    return {"per_second": count / seconds, "seconds": seconds, "machine_percent": used * 100}
