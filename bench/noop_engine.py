"""The engine without the network: jobs due at one instant, an executor that does nothing, every result recorded.

`python -m bench.noop_engine load COUNT WHERE` stores COUNT one-off jobs and prints their instant; WHERE is a folder for
SQLite or a postgresql:// URL. `… run COUNT WHERE DUE_AT` lets an engine run them and prints the seconds from the
instant until the last result was durable. Several may run at once: they share the work.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import uvloop

from bench.node_telemetry import quiet, with_telemetry
from duetime.bus.local import LocalBus
from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import format_instant
from duetime.domain.job import HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.domain.states import State
from duetime.engine.engine import Engine
from duetime.engine.settings import EngineSettings
from duetime.events import EventHub
from duetime.ports.executor import Attempt, Outcome
from duetime.ports.registry import Registry
from duetime.ports.store import ExecutionQuery, Store
from duetime.process.clock import SystemClock
from duetime.process.tuning import tune_the_interpreter
from duetime.registry.embedded import EmbeddedRegistry
from duetime.registry.postgres import PostgresRegistry
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite import SqliteStore

PAGE = 1000  # as the API writes a batch
LEAD_SECONDS = 5.0
DONE = Outcome(http_status=200, response="ok")


class NoopExecutor:
    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def execute(self, attempt: Attempt) -> Outcome:
        return DONE


def open_at(where: str) -> tuple[Store, Registry]:
    if where.startswith("postgresql://"):
        return PostgresStore(where), PostgresRegistry(where)
    return SqliteStore(Path(where)), EmbeddedRegistry()


async def load(count: int, where: str) -> int:
    """Store the jobs. They are due so long after that a node has time to start and to arm."""
    store, _ = open_at(where)
    await store.start()
    clock = SystemClock()
    due_at = clock.now() + int((LEAD_SECONDS + count / 20_000) * 1000)
    for at in range(0, count, PAGE):
        now = clock.now()
        jobs = tuple(job(number, now, due_at) for number in range(at, min(at + PAGE, count)))
        await store.apply([CreateJobs(now, jobs)])
    await store.stop()
    return due_at


async def run(count: int, where: str, due_at: int) -> float:
    quiet()
    tune_the_interpreter()
    store, registry = open_at(where)
    await store.start()
    await registry.start()
    settings = EngineSettings(node_name=f"noop-{os.getpid()}")
    telemetry, emitting = with_telemetry(store)
    engine = Engine(emitting, registry, LocalBus(), NoopExecutor(), SystemClock(), EventHub(), settings, **telemetry)
    await engine.start()
    if time.time() * 1000 > due_at - 500:
        raise SystemExit("the jobs were due before the engine was ready")
    done = ExecutionQuery("default", state=State.COMPLETED)
    while await store.count_executions(done) < count:  # noqa: ASYNC110 (the store is asked, as anyone outside would)
        await asyncio.sleep(0.02)
    seconds = time.time() - due_at / 1000
    await engine.stop()
    await registry.stop()
    await store.stop()
    return seconds


def job(number: int, now: int, due_at: int) -> NewJob:
    payload = HttpRequest(url="http://127.0.0.1:9/never", body={"n": number})
    spec = HttpJob(name=f"job-{number}", schedule=format_instant(due_at), payload=payload)
    job_id = make_id(now, os.urandom(10))
    return NewJob(job_id, "default", None, spec.name, spec.type, "local", shard_of(job_id), False, due_at, spec)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        print(uvloop.run(load(int(sys.argv[2]), sys.argv[3])))
    else:
        print(uvloop.run(run(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
