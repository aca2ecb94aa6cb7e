"""Claim, finish, release, cancel, redrive. Every write of an owner is fenced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.errors import Conflict, NotFound, StaleWrite
from duetime.domain.execution import Claim, Outcome, expire
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import JobStatus, RetryPolicy
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import AttemptRecord, ExecutionQuery, Store
from samples import (
    NOW,
    TENANT,
    URL,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    execution,
    executions_of,
    finish,
    fire,
    job_of,
    new_id,
    one,
    spec,
)
from snapshot import recount, snapshot, totals

LATER = NOW + HOUR
FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500, "oops")
FINAL = Outcome(ErrorType.HTTP_ERROR, "the target answered 404", 404)


async def running(store: Store, node: int, **fields: Any) -> Claim:
    """An execution of a new job, claimed by `node`."""
    job_id = await add_job(store, spec("immediate", **fields))
    _, (claim,) = await fire(store, node, NOW, job_id)
    return claim


# Claim


async def test_a_claim_has_everything_that_the_attempt_needs(store: Store, node: int):
    job = spec(priority=3)
    job_id = await add_job(store, job)
    made = await add_execution(store, job_id)
    assert await claim_waiting(store, node, NOW) == [
        Claim(made, job_id, TENANT, NOW, Trigger.MANUAL, 3, endpoint_of_url(URL), 1, 1, False, job)
    ]
    found = await execution(store, made)
    assert (found.state, found.attempt, found.token, found.worker_id) == (State.RUNNING, 1, 1, "node-1")
    assert await claim_waiting(store, node, NOW) == []
    assert await totals(store) == await recount(store)


async def test_the_highest_priority_is_claimed_first_and_within_it_the_longest_wait(store: Store, node: int):
    expected = []
    for priority, wait in ((5, 1), (0, 9), (9, 2), (5, 3), (9, 1), (1, 9)):
        job_id = await add_job(store, spec(priority=priority))
        expected.append((-priority, NOW - wait, await add_execution(store, job_id, NOW - wait)))
    claimed = [claim.execution_id for _ in range(3) for claim in await claim_waiting(store, node, NOW, limit=2)]
    assert claimed == [execution_id for _, _, execution_id in sorted(expected)]


async def test_no_more_than_the_limit_is_claimed(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(5):
        await add_execution(store, job_id, NOW + n)
    assert [len(await claim_waiting(store, node, LATER, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_an_execution_is_not_claimed_before_its_instant(store: Store, node: int):
    job_id = await add_job(store, spec(retry_policy=RetryPolicy(delays=(60,))))
    await add_execution(store, job_id)
    (claim,) = await claim_waiting(store, node, NOW)
    await finish(store, node, NOW, ended(claim, FAILURE))
    assert await store.next_waiting_at() == NOW + MINUTE
    assert await claim_waiting(store, node, NOW + MINUTE - 1) == []
    (again,) = await claim_waiting(store, node, NOW + MINUTE)
    assert (again.execution_id, again.attempt, again.token) == (claim.execution_id, 2, 2)


async def test_an_execution_that_is_due_later_does_not_hide_a_due_one_of_lower_priority(store: Store, node: int):
    urgent = await add_job(store, spec(priority=9, retry_policy=RetryPolicy(delays=(600,))))
    await add_execution(store, urgent)
    (claim,) = await claim_waiting(store, node, NOW)
    await finish(store, node, NOW, ended(claim, FAILURE))
    made = await add_execution(store, await add_job(store, spec(priority=0)), NOW)
    assert await store.next_waiting_at() == NOW
    assert [claim.execution_id for claim in await claim_waiting(store, node, NOW)] == [made]


async def test_full_endpoints_are_excluded(store: Store, node: int):
    full = "https://full.example/x"
    await add_execution(store, await add_job(store, spec(url=full, priority=9)))
    made = await add_execution(store, await add_job(store))
    assert [claim.execution_id for claim in await claim_waiting(store, node, NOW, full=(endpoint_of_url(full),))] == [
        made
    ]
    assert len(await claim_waiting(store, node, NOW)) == 1


async def test_the_highest_priority_is_claimed_first_when_an_endpoint_is_full(store: Store, node: int):
    full = "https://full.example/x"
    for priority in (9, 5):
        await add_execution(store, await add_job(store, spec(url=full, priority=priority)), NOW - MINUTE)
    expected = []
    for priority, host, wait in ((5, "a", 1), (0, "b", 9), (9, "c", 2), (5, "b", 3), (9, "a", 1), (5, "b", 2)):
        job_id = await add_job(store, spec(url=f"https://{host}.example", priority=priority))
        expected.append((-priority, NOW - wait, await add_execution(store, job_id, NOW - wait)))
    later = await add_job(store, spec(url="https://a.example", priority=9))
    await add_execution(store, later, NOW + 1)
    claimed = [
        r.execution_id for _ in range(4) for r in await claim_waiting(store, node, NOW, 2, (endpoint_of_url(full),))
    ]
    assert claimed == [execution_id for _, _, execution_id in sorted(expected)]


async def test_two_concurrent_claims_do_not_overlap(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(10):
        await add_execution(store, job_id, NOW - n)
    other = await one(store, c.StartNode(NOW, "node-2"))
    first, second = await store.apply(
        [c.ClaimExecutions(node, NOW, 6, (TENANT,)), c.ClaimExecutions(other, NOW, 6, (TENANT,))]
    )
    assert (len(first), len(second)) == (6, 4)
    assert not {claim.execution_id for claim in first} & {claim.execution_id for claim in second}


async def test_a_fenced_node_may_not_claim(store: Store, node: int):
    await add_execution(store, await add_job(store))
    await one(store, c.StopNode(NOW, node))
    before = await snapshot(store)
    assert isinstance(await one(store, c.ClaimExecutions(node, NOW, 10, (TENANT,))), StaleWrite)
    assert await snapshot(store) == before


# Finish


async def test_a_success_ends_the_execution_and_is_counted_for_the_job(store: Store, node: int):
    claim = await running(store, node)
    attempt = ended(claim, Outcome(http_status=201, response="made ]"), started_at=NOW + 30, now=NOW + 80)
    assert await finish(store, node, NOW + 90, attempt) == []
    found = await execution(store, claim.execution_id)
    assert (found.state, found.started_at, found.ended_at, found.http_status, found.response, found.dead) == (
        State.COMPLETED, NOW + 30, NOW + 80, 201, "made ]", False,
    )  # fmt: skip
    assert await store.list_attempts(claim.execution_id) == [
        AttemptRecord(1, "node-1", NOW + 30, NOW + 80, None, None, 201, None, "made ]")
    ]
    job = await job_of(store, claim.job_id)
    assert (job.runs, job.successes, job.failures, job.busy_ms) == (1, 1, 0, 50)
    assert (job.last_run_at, job.last_state, job.status) == (NOW + 80, State.COMPLETED, JobStatus.COMPLETED)
    assert await totals(store) == await recount(store)


async def test_a_retried_failure_waits_and_does_not_count_as_a_run_yet(store: Store, node: int):
    claim = await running(store, node)
    assert await finish(store, node, NOW, ended(claim, FAILURE)) == []
    found = await execution(store, claim.execution_id)
    assert (found.state, found.due_at, found.attempt, found.token) == (State.RETRYING, NOW + 10 * SECOND, 1, 1)
    assert (found.ended_at, found.error_type, found.error_message, found.http_status) == (
        None, ErrorType.HTTP_ERROR, "the target answered 500", 500,
    )  # fmt: skip
    job = await job_of(store, claim.job_id)
    assert (job.runs, job.failures, job.last_state, job.status) == (0, 0, None, JobStatus.PENDING)
    assert await totals(store) == await recount(store)


@pytest.mark.parametrize("deed", ["execution", "job"])
async def test_a_cancelled_running_execution_is_not_retried(store: Store, node: int, deed: str):
    claim, other = await running(store, node), await running(store, node)
    command: c.Command = {
        "execution": c.CancelExecution(NOW, TENANT, claim.execution_id),
        "job": c.CancelJob(NOW, TENANT, claim.job_id),
    }[deed]
    await one(store, command)
    assert await finish(store, node, NOW, ended(claim, FAILURE), ended(other, FAILURE)) == []
    found = await execution(store, claim.execution_id)
    assert (found.state, found.ended_at, found.dead, found.error_type) == (
        State.CANCELLED, NOW, False, ErrorType.HTTP_ERROR,
    )  # fmt: skip
    assert (await execution(store, other.execution_id)).state is State.RETRYING
    job = await job_of(store, claim.job_id)
    assert (job.runs, job.successes, job.failures, job.last_state) == (1, 0, 0, State.CANCELLED)
    assert job.status is (JobStatus.CANCELLED if deed == "job" else JobStatus.COMPLETED)
    assert await totals(store) == await recount(store)


async def test_a_cancelled_running_execution_can_still_succeed(store: Store, node: int):
    claim = await running(store, node)
    await one(store, c.CancelExecution(NOW, TENANT, claim.execution_id))
    await finish(store, node, NOW, ended(claim))
    assert (await execution(store, claim.execution_id)).state is State.COMPLETED


async def test_a_clock_set_back_during_an_attempt_does_not_shorten_the_time_of_its_job(store: Store, node: int):
    claim = await running(store, node)
    attempt = msgspec.structs.replace(ended(claim), started_at=NOW + 500, ended_at=NOW)
    await finish(store, node, NOW, attempt)
    assert (await job_of(store, claim.job_id)).busy_ms == 0


async def test_an_execution_never_ends_before_its_start_although_the_clock_was_set_back(store: Store, node: int):
    claim = await running(store, node, retry_policy=RetryPolicy(delays=(0,)))
    await finish(store, node, LATER, ended(claim, FAILURE, now=LATER))
    (again,) = await claim_waiting(store, node, LATER)
    await finish(store, node, NOW, ended(again, now=NOW))
    found = await execution(store, claim.execution_id)
    assert (found.started_at, found.ended_at) == (LATER, LATER)


async def test_an_execution_that_began_before_its_instant_has_a_lateness_of_zero(store: Store, node: int):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, started_at=NOW - 5000))
    assert await store.list_lateness(claim.job_id, 10) == [0]


async def test_an_execution_without_attempts_left_is_a_dead_letter(store: Store, node: int):
    claim = await running(store, node, retry_policy=RetryPolicy(delays=(1,)))
    await finish(store, node, NOW, ended(claim, FAILURE))
    (again,) = await claim_waiting(store, node, LATER)
    await finish(store, node, LATER, ended(again, FAILURE, now=LATER))
    found = await execution(store, claim.execution_id)
    assert (found.state, found.dead, found.attempt, found.started_at) == (State.FAILED, True, 2, NOW)
    assert [a.attempt for a in await store.list_attempts(claim.execution_id)] == [1, 2]
    assert [e.execution_id for e in await store.list_executions(ExecutionQuery(TENANT, dead=True))] == [
        claim.execution_id
    ]
    job = await job_of(store, claim.job_id)
    assert (job.runs, job.failures, job.status) == (1, 1, JobStatus.COMPLETED)


async def test_a_timeout_counts_as_a_failure_and_a_cancellation_does_not(store: Store, node: int):
    timed_out = await running(store, node, retry_policy=RetryPolicy(max_retries=0))
    cancelled = await running(store, node)
    await finish(
        store, node, NOW, ended(timed_out, Outcome(ErrorType.TIMEOUT)), ended(cancelled, Outcome(ErrorType.CANCELLED))
    )
    job = await job_of(store, timed_out.job_id)
    assert (job.runs, job.successes, job.failures, job.last_state) == (1, 0, 1, State.TIMEOUT)
    job = await job_of(store, cancelled.job_id)
    assert (job.runs, job.successes, job.failures, job.last_state) == (1, 0, 0, State.CANCELLED)


async def test_several_executions_of_one_job_in_one_finish_are_all_counted(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(3):
        await add_execution(store, job_id, NOW - n)
    claims = await claim_waiting(store, node, NOW)
    outcomes = (Outcome(), FINAL, Outcome())
    attempts = [
        ended(claim, outcome, now=NOW + 10 * n) for n, (claim, outcome) in enumerate(zip(claims, outcomes, strict=True))
    ]
    attempts = [msgspec.structs.replace(attempt, started_at=NOW - 5) for attempt in attempts]
    assert await finish(store, node, NOW, *attempts) == []
    job = await job_of(store, job_id)
    assert (job.runs, job.successes, job.failures, job.busy_ms) == (3, 2, 1, 5 + 15 + 25)
    assert (job.last_run_at, job.last_state) == (NOW + 20, State.COMPLETED)


@pytest.mark.parametrize(
    "stale",
    [{"token": 0}, {"token": 2}, {"attempt": 0}, {"attempt": 2}, {"execution_id": new_id()}],
    ids=str,
)
async def test_a_finish_with_another_token_or_attempt_is_refused_and_changes_nothing(
    store: Store, node: int, stale: dict[str, Any]
):
    claim = await running(store, node)
    before = await snapshot(store)
    attempt = msgspec.structs.replace(ended(claim), **stale)
    assert await finish(store, node, LATER, attempt) == [attempt.execution_id]
    assert await snapshot(store) == before


@pytest.mark.parametrize("outcome", [Outcome(), FAILURE, FINAL])
async def test_a_finish_of_an_execution_that_does_not_run_is_refused(store: Store, node: int, outcome: Outcome):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, outcome))
    before = await snapshot(store)
    assert await finish(store, node, LATER, ended(claim, FINAL)) == [claim.execution_id]
    assert await finish(store, node, LATER, ended(claim)) == [claim.execution_id]
    assert await snapshot(store) == before


async def test_the_late_result_of_a_lost_claim_is_refused(store: Store, node: int):
    claim = await running(store, node)
    successor = await one(store, c.StartNode(LATER, "node-1"))
    (expired,) = await store.list_expired_claims(successor, 10)
    assert await finish(store, successor, LATER, expire(expired, LATER)) == []
    assert await finish(store, node, LATER, ended(claim)) == [claim.execution_id]
    (again,) = await claim_waiting(store, successor, LATER)
    assert (again.execution_id, again.attempt, again.token) == (claim.execution_id, 2, 2)
    assert await finish(store, node, LATER, ended(claim)) == [claim.execution_id]
    assert (await execution(store, claim.execution_id)).state is State.RUNNING
    assert await finish(store, successor, LATER, ended(again)) == []
    attempts = await store.list_attempts(claim.execution_id)
    assert [(a.attempt, a.error_type) for a in attempts] == [(1, ErrorType.LEASE_LOST), (2, None)]


async def test_a_stale_result_does_not_block_the_others_of_its_page(store: Store, node: int):
    first, second = await running(store, node), await running(store, node)
    stale = msgspec.structs.replace(ended(first), token=9)
    assert await finish(store, node, NOW, stale, ended(second)) == [first.execution_id]
    assert (await execution(store, first.execution_id)).state is State.RUNNING
    assert (await execution(store, second.execution_id)).state is State.COMPLETED
    assert (await job_of(store, first.job_id)).runs == 0


async def test_a_stale_and_a_valid_result_of_an_execution_in_one_page_end_it_once(store: Store, node: int):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, FAILURE))
    (again,) = await claim_waiting(store, node, LATER)
    assert await finish(store, node, LATER, ended(claim, FAILURE), ended(again)) == [claim.execution_id]
    assert (await execution(store, claim.execution_id)).state is State.COMPLETED
    assert (await job_of(store, claim.job_id)).runs == 1
    assert await totals(store) == await recount(store)


async def test_the_same_result_twice_in_one_page_counts_once(store: Store, node: int):
    claim, other = await running(store, node), await running(store, node)
    assert await finish(store, node, NOW, ended(claim), ended(other), ended(claim)) == []
    assert (await execution(store, claim.execution_id)).state is State.COMPLETED
    assert (await job_of(store, claim.job_id)).runs == 1
    assert await totals(store) == await recount(store)


async def test_a_recurring_job_stays_pending_when_a_run_ends(store: Store, node: int):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await finish(store, node, LATER, ended(claim))
    assert (await job_of(store, job_id)).status is JobStatus.PENDING


async def test_a_job_is_completed_only_when_its_last_execution_has_ended(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    await add_execution(store, job_id, NOW)
    await finish(store, node, NOW, ended(claim))
    assert (await job_of(store, job_id)).status is JobStatus.PENDING
    (manual,) = await claim_waiting(store, node, NOW)
    await finish(store, node, NOW, ended(manual))
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED


async def test_a_finish_does_not_resume_a_paused_or_cancelled_job(store: Store, node: int):
    claim = await running(store, node)
    await one(store, c.CancelJob(NOW, TENANT, claim.job_id))
    await finish(store, node, NOW, ended(claim))
    assert (await job_of(store, claim.job_id)).status is JobStatus.CANCELLED


@pytest.mark.parametrize("text", ["] ends", '["x"]', 'quote " and \\', "☃ 𝄞", "line\nbreak\ttab", ""])
async def test_a_response_with_any_characters_is_read_unchanged(store: Store, node: int, text: str):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, Outcome(ErrorType.HTTP_ERROR, text, 404, text)))
    found = await execution(store, claim.execution_id)
    assert (found.error_message, found.response) == (text, text)
    (attempt,) = await store.list_attempts(claim.execution_id)
    assert (attempt.error_message, attempt.response) == (text, text)


# Release


async def test_a_released_execution_waits_again_and_no_attempt_is_counted(store: Store, node: int):
    claim = await running(store, node)
    assert await one(store, c.Release(node, LATER, (claim,))) is None
    found = await execution(store, claim.execution_id)
    assert (found.state, found.attempt, found.token, found.due_at) == (State.QUEUED, 0, 1, LATER)
    assert await store.list_attempts(claim.execution_id) == []
    assert await totals(store) == await recount(store)
    (again,) = await claim_waiting(store, node, LATER)
    assert (again.attempt, again.token) == (1, 2)


async def test_the_claim_is_invalid_after_its_release(store: Store, node: int):
    claim = await running(store, node)
    await one(store, c.Release(node, LATER, (claim,)))
    assert await finish(store, node, LATER, ended(claim)) == [claim.execution_id]
    (again,) = await claim_waiting(store, node, LATER)
    before = await snapshot(store)
    assert await finish(store, node, LATER, ended(claim)) == [claim.execution_id]
    await one(store, c.Release(node, LATER, (claim,)))
    assert await snapshot(store) == before
    assert await finish(store, node, LATER, ended(again)) == []


@pytest.mark.parametrize("outcome", [Outcome(), FAILURE])
async def test_a_release_of_an_execution_that_does_not_run_changes_nothing(store: Store, node: int, outcome: Outcome):
    """Ended, or waiting for a retry: that attempt is counted."""
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, outcome))
    before = await snapshot(store)
    assert await one(store, c.Release(node, LATER, (claim,))) is None
    assert await snapshot(store) == before


# Cancel


async def test_a_waiting_execution_is_cancelled_at_once(store: Store, node: int):
    made = await add_execution(store, await add_job(store))
    assert await one(store, c.CancelExecution(LATER, TENANT, made)) is State.CANCELLED
    found = await execution(store, made)
    assert (found.state, found.reason, found.ended_at) == (State.CANCELLED, "cancelled", LATER)
    assert await claim_waiting(store, node, LATER) == []
    assert await totals(store) == await recount(store)


async def test_a_cancel_marks_a_running_execution_for_its_node(store: Store, node: int):
    claim = await running(store, node, retry_policy=RetryPolicy(delays=(0,)))
    assert await one(store, c.CancelExecution(LATER, TENANT, claim.execution_id)) is State.RUNNING
    assert (await execution(store, claim.execution_id)).state is State.RUNNING
    await one(store, c.Release(node, NOW, (claim,)))
    (again,) = await claim_waiting(store, node, LATER)
    assert again.cancel_requested


async def test_a_cancel_of_an_ended_execution_is_refused(store: Store, node: int):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim))
    before = await snapshot(store)
    assert isinstance(await one(store, c.CancelExecution(LATER, TENANT, claim.execution_id)), Conflict)
    assert await snapshot(store) == before


async def test_a_cancel_of_an_unknown_execution_is_refused(store: Store):
    theirs = await add_execution(store, await add_job(store, tenant="other"), tenant="other")
    for execution_id in (new_id(), theirs):
        assert isinstance(await one(store, c.CancelExecution(NOW, TENANT, execution_id)), NotFound)
    assert (await execution(store, theirs, "other")).state is State.QUEUED


async def test_a_held_execution_runs_when_the_one_before_it_is_cancelled(store: Store, node: int):
    job_id = await add_job(store, spec(overlap="queue_all"))
    await fire(store, node, NOW + MINUTE, claim=False)
    await fire(store, node, NOW + 2 * MINUTE)
    first, second = await executions_of(store, job_id)
    await one(store, c.CancelExecution(LATER, TENANT, first.execution_id))
    assert [claim.execution_id for claim in await claim_waiting(store, node, LATER)] == [second.execution_id]


async def test_a_cancel_of_the_last_open_execution_completes_a_job_without_further_runs(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    await fire(store, node, NOW, claim=False)
    (waiting,) = await executions_of(store, job_id)
    await one(store, c.CancelExecution(LATER, TENANT, waiting.execution_id))
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED


# Dead letters


async def dead(store: Store, node: int) -> Claim:
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, FINAL))
    return claim


async def test_a_dead_letter_is_redriven_as_a_new_execution(store: Store, node: int):
    claim = await dead(store, node)
    fresh = new_id(LATER)
    assert await one(store, c.Redrive(LATER, TENANT, ((claim.execution_id, fresh),))) == [(claim.execution_id, fresh)]
    old, new = await execution(store, claim.execution_id), await execution(store, fresh)
    assert (old.state, old.dead) == (State.FAILED, False)
    assert (new.state, new.trigger, new.scheduled_at, new.attempt, new.job_id) == (
        State.QUEUED, Trigger.RETRY, LATER, 0, claim.job_id,
    )  # fmt: skip
    assert await totals(store) == await recount(store)


async def test_an_execution_that_is_no_dead_letter_is_not_redriven(store: Store, node: int):
    letter, alive = await dead(store, node), await running(store, node)
    await one(store, c.Redrive(NOW, TENANT, ((letter.execution_id, new_id()),)))
    before = await snapshot(store)
    pairs = tuple((execution_id, new_id()) for execution_id in (letter.execution_id, alive.execution_id, new_id()))
    assert await one(store, c.Redrive(NOW, TENANT, pairs)) == []
    assert await snapshot(store) == before


async def test_a_dead_letter_named_twice_is_redriven_once(store: Store, node: int):
    claim = await dead(store, node)
    pairs = ((claim.execution_id, new_id()), (claim.execution_id, new_id()))
    assert len(await one(store, c.Redrive(NOW, TENANT, pairs))) == 1
    assert len(await executions_of(store, claim.job_id)) == 2


async def test_dead_letters_of_another_tenant_are_not_redriven(store: Store, node: int):
    claim = await dead(store, node)
    assert await one(store, c.Redrive(NOW, "other", ((claim.execution_id, new_id()),))) == []
    assert (await execution(store, claim.execution_id)).dead


# Nodes


async def test_a_dead_letter_of_a_cancelled_job_is_not_redriven(store: Store, node: int):
    claim = await running(store, node)
    await finish(store, node, NOW, ended(claim, FINAL))
    await one(store, c.CancelJob(NOW, TENANT, claim.job_id))
    before = await snapshot(store)
    assert await one(store, c.Redrive(NOW, TENANT, ((claim.execution_id, new_id()),))) == []
    assert await snapshot(store) == before


async def test_a_restarted_node_fences_its_earlier_process(store: Store, node: int):
    claim = await running(store, node)
    assert await store.list_expired_claims(node, 10) == []
    successor = await one(store, c.StartNode(LATER, "node-1"))
    assert successor > node
    assert await store.list_expired_claims(successor, 10) == [claim]


async def test_claims_of_a_living_node_have_not_expired(store: Store, node: int):
    await running(store, node)
    other = await one(store, c.StartNode(NOW, "node-2"))
    assert await store.list_expired_claims(other, 10) == []
    await one(store, c.StopNode(NOW, node))
    assert len(await store.list_expired_claims(other, 10)) == 1


async def test_expired_claims_are_listed_in_pages(store: Store, node: int):
    for _ in range(5):
        await running(store, node)
    successor = await one(store, c.StartNode(LATER, "node-1"))
    seen: list[str] = []
    while expired := await store.list_expired_claims(successor, 2):
        assert len(expired) <= 2
        assert await finish(store, successor, LATER, *(expire(claim, LATER) for claim in expired)) == []
        seen += [claim.execution_id for claim in expired]
    assert len(seen) == len(set(seen)) == 5
    assert len(await claim_waiting(store, successor, LATER)) == 5


async def test_cancelled_running_executions_are_listed_for_their_node(store: Store, node: int):
    stopped, other = await add_job(store), await add_job(store)
    await fire(store, node, LATER)
    (asked,), (left,) = await executions_of(store, stopped), await executions_of(store, other)
    assert await store.list_to_stop(node, 10) == []
    assert await one(store, c.CancelExecution(LATER, TENANT, asked.execution_id)) is State.RUNNING
    assert await store.list_to_stop(node, 10) == [asked.execution_id]
    assert await store.list_to_stop(node + 1, 10) == []
    assert left.execution_id != asked.execution_id
