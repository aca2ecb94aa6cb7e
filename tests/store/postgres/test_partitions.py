"""History by day: partitions are created when needed and in advance, dropped whole, and no row without one is lost."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from duetime.domain import commands as c
from duetime.domain.instants import DAY, HOUR
from duetime.store.postgres import PostgresStore, partitions
from duetime.store.postgres.partitions import drop_day, list_days, partition_of
from duetime.store.postgres.schema import LOCK
from duetime.store.postgres.statements import Statements
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, ended, execution, finish, fire, one, spec
from snapshot import recount, totals
from store.postgres_server import connected, patient_store

FAR = NOW + 100 * DAY  # where the tests' database has no partition yet
TODAY = FAR // DAY


async def rows_in(session: asyncpg.Connection, parent: str, day: int) -> int:
    return int(await session.fetchval(f"SELECT count(*) FROM {partition_of(parent, day)}"))


async def in_rest(session: asyncpg.Connection) -> int:
    return int(await session.fetchval("SELECT count(*) FROM executions_rest"))


async def drop_far(session: asyncpg.Connection) -> None:
    for day in [day for day in await list_days(session) if day > NOW // DAY + 10]:
        await session.execute(f"DROP TABLE {partition_of('executions', day)}, {partition_of('attempts', day)}")


async def ended_execution(store: PostgresStore, node: int, at: int) -> str:
    made = await add_execution(store, await add_job(store), at)
    (claim,) = await claim_waiting(store, node, at)
    assert await finish(store, node, at, ended(claim, now=at)) == []
    return made


async def test_a_day_is_created_when_it_is_needed_and_the_next_one_in_advance(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    await ended_execution(store, node, FAR)
    assert {TODAY, TODAY + 1} <= set(await list_days(session))
    assert [await rows_in(session, parent, TODAY) for parent in ("executions", "attempts")] == [1, 1]
    assert await in_rest(session) == 0


async def test_a_starting_node_creates_its_days_before_executions_are_due(
    store: PostgresStore, session: asyncpg.Connection
):
    await drop_far(session)
    await one(store, c.StartNode(FAR, "node-1"))
    assert {TODAY, TODAY + 1} <= set(await list_days(session))


async def test_stores_that_need_a_day_concurrently_create_it_once(
    store: PostgresStore, other: PostgresStore, session: asyncpg.Connection
):
    await drop_far(session)
    jobs = [await add_job(store) for _ in range(8)]
    await asyncio.gather(
        *(add_execution(which, job_id, FAR) for which, job_id in zip([store, other] * 4, jobs, strict=True))
    )
    assert await rows_in(session, "executions", TODAY) == 8
    assert await in_rest(session) == 0


async def test_a_write_that_needs_a_day_waits_for_its_creation_by_another(
    store: PostgresStore, session: asyncpg.Connection
):
    await drop_far(session)
    job_id = await add_job(store)
    async with session.transaction():
        await session.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        adding = asyncio.ensure_future(add_execution(store, job_id, FAR))
        waiting = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not adding.done() and not await session.fetchval(waiting):
                pass
        assert not adding.done()
    await adding
    assert await rows_in(session, "executions", TODAY) == 1


async def test_a_day_that_cannot_be_created_now_delays_no_write(store: PostgresStore, session: asyncpg.Connection):
    await drop_far(session)
    job_id = await add_job(store)
    async with session.transaction():
        await session.fetch("SELECT count(*) FROM executions_rest")
        async with asyncio.timeout(PATIENCE_SECONDS):
            made = await add_execution(store, job_id, FAR)
            await add_execution(store, job_id, FAR)
    assert await in_rest(session) == 2
    assert (await execution(store, made)).state == "QUEUED"


async def test_an_instant_missed_long_ago_is_stored_in_the_default_partition(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(
        store, spec("2026-01-01T00:01:00Z", catch_up={"policy": "latest", "window_seconds": 31_536_000})
    )
    await session.execute("UPDATE timers SET due_at = $1", NOW - 50 * DAY)
    _, claims = await fire(store, node, NOW, job_id)
    for claim in claims:
        assert (await execution(store, claim.execution_id)).scheduled_at == NOW - 50 * DAY
        assert await finish(store, node, NOW, ended(claim)) == []
    assert await in_rest(session) == len(claims) == 1
    assert await store.list_attempts(claims[0].execution_id)
    assert await one(store, c.Prune(NOW - 40 * DAY, NOW - 40 * DAY, 0, 100)) == 1
    assert await in_rest(session) == 0
    assert await totals(store) == await recount(store)


async def test_a_day_with_rows_in_the_default_partition_stays_there(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    made = await ended_execution(store, node, FAR)
    await session.execute(
        f"ALTER TABLE executions DETACH PARTITION {partition_of('executions', TODAY)};"
        f"INSERT INTO executions SELECT * FROM {partition_of('executions', TODAY)};"
        f"DROP TABLE {partition_of('executions', TODAY)}, {partition_of('attempts', TODAY)}"
    )
    again = patient_store(store._address.url)
    await again.start()
    second = await ended_execution(again, node, FAR + HOUR)
    assert await in_rest(session) == 2
    assert [(await execution(again, one_of)).state for one_of in (made, second)] == ["COMPLETED"] * 2
    await again.stop()
    await session.execute("DELETE FROM executions_rest")


async def test_an_old_day_is_dropped_whole_at_any_limit_together_with_its_numbers(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    old = [await ended_execution(store, node, FAR + n) for n in range(5)]
    young = await ended_execution(store, node, FAR + DAY)
    assert await one(store, c.Prune(FAR + DAY, FAR + DAY, 0, 2)) == 5
    assert TODAY not in await list_days(session)
    assert [await store.get_execution(TENANT, made) for made in old] == [None] * 5
    assert await execution(store, young)
    assert await totals(store) == await recount(store)
    assert await store.count_history() == 1


async def test_a_day_with_an_open_execution_is_pruned_row_by_row(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    await ended_execution(store, node, FAR)
    waiting = await add_execution(store, await add_job(store), FAR + 1)
    assert await one(store, c.Prune(FAR + DAY, FAR + DAY, 0, 100)) == 1
    assert TODAY in await list_days(session)
    assert (await execution(store, waiting)).state == "QUEUED"
    assert await totals(store) == await recount(store)


async def test_the_day_in_which_the_age_limit_lies_is_not_dropped(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    made = await ended_execution(store, node, FAR)
    assert await one(store, c.Prune(FAR + HOUR, FAR + HOUR, 0, 100)) == 0
    assert await execution(store, made)
    assert await one(store, c.Prune(FAR + DAY, FAR + DAY, 0, 100)) == 1


async def test_a_day_that_is_being_read_is_dropped_at_the_next_prune_without_a_wait(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    await drop_far(session)
    made = await ended_execution(store, node, FAR)
    async with session.transaction():
        await session.fetch(f"SELECT count(*) FROM {partition_of('executions', TODAY)}")
        await one(store, c.Prune(FAR + DAY, FAR + DAY, 0, 0))
        assert TODAY in await list_days(session)
        assert await execution(store, made)
    await one(store, c.Prune(FAR + DAY, FAR + DAY, 0, 0))
    assert TODAY not in await list_days(session)
    assert await totals(store) == await recount(store)


PROOFS = "SELECT count(*) FROM pg_constraint WHERE conname LIKE 'without_%'"
UNREAD = "is implied by existing constraints"  # the message of PostgreSQL about a table that it need not read


async def test_a_large_default_partition_is_not_read_while_a_day_is_attached(
    store: PostgresStore, node: int, session: asyncpg.Connection, url: str, monkeypatch: pytest.MonkeyPatch
):
    await drop_far(session)
    await ended_execution(store, node, FAR)
    monkeypatch.setattr(partitions, "SCANNED_BYTES", -1)
    async with connected(url) as other:
        said: list[str] = []
        other.add_log_listener(lambda connection, message: said.append(message.message))
        await other.execute("SET client_min_messages = debug1")
        assert await partitions.make_day(other, "BEGIN", TODAY + 2, is_ahead=True)
        await other.execute("SET client_min_messages = notice")
    for table in ("executions_rest", "attempts_rest"):
        assert any(table in line and UNREAD in line for line in said), said
    assert TODAY + 2 in await list_days(session)
    assert await session.fetchval(PROOFS) == 0


async def test_a_large_default_partition_with_rows_of_the_day_keeps_them_and_accepts_more(
    store: PostgresStore, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    await drop_far(session)
    job_id = await add_job(store)
    async with session.transaction():
        await session.fetch("SELECT count(*) FROM executions_rest")
        await add_execution(store, job_id, FAR)
    monkeypatch.setattr(partitions, "SCANNED_BYTES", -1)
    assert not await partitions.make_day(session, "BEGIN", TODAY, is_ahead=True)
    assert await session.fetchval(PROOFS) == 0
    await add_execution(store, job_id, FAR + 1)
    assert await in_rest(session) == 2


@pytest.mark.parametrize(
    "what", ["a day goes", "a day has something open", "a day is read by somebody", "no day is old"]
)
async def test_later_commands_in_the_transaction_of_a_prune_have_the_normal_lock_timeout(
    store: PostgresStore, node: int, session: asyncpg.Connection, url: str, what: str
):
    await drop_far(session)
    await ended_execution(store, node, FAR)
    if what == "a day has something open":
        await add_execution(store, await add_job(store), FAR + 1)
    async with connected(url) as other, session.transaction():
        if what == "a day is read by somebody":
            await session.fetch(f"SELECT count(*) FROM {partition_of('executions', TODAY)}")
        await other.execute("BEGIN; SET LOCAL lock_timeout = '7s'")
        dropped = await drop_day(Statements(other), 0 if what == "no day is old" else FAR + DAY)
        assert dropped == (1 if what == "a day goes" else 0)
        assert await other.fetchval("SHOW lock_timeout") == "7s"
        await other.execute("ROLLBACK")


async def test_an_ended_execution_stays_in_its_database_page(url: str, session: asyncpg.Connection):
    """A HOT update: no index entry is written when an execution ends."""
    table = partition_of("executions", NOW // DAY)
    figures = f"SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = '{table}'"
    before = await session.fetchrow(figures)
    store = patient_store(url)
    await store.start()
    node = await one(store, c.StartNode(NOW, "node-1"))
    for _ in range(40):
        await add_job(store, spec("immediate"))
    _, claims = await fire(store, node, NOW)
    await finish(store, node, NOW, *map(ended, claims))
    await store.stop()  # a backend reports its statistics when it ends
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (after := await session.fetchrow(figures))[0] < before[0] + 40:
            pass
    assert after[1] - before[1] >= 38, "at most a row or two at the end of a page may have had to move"
