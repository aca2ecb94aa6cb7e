"""Connections are replaced: readers between two reads, writers between two batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from duetime.domain.upkeep import Upkeep
from duetime.ports.store import JobQuery
from duetime.store.postgres import PostgresStore
from patience import PATIENCE_SECONDS
from samples import TENANT, add_job
from store.postgres_server import patient_store

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'duetime' AND datname = current_database()"
JOBS = JobQuery(TENANT, limit=100)


@pytest.fixture
async def hasty(url: str) -> AsyncIterator[PostgresStore]:
    """A store whose connections are too old as soon as they were used."""
    store = patient_store(url, upkeep=Upkeep(most_idle=5, lifetime_seconds=1e-9))
    await store.start()
    yield store
    await store.stop()


async def pids(session: asyncpg.Connection) -> set[int]:
    return {row["pid"] for row in await session.fetch(OURS)}


async def until(session: asyncpg.Connection, condition: Callable[[set[int]], bool]) -> None:
    """Waits for a condition on the open connections."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition(await pids(session)):
            continue


async def test_a_reader_that_is_too_old_is_replaced_and_closed(hasty: PostgresStore, session: asyncpg.Connection):
    reads = hasty._people_reads
    first = (await reads.fetch("SELECT pg_backend_pid()", []))[0][0]
    second = (await reads.fetch("SELECT pg_backend_pid()", []))[0][0]
    assert first != second
    await until(session, lambda found: not {first, second} & found)


async def test_a_reader_that_is_not_too_old_is_used_again(store: PostgresStore):
    reads = store._people_reads
    assert len({(await reads.fetch("SELECT pg_backend_pid()", []))[0][0] for _ in range(3)}) == 1


async def test_a_writer_that_is_too_old_is_replaced_after_its_batch(hasty: PostgresStore, session: asyncpg.Connection):
    connections = len(hasty._writer._connections)
    await until(session, lambda found: len(found) >= connections)
    before = await pids(session)
    for _ in range(3):
        await asyncio.gather(*(add_job(hasty) for _ in range(connections)))
    assert len(await hasty.list_jobs(JOBS)) == 3 * connections, "what was written is there"
    await until(session, lambda found: before - found and len(found) >= connections)


async def test_unneeded_read_connections_are_closed(store: PostgresStore, session: asyncpg.Connection):
    reads = store._people_reads
    pid = (await reads.fetch("SELECT pg_backend_pid()", []))[0][0]
    reads.close_unneeded(time.monotonic() + 299)
    assert (await reads.fetch("SELECT pg_backend_pid()", []))[0][0] == pid
    reads.close_unneeded(time.monotonic() + 301)
    await until(session, lambda found: pid not in found)
