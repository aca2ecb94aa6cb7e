"""W5: a million no-op executions due at one instant: how fast decisions and results are recorded, no network."""

from __future__ import annotations

from collections.abc import Iterator

from bench import limits, processes
from bench.results import Kind, Result, measured
from bench.workloads import Setting


def measure(setting: Setting) -> Iterator[Result]:
    count = setting.scale.decisions
    bare = "bare SQLite writes of the same rows"
    yield measured("w5", bare, Kind.LIMIT, lambda: limits.sqlite_executions(count))
    yield measured("w5", "Duetime", Kind.US, lambda: _duetime(count))


def _duetime(count: int) -> dict[str, float]:
    folder = processes.scratch("noop")
    try:
        command = [processes.PYTHON, "-m", "bench.noop_engine", str(count), str(folder)]
        seconds = float(processes.run(command, timeout_seconds=600))
    finally:
        processes.remove(folder)
    return {"per_second": count / seconds, "seconds": seconds}
