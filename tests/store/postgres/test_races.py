"""Two nodes write the same row at the same time: a lock of the test causes each race."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from duetime.domain import commands as c
from duetime.domain.errors import StaleEpoch, StaleWrite
from duetime.domain.ids import shard_of
from duetime.domain.instants import DAY, HOUR, MINUTE
from duetime.domain.job import JobStatus
from duetime.domain.states import State
from duetime.store.postgres import PostgresStore
from patience import PATIENCE_SECONDS
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    decide,
    due_timers,
    ended,
    execution,
    executions_of,
    finish,
    fire,
    job_of,
    new_job,
    one,
    planned_id,
    spec,
)
from snapshot import recount, totals

DUE = NOW + MINUTE


async def waiters(session: asyncpg.Connection) -> int:
    """Returns how many backends of the stores wait for a lock."""
    await session.execute("SELECT pg_stat_clear_snapshot()")
    return int(
        await session.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'duetime' AND wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
    )


async def until_waiting(session: asyncpg.Connection, count: int, *writes: asyncio.Future[Any]) -> None:
    """Waits until this many backends of the stores wait, or one of the writes has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await waiters(session) < count and not any(write.done() for write in writes):
            pass


@asynccontextmanager
async def locked_timer(session: asyncpg.Connection, job_id: str) -> AsyncIterator[None]:
    async with session.transaction():
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", job_id)
        yield


async def fire_of(store: PostgresStore, node: int, *epochs: tuple[int, int]) -> c.Fire:
    page = decide(await due_timers(store, DUE), DUE)
    return c.Fire(node, DUE, True, tuple(page.moves), tuple(page.executions), tuple(page.skips), epochs)


@pytest.mark.parametrize("deed", ["fence", "end"])
async def test_no_node_takes_over_between_an_owners_check_and_its_commit(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection, deed: str
):
    job_id = await add_job(store)
    shard = shard_of(job_id)
    await one(store, c.FenceShards(node, ((shard, 1),)))
    successor = await one(other, c.StartNode(NOW, "node-2"))
    command = await fire_of(store, node, (shard, 1))
    takeover = c.FenceShards(successor, ((shard, 2),)) if deed == "fence" else c.FenceNodes(NOW, (node,))
    async with locked_timer(session, job_id):
        firing = asyncio.ensure_future(one(store, command))
        await until_waiting(session, 1, firing)  # it has passed the check, and waits for its timer
        taking = asyncio.ensure_future(one(other, takeover))
        await until_waiting(session, 2, firing, taking)
        assert not taking.done(), "the new owner was let in before the old one's fire was committed"
    assert await firing == c.Fired()
    assert await taking == (None if deed == "fence" else [node])
    assert isinstance(await one(store, command), StaleEpoch if deed == "fence" else StaleWrite)
    assert len(await executions_of(store, job_id)) == 1


async def test_a_fire_during_the_takeover_of_its_shard_waits_and_is_refused(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store)
    shard = shard_of(job_id)
    await one(store, c.FenceShards(node, ((shard, 1),)))
    command = await fire_of(store, node, (shard, 1))
    async with session.transaction():
        await session.execute("UPDATE shard_epochs SET epoch = 2, node = 999 WHERE shard = $1", shard)
        firing = asyncio.ensure_future(one(store, command))
        await until_waiting(session, 1, firing)
        assert not firing.done()
    assert isinstance(await firing, StaleEpoch)
    assert await executions_of(store, job_id) == []


