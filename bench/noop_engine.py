"""The engine without the network: jobs due at one instant, an executor that does nothing, every result recorded.

`python -m bench.noop_engine COUNT FOLDER` stores COUNT one-off jobs, lets the engine run them, and prints the seconds
from their instant until the last result was durable.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import uvloop

from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import format_instant
from duetime.domain.job import HttpRequest, JobSpec
from duetime.domain.states import State
from duetime.engine.engine import Engine, EngineSettings
from duetime.node import tune_the_interpreter
from duetime.ports.executor import Outcome, Task
from duetime.ports.store import ExecutionQuery
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.clock import SystemClock
from duetime.telemetry.events import EventHub

PAGE = 1000  # as the API writes a batch
LEAD_SECONDS = 2.0
DONE = Outcome(http_status=200, response="ok")


class NoopExecutor:
    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def execute(self, task: Task) -> Outcome:
        return DONE


async def main(count: int, folder: Path) -> float:
    tune_the_interpreter()
    clock, store = SystemClock(), SqliteStore(folder)
    await store.start()
    due_at = clock.now() + int((LEAD_SECONDS + count / 25_000) * 1000)
    for at in range(0, count, PAGE):
        now = clock.now()
        jobs = tuple(job(number, now, due_at) for number in range(at, min(at + PAGE, count)))
        await store.apply([CreateJobs(now, jobs)])
    if clock.now() > due_at - 500:
        raise SystemExit("the jobs were due before all of them were stored")
    engine = Engine(store, NoopExecutor(), clock, EventHub(), EngineSettings())
    await engine.start()
    done = ExecutionQuery("default", state=State.COMPLETED)
    while await store.count_executions(done) < count:  # noqa: ASYNC110 (the store is asked, as anyone outside would)
        await asyncio.sleep(0.02)
    seconds = time.time() - due_at / 1000
    await engine.stop()
    await store.stop()
    return seconds


def job(number: int, now: int, due_at: int) -> NewJob:
    payload = HttpRequest(url="http://127.0.0.1:9/never", body={"n": number})
    spec = JobSpec(name=f"job-{number}", schedule=format_instant(due_at), payload=payload)
    job_id = make_id(now, os.urandom(10))
    return NewJob(job_id, "default", None, spec.name, spec.type, "local", shard_of(job_id), False, due_at, spec)


if __name__ == "__main__":
    print(uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]))))
