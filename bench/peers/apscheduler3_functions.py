"""APScheduler 3, calling the no-op: `python -m bench.peers.apscheduler3_functions ORDER sqlite|sqlite-wal`.

Runs in `.peers`. No misfire limit and no coalescing, so that it never drops a call to keep up; the stores are those of
`apscheduler3`. Calls run in two threads: two processes are slower, for each call is then handed over a pipe.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from bench.noop import VARIABLE, noop
from bench.peers.apscheduler3 import make_store
from bench.peers.order import Order, end_on_sigterm, read_order, say_stored

THREADS = 2


def add_jobs(scheduler: BackgroundScheduler, order: Order) -> None:
    when = datetime.fromtimestamp(order.instants[0] / 1000, UTC)
    for number in range(order.jobs):
        scheduler.add_job(noop, "date", run_date=when, args=[number], id=str(number))


def main(order: Order, store: str) -> None:
    os.environ[VARIABLE] = order.tally
    scheduler = BackgroundScheduler(
        jobstores={"default": make_store(store, order.folder)},
        executors={"default": ThreadPoolExecutor(THREADS)},
        job_defaults={"misfire_grace_time": None, "coalesce": False},
        timezone=UTC,
    )
    scheduler.start(paused=True)
    add_jobs(scheduler, order)
    scheduler.resume()
    say_stored()
    threading.Event().wait()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    end_on_sigterm()
    main(read_order(), sys.argv[2])