async def test_a_claim_while_its_node_is_being_fenced_waits_and_is_refused(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    made = await add_execution(store, await add_job(store))
    async with session.transaction():
        await session.execute("UPDATE nodes SET ended_at = 1 WHERE id = $1", node)
        claiming = asyncio.ensure_future(one(store, c.ClaimExecutions(node, NOW, 10, (TENANT,))))
        await until_waiting(session, 1, claiming)
        assert not claiming.done()
    assert isinstance(await claiming, StaleWrite)
    assert (await execution(store, made)).state is State.QUEUED


async def test_two_stores_never_claim_the_same_execution(store: PostgresStore, other: PostgresStore, node: int):
    jobs = [await add_job(store, spec(priority=n % 10, url=f"https://h{n % 3}.example/x")) for n in range(20)]
    made = [await add_execution(store, job_id, NOW - n) for n in range(10) for job_id in jobs]
    second = await one(other, c.StartNode(NOW, "node-2"))

    async def drain(which: PostgresStore, by: int, limit: int, full: tuple[int, ...]) -> list[str]:
        taken: list[str] = []
        while claims := await claim_waiting(which, by, NOW, limit, full):
            taken += [claim.execution_id for claim in claims]
        return taken

    takes = await asyncio.gather(
        drain(store, node, 7, ()),
        drain(other, second, 5, ()),
        drain(store, node, 3, (1,)),
        drain(other, second, 11, (1,)),
    )
    assert sorted(execution_id for taken in takes for execution_id in taken) == sorted(made)
    assert await totals(store) == await recount(store)


async def test_a_claim_skips_executions_that_another_claim_has_locked(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store)
    made = [await add_execution(store, job_id, NOW - 10 + n) for n in range(3)]
    async with session.transaction():
        await session.execute("SELECT 1 FROM open_runs WHERE execution = $1 FOR UPDATE", made[0])
        assert [claim.execution_id for claim in await claim_waiting(store, node, NOW)] == made[1:]
    assert [claim.execution_id for claim in await claim_waiting(store, node, NOW)] == made[:1]


@pytest.mark.parametrize("first", ["finish", "fire"])
async def test_an_execution_held_for_one_that_ends_at_the_same_time_is_not_left_waiting(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection, first: str
):
    job_id = await add_job(store, spec(overlap="queue_all"))
    _, (claim,) = await fire(store, node, DUE)
    page = decide(await due_timers(store, DUE + MINUTE), DUE + MINUTE)
    firing_of = c.Fire(node, DUE + MINUTE, False, tuple(page.moves), tuple(page.executions))
    ending_of = c.Finish(node, DUE, (ended(claim, now=DUE),))
    async with locked_timer(session, job_id):
        order = (
            [(store, ending_of), (other, firing_of)] if first == "finish" else [(other, firing_of), (store, ending_of)]
        )
        writes: list[asyncio.Future[Any]] = []
        for which, command in order:
            writes.append(asyncio.ensure_future(one(which, command)))
            await until_waiting(session, len(writes), *writes)
    await asyncio.gather(*writes)
    (following,) = await claim_waiting(store, node, DUE + HOUR)
    assert following.execution_id == planned_id(job_id, DUE + MINUTE)
    assert await totals(store) == await recount(store)


async def test_a_job_whose_last_two_executions_end_at_the_same_time_is_completed(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    await add_execution(store, job_id)
    (manual,) = await claim_waiting(store, node, NOW)
    async with locked_timer(session, job_id):
        writes = [
            asyncio.ensure_future(finish(which, node, NOW, ended(one_of)))
            for which, one_of in ((store, claim), (other, manual))
        ]
        await until_waiting(session, 2, *writes)
    assert await asyncio.gather(*writes) == [[], []]
    job = await job_of(store, job_id)
    assert (job.status, job.runs) == (JobStatus.COMPLETED, 2)


async def test_a_job_that_gets_an_execution_while_its_last_one_ends_is_not_completed(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    async with locked_timer(session, job_id):
        adding = asyncio.ensure_future(add_execution(other, job_id))
        await until_waiting(session, 1, adding)
        ending = asyncio.ensure_future(finish(store, node, NOW, ended(claim)))
        await until_waiting(session, 2, adding, ending)
    assert await ending == []
    job = await job_of(store, job_id)
    assert (job.status, job.runs) == (JobStatus.PENDING, 1)
    (manual,) = await claim_waiting(store, node, NOW)
    assert manual.execution_id == await adding
    assert await finish(store, node, NOW, ended(manual)) == []
    job = await job_of(store, job_id)
    assert (job.status, job.runs) == (JobStatus.COMPLETED, 2)
    assert await totals(store) == await recount(store)


async def test_an_execution_that_is_claimed_while_its_job_is_purged_is_not_lost(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store)
    made = await add_execution(store, job_id)
    async with session.transaction():
        await session.execute("UPDATE open_runs SET state = 'RUNNING', node = $1 WHERE execution = $2", node, made)
        purging = asyncio.ensure_future(one(other, c.PurgeJob(TENANT, job_id)))
        await until_waiting(session, 1, purging)
    assert "has a running execution" in str(await purging)
    assert (await execution(store, made)).state is State.RUNNING


async def test_two_stores_that_fire_one_timer_fire_it_once(
    store: PostgresStore, other: PostgresStore, node: int, session: asyncpg.Connection
):
    job_id = await add_job(store)
    command = await fire_of(store, node)
    async with locked_timer(session, job_id):
        writes = [asyncio.ensure_future(one(which, command)) for which in (store, other)]
        await until_waiting(session, 2, *writes)
    answers = await asyncio.gather(*writes)
    assert sorted(len(answer.stale_jobs) for answer in answers) == [0, 1]
    assert len(await executions_of(store, job_id)) == 1
    assert (await job_of(store, job_id)).fired == 1


async def test_totals_are_exact_with_any_number_of_writers(store: PostgresStore, other: PostgresStore):
    tenants = [TENANT, "other"]
    for _ in range(10):
        await add_job(store)  # each connection in turn, and more than once
    await asyncio.gather(
        *(
            one(which, c.CreateJobs(NOW, (new_job(tenant=tenant),)))
            for which in (store, other)
            for tenant in tenants
            for _ in range(40)
        )
    )
    for tenant in tenants:
        assert await totals(other, tenant) == await recount(store, tenant)
    assert [(await totals(store, tenant))["jobs"] for tenant in tenants] == [90, 80]


async def test_a_sweep_during_writes_does_not_change_a_total(store: PostgresStore, session: asyncpg.Connection):
    """The sum of its rows is 0, but only with a row that another transaction has locked: then none may be removed."""
    await session.execute("INSERT INTO counters VALUES ('gone', 'jobs', 0, 1, 5), ('gone', 'jobs', 0, 2, -5)")
    sweep = c.SweepCounters(NOW + 40 * DAY, ("", "", 0), 100)
    async with session.transaction():
        await session.execute("UPDATE counters SET value = value + 1 WHERE tenant = 'gone' AND slot = 2")
        assert await one(store, sweep) == c.SweptRows(0, None)
    assert await session.fetchval("SELECT sum(value) FROM counters WHERE tenant = 'gone'") == 1
    await session.execute("UPDATE counters SET value = value - 1 WHERE tenant = 'gone' AND slot = 2")
    assert await one(store, sweep) == c.SweptRows(2, None)


async def test_a_limit_in_use_by_another_transaction_is_not_swept(store: PostgresStore, session: asyncpg.Connection):
    await session.execute("INSERT INTO limits VALUES ('acme', 'ann', 'requests', 0), ('acme', 'bob', 'requests', 0)")
    async with session.transaction():
        await session.execute("UPDATE limits SET full_at = 2 ^ 60 WHERE user_id = 'ann'")
        assert await one(store, c.SweepLimits(NOW, ("", "", ""), 100)) == c.SweptRows(1, None)
    assert await session.fetch("SELECT user_id FROM limits") == [("ann",)]
