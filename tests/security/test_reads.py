"""Slow reads of one tenant: meanwhile other tenants' reads, /health and API keys work.

A hostile tenant sends reads that never end. Durations are not asserted: all of its reads are still running when the
others have a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duetime.domain.errors import Overloaded
from duetime.places import Places
from duetime.ports.store import ExecutionQuery, JobQuery
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite import SqliteStore
from engine.stage import until
from patience import PATIENCE_SECONDS
from samples import add_job, spec
from store.postgres_server import emptied_database

HOSTILE, ALSO_HOSTILE, VICTIM = "hostile", "also-hostile", "victim"
READS = 60  # more than there are threads, or connections
ENDLESS = {
    "sqlite": "WITH RECURSIVE n (row) AS (SELECT 1 UNION ALL SELECT row FROM n) SELECT row FROM n WHERE row > :zero",
    "postgres": "SELECT pg_sleep(1000)::text AS row WHERE :zero::integer = 0",
}
AnyStore = SqliteStore | PostgresStore


@pytest.fixture(params=sorted(ENDLESS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyStore]:
    made: AnyStore = SqliteStore(tmp_path, read_seconds=PATIENCE_SECONDS)
    if request.param == "postgres":
        made = PostgresStore(await emptied_database(), op_timeout_seconds=PATIENCE_SECONDS)
    await made.start()
    yield made
    await made.stop()


def read_without_end(store: AnyStore, tenant: str) -> asyncio.Task[Any]:
    values = {"tenant": tenant, "zero": 0}
    sql = ENDLESS["sqlite" if isinstance(store, SqliteStore) else "postgres"]
    return asyncio.create_task(store._ask((sql, values), int))


@contextmanager
def crowd(store: AnyStore, *tenants: str, reads: int = READS) -> Iterator[list[asyncio.Task[Any]]]:
    """Starts this many reads without an end, for each of these tenants."""
    under_way = [read_without_end(store, tenant) for _ in range(reads) for tenant in tenants]
    try:
        yield under_way
    finally:
        for task in under_way:
            task.cancel()
        if isinstance(store, SqliteStore):
            for connection in store._people_reads.connections:
                connection.interrupt()


async def until_begun(store: AnyStore, *tenants: str) -> None:
    """Returns whether each of these tenants has a running read."""
    await until(lambda: all(store._people_reads.places.begun_of(tenant) for tenant in tenants))


async def test_reads_of_two_tenants_do_not_delay_a_third(store: AnyStore):
    job_id = await add_job(store, spec(), tenant=VICTIM)
    with crowd(store, HOSTILE, ALSO_HOSTILE) as hostile:
        await until_begun(store, HOSTILE, ALSO_HOSTILE)
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            for _ in range(5):
                assert [job.job_id for job in await store.list_jobs(JobQuery(VICTIM))] == [job_id]
                assert await store.count_executions(ExecutionQuery(VICTIM)) == 0
        assert not any(task.done() for task in hostile), "the others were read beside them, and not after them"


async def test_reads_of_tenants_delay_neither_health_nor_api_keys(store: AnyStore):
    tenants = [f"hostile-{number}" for number in range(40)]  # more than may read at once
    with crowd(store, *tenants, reads=2) as hostile:
        await until_begun(store, tenants[0])
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            for _ in range(5):
                assert await store.check() is None
                assert (await store.get_load()).jobs == 0
                assert await store.get_key("0123456789abcdef") is None
        assert not any(task.done() for task in hostile)


async def test_a_tenant_may_have_a_bounded_number_of_reads_waiting(store: AnyStore):
    places = store._people_reads.places
    places.most_waiting = 20
    with crowd(store, HOSTILE, reads=100) as hostile:
        await until(lambda: sum(task.done() for task in hostile) == 100 - 20 - places.begun_of(HOSTILE))
        refused = [task for task in hostile if task.done()]
        assert {type(task.exception()) for task in refused} == {Overloaded}
        error = refused[0].exception()
        assert isinstance(error, Overloaded)
        assert error.retry_after == 1
        assert "20 reads" in error.message
        assert await store.list_jobs(JobQuery(VICTIM)) == []


async def test_waiting_reads_are_counted_by_tenant():
    places = Places(1, most=1, most_waiting=2)
    await places.enter("a")
    waiting = [asyncio.create_task(places.enter("a")) for _ in range(3)]
    others = [asyncio.create_task(places.enter("b")) for _ in range(2)]
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [False, False, True]
    assert not any(task.done() for task in others)
    with pytest.raises(Overloaded, match="2 reads"):
        await waiting[2]
    for task in [*waiting, *others]:
        task.cancel()
