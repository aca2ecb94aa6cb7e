"""Connections that break, servers that fall silent, locks that are held: nothing is lost, doubled or waits forever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from duetime.domain import commands as c
from duetime.domain.errors import Overloaded, TimedOut
from duetime.domain.instants import MINUTE
from duetime.domain.states import State
from duetime.ports.store import JobQuery, Store
from duetime.store.postgres import PostgresStore, StoreUnusable
from duetime.store.postgres.writer import MOST_COMMANDS_A_COMMIT, WRITER_CONNECTIONS
from patience import PATIENCE_SECONDS
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    decide,
    executions_of,
    fire,
    job_of,
    new_job,
    one,
    spec,
)
from snapshot import recount, totals
from store.proxy import Proxy

TIMEOUT = 1.0  # for tests that wait for it
DOUBTING = 16.0  # the tests wait for half of it; a busy machine must respond in the other half
ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duetime' AND datname = $1"


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store that reaches its server through the proxy."""
    async with proxy.serving() as url:
        made = PostgresStore(url, op_timeout_seconds=PATIENCE_SECONDS)
        await made.start()
        yield made
        await made.stop()


@pytest.fixture
async def doubting(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """Returns a store that waits some seconds for the reply to a COMMIT before it reads the outcome."""
    async with proxy.serving() as url:
        made = PostgresStore(url, op_timeout_seconds=DOUBTING)
        await made.start()
        yield made
        await made.stop()


@pytest.fixture
async def hasty(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store that waits a second for a response."""
    async with proxy.serving() as url:
        made = PostgresStore(url, op_timeout_seconds=TIMEOUT)
        await made.start()
        yield made
        proxy.is_deaf = False
        await made.stop()


async def recovered(store: PostgresStore, command: c.Command) -> Any:
    """Returns the result of a command that is repeated until the store accepts it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await one(store, command)
            except Overloaded:
                continue


async def fire_when(store: Store, node: int, trap: Any) -> c.Fired:
    """Fires the timers due at NOW + MINUTE, after a fault was prepared."""
    timers = await store.list_due_timers(NOW + MINUTE, 10)
    page = decide(timers, NOW + MINUTE)
    trap()
    fired = await one(store, c.Fire(node, NOW + MINUTE, True, tuple(page.moves), tuple(page.executions)))
    assert isinstance(fired, c.Fired)
    return fired


# Commits in doubt


async def test_a_commit_whose_response_was_lost_is_found_and_not_repeated(behind: PostgresStore, proxy: Proxy):
    job_id = await add_job(behind)
    node = await one(behind, c.StartNode(NOW, "node-1"))
    fired = await fire_when(behind, node, lambda: setattr(proxy, "swallow_answer_to", b"COMMIT\0"))
    assert proxy.cuts == 1
    assert fired == c.Fired()
    assert [e.state for e in await executions_of(behind, job_id)] == [State.RUNNING]
    assert (await job_of(behind, job_id)).fired == 1
    assert await totals(behind) == await recount(behind)


async def test_a_commit_that_never_arrived_is_repeated(doubting: PostgresStore, proxy: Proxy):
    job_id = await add_job(doubting)
    node = await one(doubting, c.StartNode(NOW, "node-1"))
    fired = await fire_when(doubting, node, lambda: setattr(proxy, "swallow_before", b"COMMIT\0"))
    assert proxy.cuts == 1
    assert fired == c.Fired()
    assert [e.state for e in await executions_of(doubting, job_id)] == [State.RUNNING]
    assert (await job_of(doubting, job_id)).fired == 1
    assert await totals(doubting) == await recount(doubting)


@pytest.mark.parametrize("trap", ["swallow_answer_to", "swallow_before"])
async def test_a_create_in_doubt_is_stored_once_and_gets_a_response(doubting: PostgresStore, proxy: Proxy, trap: str):
    await add_job(doubting)
    setattr(proxy, trap, b"COMMIT\0")
    jobs = [new_job() for _ in range(3)]
    assert await doubting.apply([c.CreateJobs(NOW, (job,)) for job in jobs]) == [None, None, None]
    assert proxy.cuts == 1
    assert await doubting.count_jobs(JobQuery(TENANT)) == 4
    assert await totals(doubting) == await recount(doubting)


async def test_a_claim_in_doubt_is_returned_to_the_node_that_made_it(behind: PostgresStore, proxy: Proxy):
    made = await add_execution(behind, await add_job(behind))
    node = await one(behind, c.StartNode(NOW, "node-1"))
    proxy.swallow_answer_to = b"COMMIT\0"
    (claim,) = await claim_waiting(behind, node, NOW)
    assert (claim.execution_id, claim.attempt, claim.token) == (made, 1, 1)


# Lost connections


async def test_a_store_continues_after_all_its_connections_were_closed(
    store: PostgresStore, node: int, session: asyncpg.Connection, url: str
):
    job_id = await add_job(store)
    database = await session.fetchval("SELECT current_database()")
    for _ in range(3):
        assert await session.fetch(ENDED, database)
        assert (await job_of(store, job_id)).job_id == job_id
        await add_job(store)
    assert await store.count_jobs(JobQuery(TENANT)) == 4
    assert await store.check() is None


async def test_a_backend_that_ends_during_a_write_leaves_nothing_and_raises_overloaded(
    store: PostgresStore, session: asyncpg.Connection
):
    job_id = await add_job(store)
    async with session.transaction():
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", job_id)
        paused = asyncio.ensure_future(one(store, c.PauseJob(NOW, TENANT, job_id, "ann", "")))
        pid = await waiting_for(session)
        await session.execute("SELECT pg_terminate_backend($1, 5000)", pid)
        pid = await waiting_for(session, but=pid)  # it was tried a second time, with another connection
        await session.execute("SELECT pg_terminate_backend($1, 5000)", pid)
        with pytest.raises(Overloaded, match="nothing was changed") as raised:
            await paused
    assert raised.value.retry_after > 0
    assert (await job_of(store, job_id)).version == 1


async def waiting_for(session: asyncpg.Connection, but: int = 0) -> int:
    """Returns the backend that waits for a lock of this session."""
    query = "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) AND pid <> $1"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (pid := await session.fetchval(query, but)) is None:
            await session.execute("SELECT pg_stat_clear_snapshot()")  # a transaction caches its statistics
    return int(pid)


async def test_a_missing_server_is_reported_at_the_start(tmp_path: Any):
    store = PostgresStore(f"postgresql://postgres@/nowhere?host={tmp_path}", op_timeout_seconds=TIMEOUT)
    with pytest.raises(StoreUnusable, match=r"can't be used: .*Is the server running"):
        await store.start()


# Timeouts


async def test_an_operation_on_a_silent_server_times_out(hasty: PostgresStore, proxy: Proxy):
    job_id = await add_job(hasty)
    for _ in range(WRITER_CONNECTIONS):  # each writer in turn has a connection now
        await add_job(hasty)
    await hasty.get_job(TENANT, job_id)
    await hasty.list_due_timers(NOW, 1)
    proxy.is_deaf = True
    for ask in (
        hasty.get_job(TENANT, job_id),
        hasty.list_due_timers(NOW + MINUTE, 10),
        one(hasty, c.CreateJobs(NOW, (new_job(),))),
    ):
        with pytest.raises(Overloaded):
            await asyncio.wait_for(ask, PATIENCE_SECONDS)
    assert "the last write failed" in str(await hasty.check())
    proxy.is_deaf = False
    assert await recovered(hasty, c.CreateJobs(NOW, (new_job(),))) is None
    assert (await job_of(hasty, job_id)).job_id == job_id
    assert await hasty.check() is None


async def test_a_write_that_waits_behind_others_times_out_too(hasty: PostgresStore, proxy: Proxy):
    job_id = await add_job(hasty)
    proxy.is_deaf = True
    waits: list[float] = []

    async def pause() -> None:
        began = time.monotonic()
        with pytest.raises(Overloaded):
            await one(hasty, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
        waits.append(time.monotonic() - began)

    more = 10 * WRITER_CONNECTIONS * MOST_COMMANDS_A_COMMIT  # than all connections take at once
    await asyncio.gather(*(pause() for _ in range(more)))
    assert max(waits) < 5 * min(waits), "in turns, the last would wait ten times as long as the first"
    proxy.is_deaf = False
    assert await recovered(hasty, c.PauseJob(NOW, TENANT, job_id, "ann", "")) == "PAUSED"


async def test_a_statement_that_hangs_ends_on_the_server_too(url: str, session: asyncpg.Connection):
    store = PostgresStore(url, op_timeout_seconds=TIMEOUT)
    await store.start()
    job_id = await add_job(store)
    async with session.transaction():
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", job_id)
        with pytest.raises(TimedOut, match="did not respond in time, nothing was changed"):
            await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await session.fetchval(blocked):
                await session.execute("SELECT pg_stat_clear_snapshot()")
    assert await recovered(store, c.PauseJob(NOW, TENANT, job_id, "ann", "")) == "PAUSED"
    await store.stop()


async def test_a_server_without_a_free_connection_raises_overloaded_and_not_a_refusal(
    session: asyncpg.Connection, url: str
):
    await session.execute("""
        DO $$ BEGIN CREATE ROLE visitor LOGIN PASSWORD 'visitor' CONNECTION LIMIT 10;
        EXCEPTION WHEN duplicate_object THEN END $$;
        GRANT ALL ON ALL TABLES IN SCHEMA public TO visitor""")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    store = PostgresStore(urlunsplit(parts._replace(netloc=f"visitor:visitor@{host}")), op_timeout_seconds=TIMEOUT)
    await store.start()
    assert await one(store, c.StartNode(NOW, "node-1"))
    await session.execute(
        "ALTER ROLE visitor CONNECTION LIMIT 1; "
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'visitor'"
    )
    assert await store.count_jobs(JobQuery(TENANT)) == 0  # through the one connection that is left
    with pytest.raises(Overloaded, match="has no connection left, nothing was changed") as raised:
        await one(store, c.CreateJobs(NOW, (new_job(),)))
    assert raised.value.retry_after > 0
    await session.execute("ALTER ROLE visitor CONNECTION LIMIT 10")
    assert await one(store, c.CreateJobs(NOW, (new_job(),))) is None
    await store.stop()


# Locks


async def test_a_deadlock_is_retried_without_an_error(store: PostgresStore, session: asyncpg.Connection):
    first, second = sorted([await add_job(store), await add_job(store)])
    await session.execute("SET deadlock_timeout = '10s'")  # the other session has to detect the deadlock
    async with session.transaction():
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", second)
        pausing = asyncio.ensure_future(
            store.apply([c.PauseJob(NOW, TENANT, job_id, "ann", "") for job_id in (first, second)])
        )
        await waiting_for(session)
        # The store holds the first and waits for the second; now each waits for the other.
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", first)
    assert await pausing == ["PAUSED", "PAUSED"]


async def test_writes_that_share_jobs_in_any_order_never_wait_for_each_other(
    store: PostgresStore, other: PostgresStore, session: asyncpg.Connection
):
    jobs = [await add_job(store, spec(overlap="allow")) for _ in range(20)]
    before = await session.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

    async def churn(which: PostgresStore, order: list[str]) -> None:
        for number in range(10):
            commands = [
                c.PauseJob(NOW, TENANT, job_id, "ann", "") if number % 2 == 0 else c.CancelJob(NOW, TENANT, job_id)
                for job_id in order
            ]
            await which.apply(commands)

    await asyncio.gather(churn(store, jobs), churn(other, jobs[::-1]), churn(store, jobs[::2] + jobs[1::2]))
    after = await session.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert after == before


async def test_many_writes_at_once_share_few_commits(behind: PostgresStore, proxy: Proxy):
    await add_job(behind)
    proxy.commits = 0
    answers = await asyncio.gather(*(one(behind, c.CreateJobs(NOW, (new_job(),))) for _ in range(200)))
    assert answers == [None] * 200
    assert 1 <= proxy.commits <= 10


async def test_one_bad_command_among_many_that_share_a_commit_fails_alone(behind: PostgresStore, proxy: Proxy):
    job_id = await add_job(behind)
    node = await one(behind, c.StartNode(NOW, "node-1"))
    proxy.commits = 0
    too_large = new_job(spec(name="x\0y"))
    answers = await asyncio.gather(
        one(behind, c.PauseJob(NOW, TENANT, job_id, "ann", "")),
        one(behind, c.CreateJobs(NOW, (too_large,))),
        one(behind, c.ClaimExecutions(node + 1, NOW, 1, (TENANT,))),
        one(behind, c.CreateJobs(NOW, (new_job(),))),
    )
    assert [type(answer).__name__ for answer in answers] == ["JobStatus", "Conflict", "StaleWrite", "NoneType"]
    assert proxy.commits <= 2
    assert await totals(behind) == await recount(behind)


async def test_a_fire_survives_a_restart_of_every_connection(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store)
    database = await session.fetchval("SELECT current_database()")
    await session.fetch(ENDED, database)
    await fire(store, node, NOW + MINUTE)
    assert len(await executions_of(store, job_id)) == 1
