"""Procrastinate 3 on PostgreSQL: `python -m bench.peers.procrastinate3 ORDER`. Runs in `.peers`.

Four workers that share 64 lanes, delete what is done, listen for notifications and look for scheduled jobs twenty times
a second: each fetches one job at a time, so several of them overlap their round trips. Jobs are deferred in batches.
A recurring job is deferred ahead for each of its instants, because its own periodic tasks are fixed in code.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

import procrastinate
import psycopg
import uvloop

from bench.peers.order import Order, end_on_sigterm, read_order, say_stored
from bench.peers.webhook import CONCURRENCY, Webhook

PAGE = 5000
POLL_SECONDS = 0.05
WORKERS = 4

logging.disable(logging.WARNING)
order = read_order()
conninfo = f"host={order.postgres['host']} user={order.postgres['user']} dbname={order.postgres['database']}"
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo, min_size=4, max_size=20))
webhook = Webhook(order.base_url)


@app.task(name="send")
async def send(path: str) -> None:
    await webhook.post(path)


async def defer_all(order: Order) -> None:
    for instant, pairs in groupby(order.each(), key=itemgetter(0)):
        deferrer = send.configure(schedule_at=datetime.fromtimestamp(instant / 1000, UTC))
        paths = [{"path": order.path(number, instant)} for _, number in pairs]
        for at in range(0, len(paths), PAGE):
            await deferrer.batch_defer_async(*paths[at : at + PAGE])


def analyze() -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("ANALYZE")


async def work(number: int) -> None:
    await app.run_worker_async(
        name=f"worker-{number}",
        concurrency=CONCURRENCY // WORKERS,
        fetch_job_polling_interval=POLL_SECONDS,
        delete_jobs="successful",
        install_signal_handlers=False,
    )


async def main() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await defer_all(order)
        analyze()
        say_stored()
        await asyncio.gather(*(work(number) for number in range(WORKERS)))


if __name__ == "__main__":
    end_on_sigterm()
    uvloop.run(main())
