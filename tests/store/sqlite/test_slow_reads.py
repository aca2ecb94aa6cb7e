"""Reads of users have a time limit; reads of the engine have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetime.domain.errors import Overloaded
from duetime.ports.store import ExecutionQuery, JobQuery
from duetime.store.sqlite import SqliteStore
from samples import NOW, TENANT, add_job, spec

ENDLESS = "WITH RECURSIVE n (row) AS (SELECT 1 UNION ALL SELECT row FROM n) SELECT row FROM n"
LONG = "WITH RECURSIVE n (row) AS (SELECT 1 UNION ALL SELECT row + 1 FROM n LIMIT 500000) SELECT max(row) AS row FROM n"


async def opened(folder: Path, read_seconds: float) -> SqliteStore:
    store = SqliteStore(folder, read_seconds=read_seconds)
    await store.start()
    return store


async def test_a_read_beyond_its_limit_ends_with_a_message_and_the_next_one_succeeds(tmp_path: Path):
    store = await opened(tmp_path, read_seconds=0.2)
    try:
        for _ in range(3):  # more than there are threads for reads
            with pytest.raises(Overloaded, match=r"took longer than 0\.2 s.*DB_OP_TIMEOUT"):
                await store._ask((ENDLESS, {}), int)
    finally:
        await store.stop()
    store = await opened(tmp_path, read_seconds=60)
    try:
        job_id = await add_job(store, spec())
        assert [job.job_id for job in await store.list_jobs(JobQuery(TENANT))] == [job_id]
    finally:
        await store.stop()


async def test_each_read_has_a_separate_limit(tmp_path: Path):
    """The end of a read does not end later ones on the same connection."""
    store = await opened(tmp_path, read_seconds=60)
    try:
        assert await store._ask((LONG, {}), int) == [500_000]
        store._people_reads.seconds = 0.0
        with pytest.raises(Overloaded):
            await store._ask((LONG, {}), int)
        store._people_reads.seconds = 60
        for _ in range(4):
            assert await store._ask((LONG, {}), int) == [500_000]
    finally:
        await store.stop()


async def test_reads_of_the_engine_have_no_limit(tmp_path: Path):
    store = await opened(tmp_path, read_seconds=0.0)
    try:
        job_id = await add_job(store, spec())
        with pytest.raises(Overloaded):
            await store.list_executions(ExecutionQuery(TENANT))
        assert await store._engine_reads.text(LONG, {}) == "[500000]"
        assert [timer.job_id for timer in await store.list_due_timers(NOW + 10**9, 10)] == [job_id]
    finally:
        await store.stop()


async def test_health_reports_that_the_database_can_not_be_read_in_time(tmp_path: Path):
    store = await opened(tmp_path, read_seconds=0.0)
    try:
        assert "took longer than" in str(await store.check())
    finally:
        await store.stop()
