"""Workers as separate programs, each with a node in its memory: `pool` with child processes, `fleet` with several.

Prints its state as JSON lines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import structlog

from duetime.functions.registry import Registry
from duetime.functions.supervisor import run_processes, run_worker
from duetime.functions.worker import Worker
from functions.jobs import APP, app
from functions.stage import Stage


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def pool(mark: str) -> None:
    stage = Stage()
    stage.add("start_another", mark)
    worker = Worker(stage, app.registry, slots=2, pool="process", app=APP)
    running = asyncio.ensure_future(run_worker(worker))
    await stage.until(lambda: bool(stage.held))
    processes = worker._runner._pool
    say(children=processes.pids, reaper=processes._reaper.pid)
    await running


def make_worker(registry: Registry) -> Worker:
    stage = Stage()
    stage.add("sleep_long", f"{sys.argv[2]}-{os.getpid()}")
    return Worker(stage, registry, drain_seconds=0.1)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if sys.argv[1] == "pool":
        asyncio.run(pool(sys.argv[2]))
    else:
        sys.exit(run_processes(sys.argv[3] if len(sys.argv) > 3 else APP, 2, make_worker))
