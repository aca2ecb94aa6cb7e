"""An execution whose circuit is open is not sent: it does not count, and completes its job if it was the only one."""

from __future__ import annotations

import pytest

from duetime.domain import commands as c
from duetime.domain.execution import AttemptEnd, Claim, Outcome
from duetime.domain.instants import DAY, HOUR, MINUTE
from duetime.domain.job import JobStatus
from duetime.domain.states import ErrorType, State
from duetime.ports.store import Store
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    executions_of,
    finish,
    fire,
    job_of,
    one,
    spec,
)

DUE = NOW + MINUTE  # when `every 1m` is first due
CIRCUIT_OPEN = Outcome(ErrorType.CIRCUIT_OPEN, "the circuit is open")


def not_sent(claim: Claim, now: int) -> AttemptEnd:
    return ended(claim, CIRCUIT_OPEN, now=now)


async def fire_and_skip(store: Store, node: int, now: int) -> Claim:
    _, (claim,) = await fire(store, node, now)
    assert await finish(store, node, now, not_sent(claim, now)) == []
    return claim


async def test_a_one_off_that_is_not_sent_is_completed_and_swept(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    await fire_and_skip(store, node, NOW)
    (found,) = await executions_of(store, job_id)
    assert (found.state, found.reason) == (State.SKIPPED, "circuit_open")
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    await one(store, c.Prune(NOW + DAY, NOW + DAY, NOW + DAY, 100))
    assert await one(store, c.SweepJobs(NOW + DAY, NOW + HOUR, "0" * 8 + "-0000-0000-0000-" + "0" * 12, 100)) == (
        c.Swept(1, None, ((job_id, TENANT),))
    )
    assert await store.get_job(TENANT, job_id) is None


async def test_a_one_off_that_is_not_sent_is_completed_in_a_page_with_others(store: Store, node: int):
    jobs = [await add_job(store, spec("immediate")) for _ in range(3)]
    _, claims = await fire(store, node, NOW)
    first, second, third = claims
    failed = ended(second, Outcome(ErrorType.TIMEOUT), now=NOW)  # it is retried
    await finish(store, node, NOW, not_sent(first, NOW), failed, ended(third))
    statuses = {claim.job_id: (await job_of(store, claim.job_id)).status for claim in claims}
    assert statuses == {
        first.job_id: JobStatus.COMPLETED, second.job_id: JobStatus.PENDING, third.job_id: JobStatus.COMPLETED,
    }  # fmt: skip
    assert set(jobs) == set(statuses)


async def test_an_execution_that_is_not_sent_does_not_count_towards_max_runs(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=2))
    await fire_and_skip(store, node, DUE)
    assert (await job_of(store, job_id)).fired == 0
    for n in (1, 3):
        _, (claim,) = await fire(store, node, DUE + n * MINUTE)
        await finish(store, node, DUE + n * MINUTE, ended(claim, now=DUE + n * MINUTE))
        if n == 1:
            await fire_and_skip(store, node, DUE + 2 * MINUTE)  # the last planned run
            found = await job_of(store, job_id)
            assert (found.status, found.fired, found.due_at) == (JobStatus.PENDING, 1, DUE + 3 * MINUTE)
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.runs, found.due_at) == (JobStatus.COMPLETED, 2, 2, None)


async def test_a_skipped_last_run_whose_timetable_is_over_completes_the_job(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=1, end_at="2026-01-01T00:01:30Z"))
    await fire_and_skip(store, node, DUE)
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.due_at) == (JobStatus.COMPLETED, 0, None)


async def test_a_manual_execution_that_is_not_sent_returns_no_run(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=2))
    _, (claim,) = await fire(store, node, DUE)
    await finish(store, node, DUE, ended(claim, now=DUE))
    await add_execution(store, job_id, DUE)
    (by_hand,) = await claim_waiting(store, node, DUE)
    await finish(store, node, DUE, not_sent(by_hand, DUE))
    assert (await job_of(store, job_id)).fired == 1


@pytest.mark.parametrize("on_slow_path", [False, True])
async def test_each_of_several_executions_that_are_not_sent_returns_its_run(
    store: Store, node: int, on_slow_path: bool
):
    job_id = await add_job(store, spec("every 1s", overlap="allow", max_runs=3))
    _, claims = await fire(store, node, NOW + 3_000)
    assert len(claims) == 3
    page = [not_sent(claim, NOW + 3_000) for claim in claims]
    if on_slow_path:  # the same result twice: each row is checked separately
        page.append(page[0])
    await finish(store, node, NOW + 3_000, *page)
    found = await job_of(store, job_id)
    assert (found.fired, found.due_at, found.status) == (0, NOW + 4_000, JobStatus.PENDING)


async def test_a_job_that_was_paused_meanwhile_continues_when_it_is_resumed(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=1))
    _, (claim,) = await fire(store, node, DUE)
    await one(store, c.PauseJob(DUE, TENANT, job_id, "ann", ""))
    await finish(store, node, DUE, not_sent(claim, DUE))
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.due_at, found.resume_at) == (JobStatus.PAUSED, 0, None, DUE + MINUTE)


async def test_a_job_that_was_cancelled_meanwhile_stays_cancelled(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=1))
    _, (claim,) = await fire(store, node, DUE)
    await one(store, c.CancelJob(DUE, TENANT, job_id))
    await finish(store, node, DUE, not_sent(claim, DUE))
    found = await job_of(store, job_id)
    assert (found.status, found.due_at) == (JobStatus.CANCELLED, None)


async def test_a_job_that_became_a_one_off_meanwhile_is_not_due_again(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=1))
    _, (claim,) = await fire(store, node, DUE)
    once = spec("2026-01-01T00:01:30Z")
    at = DUE + MINUTE // 2
    assert await one(store, c.ChangeJob(DUE, TENANT, job_id, 1, None, once.name, once.type, False, at, once)) == 2
    await fire(store, node, at)  # skipped, because the first is open
    await finish(store, node, at, not_sent(claim, at))
    found = await job_of(store, job_id)
    assert (found.status, found.due_at) == (JobStatus.COMPLETED, None)
