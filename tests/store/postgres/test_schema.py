"""Migrations: concurrent, repeated, and of a newer version; and the constraints of the schema."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest

from duetime.domain.capacity import UNBOUNDED
from duetime.domain.commands import StartNode
from duetime.ports.store import JobQuery
from duetime.store.blocks import COMMANDS
from duetime.store.postgres import PostgresStore, StoreUnusable, blocks
from duetime.store.postgres.blocks import load_blocks, load_migrations
from duetime.store.postgres.connections import Address
from duetime.store.postgres.partitions import Days
from duetime.store.postgres.schema import LOCK, get_versions, migrate
from duetime.store.postgres.writer_connection import OF_A_BURST, WriterConnection
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, add_job, one
from store.later_schema import BROKEN, LATER, use_migrations
from store.postgres_server import connected, fresh_database, patient_store

NEWEST = load_migrations()[-1][0]
SCHEMA = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = 'public' UNION ALL
SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2
"""


async def schema_of(url: str) -> list[asyncpg.Record]:
    async with connected(url) as connection:
        return await connection.fetch(SCHEMA)


def test_migrations_are_numbered_one_by_one():
    assert [number for number, _ in load_migrations()] == list(range(1, NEWEST + 1))


def test_every_value_in_a_block_has_its_type():
    """asyncpg gets the types of values from the server: a cast names the type where the server would have to guess."""
    for name, block in load_blocks(*COMMANDS, "reads.sql").items():
        for number, value in enumerate(block.names, 1):
            uses = re.findall(rf"\${number}\b(::\w+|)", block.sql)
            assert "" not in uses or value == "now", f"{name}: {value}"


async def test_concurrent_starts_on_an_empty_database_converge():
    async with fresh_database() as url:
        stores = [patient_store(url) for _ in range(4)]
        await asyncio.gather(*(store.start() for store in stores))
        nodes = [await one(store, StartNode(NOW, f"node-{n}")) for n, store in enumerate(stores)]
        assert len(set(nodes)) == 4
        for store in stores:
            await store.stop()
        async with connected(url) as connection:
            assert await get_versions(connection) == (NEWEST, NEWEST)
            assert await connection.fetchval("SELECT count(*) FROM schema_versions") == NEWEST


async def test_a_second_migration_waits_for_the_first_and_has_nothing_to_do():
    async with fresh_database() as url:
        async with connected(url) as first:
            async with first.transaction():
                await first.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
                second = asyncio.ensure_future(migrate(Address(url)))
                while not await first.fetchval(
                    "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
                ):
                    assert not second.done()
            await second
        assert await migrate(Address(url)) == (NEWEST, NEWEST)


async def test_a_repeated_migration_changes_nothing():
    async with fresh_database() as url:
        assert await migrate(Address(url)) == (0, NEWEST)
        fresh = await schema_of(url)
        assert await migrate(Address(url)) == (NEWEST, NEWEST)
        assert await schema_of(url) == fresh


async def test_an_interrupted_migration_changes_nothing_and_is_repeated():
    async with fresh_database() as url:
        async with connected(url) as connection:
            await connection.execute("CREATE TABLE attempts_rest (in_the_way integer)")
            with pytest.raises(asyncpg.DuplicateTableError):
                await migrate(Address(url))
            assert await connection.fetchval("SELECT to_regclass('jobs') IS NULL")
            await connection.execute("DROP TABLE attempts_rest")
        assert await migrate(Address(url)) == (0, NEWEST)


async def test_a_schema_migrated_step_by_step_equals_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with fresh_database() as fresh, fresh_database() as older:
        assert await migrate(Address(older)) == (0, NEWEST)
        for step in range(1, len(LATER) + 1):
            newest = use_migrations(monkeypatch, tmp_path / f"to-{NEWEST + step}", blocks, LATER[step - 1])
            assert await migrate(Address(older)) == (newest - 1, newest)
        assert await migrate(Address(fresh)) == (0, NEWEST + len(LATER))
        assert await schema_of(older) == await schema_of(fresh)


async def test_a_migration_keeps_the_rows_and_changes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with fresh_database() as url:
        store = patient_store(url)
        await store.start()
        for _ in range(3):
            await add_job(store)
        await store.stop()
        use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER)
        store = patient_store(url)
        await store.start()
        assert await store.count_jobs(JobQuery(TENANT)) == 3
        await store.stop()
        async with connected(url) as connection:
            assert [tuple(row) for row in await connection.fetch("SELECT name, jobs FROM colors")] == [("green", 3)]


async def test_a_migration_that_fails_changes_nothing_and_none_before_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with fresh_database() as url:
        await migrate(Address(url))
        before = await schema_of(url)
        use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER, BROKEN)
        with pytest.raises(asyncpg.UndefinedTableError, match="no_such_table"):
            await migrate(Address(url))
        assert await schema_of(url) == before
        async with connected(url) as connection:
            assert (await get_versions(connection))[0] == NEWEST


async def test_a_newer_schema_is_refused_with_advice_and_not_changed():
    async with fresh_database() as url:
        await migrate(Address(url))
        async with connected(url) as connection:
            await connection.execute("INSERT INTO schema_versions (version) VALUES ($1)", NEWEST + 1)
        before = await schema_of(url)
        with pytest.raises(
            StoreUnusable,
            match=rf"has schema {NEWEST + 1}, this Duetime knows {NEWEST} at most: .*Install that version",
        ):
            await patient_store(url).start()
        assert await schema_of(url) == before


async def test_the_schema_allows_one_execution_for_a_job_and_an_instant(session: asyncpg.Connection):
    insert = """
        INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
        VALUES ($1, gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 1, 0, 5, 'schedule', 't')
    """
    for at in (NOW, 5):  # in a partition of a day, and in the default partition
        await session.execute(insert, at)
        with pytest.raises(asyncpg.UniqueViolationError):
            await session.execute(insert, at)


async def test_statements_of_a_burst_are_planned_before_the_first_burst(store: PostgresStore):
    connection = WriterConnection(
        store._writer._connections[0]._connector, Days(), 5.0, 0, lambda error: None, UNBOUNDED
    )
    await connection.open()
    assert connection._connection is not None
    planned = await connection._connection.fetch("SELECT statement FROM pg_prepared_statements WHERE generic_plans > 0")
    blocks = load_blocks(*COMMANDS)
    assert {blocks[name].sql for name in OF_A_BURST} <= {row["statement"] for row in planned}
    await connection.close()


@pytest.mark.parametrize("is_pooled", [True, False])
async def test_no_session_state_is_kept_between_transactions_behind_a_pooler(
    url: str, session: asyncpg.Connection, is_pooled: bool
):
    """In transaction mode each transaction may run on another server connection."""
    patience = f"{PATIENCE_SECONDS / 60:.0f}min"
    store = patient_store(f"{url}{'&' if '?' in url else '?'}pgbouncer=true" if is_pooled else url)
    await store.start()
    await add_job(store)
    connection = await store._writer._connections[0]._connector.open()
    await connection.execute(store._writer._connections[0]._connector.begin)
    await connection.fetch("SELECT 1")
    assert await connection.fetchval("SHOW lock_timeout") == patience
    await connection.execute("COMMIT")
    assert await connection.fetchval("SHOW lock_timeout") == ("0" if is_pooled else patience)
    assert await connection.fetchval("SELECT count(*) > 0 FROM pg_prepared_statements") is not is_pooled
    await connection.close()
    assert await session.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    await store.stop()
