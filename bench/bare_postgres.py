"""Bare PostgreSQL: the rows that Duetime writes, written by a loop that does nothing else.

`python -m bench.bare_postgres creates|fires|executions COUNT URL` writes them with the product's own schema, a page a
commit on one connection, and prints the seconds. Creates are COPY; fires and finishes one statement a table and page.
Rows are made before the clock starts.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import uuid
from collections.abc import Sequence

import asyncpg
import uuid_utils

from bench.bare_sqlite import DUE_AT, NOW, spec
from duetime.store.postgres import PostgresStore

COPY_PAGE = 10_000
PAGE = 2048  # as the engine fires

MOVE_TIMERS = """
    UPDATE timers AS t SET due_at = NULL, fired = fired + 1 FROM unnest($1::uuid[]) AS p (job) WHERE t.job = p.job"""
ADD_EXECUTIONS = """
    INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
    SELECT $3, id, job, 0, 0, 5, 'schedule', 'default' FROM unnest($1::uuid[], $2::uuid[]) AS p (job, id)"""
ADD_OPEN_RUNS = """
    INSERT INTO open_runs (job, execution, scheduled_at, endpoint, due_at, extra, attempt, token, node, priority, state,
                           trigger, tenant)
    SELECT job, id, $3, 0, $3, 0, 1, 1, 1, 5, 'RUNNING', 'schedule', 'default'
    FROM unnest($1::uuid[], $2::uuid[]) AS p (job, id)"""
END_OPEN_RUNS = """
    DELETE FROM open_runs AS o USING unnest($1::uuid[], $2::uuid[]) AS p (job, id)
    WHERE o.job = p.job AND o.execution = p.id"""
END_EXECUTIONS = """
    UPDATE executions AS e SET state = 'COMPLETED', started_at = $2::bigint, ended_at = $2::bigint + 1, due_at = $2,
                               attempt = 1, token = 1, node = 1
    FROM unnest($1::uuid[]) AS p (id) WHERE e.scheduled_at = $2 AND e.id = p.id"""
ADD_ATTEMPTS = """
    INSERT INTO attempts (scheduled_at, execution, started_at, ended_at, attempt, node, http_status, response)
    SELECT $2::bigint, id, $2, $2::bigint + 1, 1, 1, 200, 'ok' FROM unnest($1::uuid[]) AS p (id)"""
COUNT_RUNS = """
    UPDATE timers AS t SET status = 'COMPLETED', runs = runs + 1, successes = successes + 1, busy_ms = busy_ms + 1,
                           last_run_at = $2, last_state = 'COMPLETED'
    FROM unnest($1::uuid[]) AS p (job) WHERE t.job = p.job"""

JOB_COLUMNS = ["id", "tenant", "name", "type", "owner", "created_at", "updated_at", "spec"]
TIMER_COLUMNS = ["job", "tenant", "shard", "status", "version", "recurs", "due_at"]


async def create(connection: asyncpg.Connection, jobs: Sequence[uuid.UUID]) -> float:
    pages = []
    for at in range(0, len(jobs), COPY_PAGE):
        page = list(enumerate(jobs[at : at + COPY_PAGE], at))
        wide = [(job, "default", f"job-{n}", "http_request", "local", NOW, NOW, spec(n)) for n, job in page]
        narrow = [(job, "default", n % 64, "PENDING", 1, False, DUE_AT) for n, job in page]
        pages.append((wide, narrow))
    started = time.perf_counter()
    for wide, narrow in pages:
        async with connection.transaction():
            await connection.copy_records_to_table("jobs", records=wide, columns=JOB_COLUMNS)
            await connection.copy_records_to_table("timers", records=narrow, columns=TIMER_COLUMNS)
    return time.perf_counter() - started


async def execute(connection: asyncpg.Connection, jobs: Sequence[uuid.UUID], *, finish: bool) -> float:
    await connection.execute("ANALYZE")
    pages = [(page := jobs[at : at + PAGE], ids(len(page))) for at in range(0, len(jobs), PAGE)]
    started = time.perf_counter()
    for page, runs in pages:
        async with connection.transaction():
            await connection.execute(MOVE_TIMERS, page)
            await connection.execute(ADD_EXECUTIONS, page, runs, DUE_AT)
            await connection.execute(ADD_OPEN_RUNS, page, runs, DUE_AT)
        if finish:
            async with connection.transaction():
                await connection.execute(END_OPEN_RUNS, page, runs)
                await connection.execute(END_EXECUTIONS, runs, DUE_AT)
                await connection.execute(ADD_ATTEMPTS, runs, DUE_AT)
                await connection.execute(COUNT_RUNS, page, DUE_AT + 1)
    return time.perf_counter() - started


def ids(count: int) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=uuid_utils.uuid7().bytes) for _ in range(count)]


async def main(what: str, count: int, url: str) -> float:
    store = PostgresStore(url)
    await store.start()  # the schema
    await store.stop()
    connection = await asyncpg.connect(url)
    jobs = ids(count)
    seconds = await create(connection, jobs)
    if what != "creates":
        seconds = await execute(connection, jobs, finish=what == "executions")
    await connection.close()
    return seconds


if __name__ == "__main__":
    gc.disable()
    print(asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
