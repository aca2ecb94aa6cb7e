"""APScheduler 3: `python -m bench.peers.apscheduler3 ORDER sqlite|sqlite-wal|memory`. Runs in `.peers`.

AsyncIOScheduler on uvloop, jobs as coroutines, no misfire limit and no coalescing, so that it never drops a run to
keep up. `sqlite` is the store as its documentation sets it up; `sqlite-wal` gives it the journal that Duetime uses, WAL
with synchronous=FULL, which its documentation doesn't mention.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import sqlalchemy
import uvloop
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bench.peers.order import Order, end_on_sigterm, read_order, say_stored
from bench.peers.webhook import Webhook

order = read_order()
webhook = Webhook(order.base_url)


async def send(path: str) -> None:
    await webhook.post(path)


def make_store(kind: str, folder: str) -> SQLAlchemyJobStore | MemoryJobStore:
    if kind == "memory":
        return MemoryJobStore()
    url = f"sqlite:///{folder}/apscheduler.db"
    if kind == "sqlite":
        return SQLAlchemyJobStore(url=url)
    engine = sqlalchemy.create_engine(url)

    @sqlalchemy.event.listens_for(engine, "connect")
    def set_journal(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return SQLAlchemyJobStore(engine=engine)


def add_jobs(scheduler: AsyncIOScheduler, order: Order) -> None:
    """A date for a burst; for recurring jobs, every second from the first instant to the last."""
    start, end = (datetime.fromtimestamp(order.instants[i] / 1000, UTC) for i in (0, -1))
    when: dict[str, Any] = {"trigger": "date", "run_date": start}
    if len(order.instants) > 1:
        when = {"trigger": "interval", "seconds": 1, "start_date": start, "end_date": end}
    for number in range(order.jobs):
        scheduler.add_job(f"{__spec__.name}:send", args=[f"/{order.run}/{number}"], id=str(number), **when)


async def main(kind: str) -> None:
    scheduler = AsyncIOScheduler(
        jobstores={"default": make_store(kind, order.folder)},
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1000},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    add_jobs(scheduler, order)
    scheduler.resume()
    say_stored()
    await asyncio.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    end_on_sigterm()
    sys.modules[__spec__.name] = sys.modules["__main__"]  # the stored reference to `send` names this module
    uvloop.run(main(sys.argv[2]))
