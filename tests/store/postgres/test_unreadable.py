"""A definition that can't be read, as a newer version could have written it: others are not affected."""

from __future__ import annotations

import asyncpg
import pytest

from duetime.domain.commands import PauseJob, StartNode
from duetime.domain.errors import Conflict
from duetime.domain.instants import MINUTE
from duetime.domain.job import JobStatus
from duetime.domain.states import ErrorType, State
from duetime.ports.store import JobQuery
from duetime.store.postgres import PostgresStore
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, execution, one
from snapshot import recount, totals


async def spoil(session: asyncpg.Connection, job_id: str) -> None:
    await session.execute(
        "UPDATE jobs SET spec = rtrim(spec, '}') || '},\"moon_phase\":\"full\"}' WHERE id = $1", job_id
    )


async def test_an_unreadable_due_job_is_listed_separately_and_shown_with_the_reason(
    store: PostgresStore, session: asyncpg.Connection
):
    jobs = [await add_job(store) for _ in range(3)]
    await spoil(session, jobs[1])
    for _ in range(2):  # a read writes nothing
        timers = await store.list_due_timers(NOW + MINUTE, 10)
        assert [timer.job_id for timer in timers] == [jobs[0], jobs[2]]
        ((job_id, tenant, error),) = timers.unreadable
        assert (job_id, tenant) == (jobs[1], TENANT)
    await one(store, PauseJob(NOW, tenant, job_id, "duetime", error))
    assert (await store.list_due_timers(NOW + MINUTE, 10)).unreadable == ()
    listed = {job.job_id: job for job in await store.list_jobs(JobQuery(TENANT))}
    assert sorted(listed) == jobs
    spoilt = listed[jobs[1]]
    assert (spoilt.status, spoilt.due_at, spoilt.resume_at) == (JobStatus.PAUSED, None, NOW + MINUTE)
    assert (spoilt.spec.name, spoilt.paused_by) == ("report", "duetime")
    assert "moon_phase" in spoilt.spec.description
    with pytest.raises(Conflict, match="moon_phase"):
        await store.get_job(TENANT, jobs[1])


async def test_an_unreadable_waiting_execution_becomes_a_dead_letter_and_the_others_run(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    jobs = [await add_job(store) for _ in range(3)]
    made = [await add_execution(store, job_id) for job_id in jobs]
    await spoil(session, jobs[1])
    assert [claim.execution_id for claim in await claim_waiting(store, node, NOW)] == [made[0], made[2]]
    found = await execution(store, made[1])
    assert (found.state, found.dead, found.error_type) == (State.FAILED, True, ErrorType.INTERNAL_ERROR)
    assert await totals(store) == await recount(store)


async def test_an_unreadable_expired_claim_is_listed_separately(
    store: PostgresStore, node: int, session: asyncpg.Connection
):
    jobs = [await add_job(store) for _ in range(3)]
    made = [await add_execution(store, job_id) for job_id in jobs]
    await claim_waiting(store, node, NOW)
    await spoil(session, jobs[1])
    successor = await one(store, StartNode(NOW, "node-1"))
    expired = await store.list_expired_claims(successor, 10)
    assert {claim.execution_id for claim in expired} == {made[0], made[2]}
    (apart,) = expired.unreadable
    assert apart[:5] == (made[1], jobs[1], TENANT, 1, 1)
    assert "moon_phase" in apart.error
    assert (await execution(store, made[1])).state is State.RUNNING, "a read writes nothing"
