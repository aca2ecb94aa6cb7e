"""Fires: executions are added and timers moved in one commit, each instant is decided once, by the overlap policy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.errors import Conflict, NotFound, StaleWrite
from duetime.domain.execution import Claim, Outcome
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import CatchUp, JobStatus, Overlap
from duetime.domain.plan import NewExecution, Skipped, TimerMove
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import ExecutionRecord, SkippedRecord, Store
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
    planned_id,
    spec,
)
from snapshot import recount, snapshot, totals

DUE = NOW + MINUTE  # when `every 1m` is first due


def planned(job_id: str, at: int, if_open: str = "skip", **fields: Any) -> NewExecution:
    new = NewExecution(planned_id(job_id, at), job_id, TENANT, at, Trigger.SCHEDULE, 5, endpoint_of_url(URL), if_open)
    return msgspec.structs.replace(new, **fields)


def fire_at(node: int, job_id: str, *instants: int, **fields: Any) -> c.Fire:
    """A Fire of one job; the test may set `due_at`, `version`, `next_due_at`, `if_open` and `claim`."""
    executions = tuple(planned(job_id, at, fields.get("if_open", "skip")) for at in instants)
    due_at = fields.get("due_at", instants[0] if instants else DUE)
    move = TimerMove(
        job_id, due_at, fields.get("version", 1), fields.get("next_due_at", due_at + MINUTE), len(executions)
    )
    return c.Fire(node, due_at, fields.get("claim", True), (move,), executions, fields.get("skips", ()))


async def states(store: Store, job_id: str) -> list[State]:
    return [e.state for e in await executions_of(store, job_id)]


# Without conflicts


async def test_a_fire_writes_the_execution_claimed_and_moves_the_timer(store: Store, node: int):
    job_id = await add_job(store, spec(priority=7))
    new = planned(job_id, DUE, priority=7)
    answer = await one(store, c.Fire(node, DUE, True, (TimerMove(job_id, DUE, 1, DUE + MINUTE, 1),), (new,)))
    assert answer == c.Fired()
    assert await executions_of(store, job_id) == [
        ExecutionRecord(
            new.execution_id, job_id, DUE, Trigger.SCHEDULE, State.RUNNING, None, 7, DUE, False, 1, 1, "node-1",
            None, None, None, None, None, None, None, False,
        )
    ]  # fmt: skip
    job = await job_of(store, job_id)
    assert (job.due_at, job.fired, job.status, job.version) == (DUE + MINUTE, 1, JobStatus.PENDING, 1)


async def test_a_fire_without_a_claim_leaves_the_execution_queued(store: Store, node: int):
    job_id = await add_job(store)
    assert await one(store, fire_at(node, job_id, DUE, claim=False)) == c.Fired()
    (found,) = await executions_of(store, job_id)
    assert (found.state, found.attempt, found.token, found.worker_id) == (State.QUEUED, 0, 0, None)
    (claim,) = await claim_waiting(store, node, DUE)
    assert (claim.execution_id, claim.attempt, claim.token) == (found.execution_id, 1, 1)


async def test_the_last_fire_leaves_the_job_pending_until_its_execution_ends(store: Store, node: int):
    job_id = await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    job = await job_of(store, job_id)
    assert (job.status, job.due_at) == (JobStatus.PENDING, None)
    await finish(store, node, NOW, ended(claim))
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED


async def test_a_job_whose_last_instant_was_missed_is_completed_at_once(store: Store, node: int):
    job_id = await add_job(store, spec("2026-01-01T01:00:00Z", catch_up=CatchUp("skip")))
    await fire(store, node, NOW + 9 * HOUR)
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    assert await store.list_skipped(job_id, 10) == [
        SkippedRecord(NOW + HOUR, NOW + 9 * HOUR + 1, 1, "missed", NOW + 9 * HOUR)
    ]


async def test_a_page_of_many_jobs_is_fired_in_one_commit(store: Store, node: int):
    for _ in range(300):
        await add_job(store, spec("2026-01-01T00:01:00Z"))
    fired, claims = await fire(store, node, DUE)
    assert fired == c.Fired()
    assert len(claims) == 300
    assert (await totals(store))[State.RUNNING] == 300
    assert await store.next_due_at() is None


# Fences


async def test_a_fenced_node_may_not_fire(store: Store, node: int):
    job_id = await add_job(store)
    await one(store, c.StartNode(NOW, "node-1"))
    before = await snapshot(store)
    assert isinstance(await one(store, fire_at(node, job_id, DUE)), StaleWrite)
    assert isinstance(await one(store, fire_at(999, job_id, DUE)), StaleWrite)
    assert await snapshot(store) == before


async def test_a_fired_timer_is_stale(store: Store, node: int):
    job_id = await add_job(store)
    command = fire_at(node, job_id, DUE)
    assert await one(store, command) == c.Fired()
    before = await snapshot(store)
    assert (await one(store, command)).stale_jobs == {job_id}
    assert await snapshot(store) == before


async def test_two_fires_of_one_timer_in_one_commit_fire_once(store: Store, node: int):
    job_id = await add_job(store)
    first, second = await store.apply([fire_at(node, job_id, DUE), fire_at(node, job_id, DUE)])
    assert first == c.Fired()
    assert second.stale_jobs == {job_id}
    assert await states(store, job_id) == [State.RUNNING]


@pytest.mark.parametrize("deed", ["change", "pause", "cancel", "purge"])
async def test_a_job_that_was_changed_after_it_was_read_is_stale(store: Store, node: int, deed: str):
    job_id = await add_job(store)
    job = spec("every 2m")
    command: c.Command = {
        "change": c.ChangeJob(NOW, TENANT, job_id, 1, None, job.name, job.type, True, DUE, job),
        "pause": c.PauseJob(NOW, TENANT, job_id, "ann", ""),
        "cancel": c.CancelJob(NOW, TENANT, job_id),
        "purge": c.PurgeJob(TENANT, job_id),
    }[deed]
    await one(store, command)
    before = await snapshot(store)
    skip = Skipped(job_id, TENANT, NOW, DUE, 1, "missed")
    assert (await one(store, fire_at(node, job_id, DUE, skips=(skip,)))).stale_jobs == {job_id}
    assert await snapshot(store) == before


async def test_a_job_that_was_paused_and_resumed_meanwhile_is_stale(store: Store, node: int):
    job_id = await add_job(store)
    await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
    await one(store, c.ResumeJob(NOW, TENANT, job_id, 2, DUE, None))
    assert (await one(store, fire_at(node, job_id, DUE))).stale_jobs == {job_id}
    assert (await one(store, fire_at(node, job_id, DUE, version=3))) == c.Fired()


async def test_a_stale_job_does_not_block_the_others_of_its_page(store: Store, node: int):
    stale, fresh = await add_job(store), await add_job(store)
    moves = (TimerMove(stale, DUE + 1, 1, DUE + MINUTE, 1), TimerMove(fresh, DUE, 1, DUE + MINUTE, 1))
    answer = await one(store, c.Fire(node, DUE, True, moves, (planned(stale, DUE + 1), planned(fresh, DUE))))
    assert answer == c.Fired(frozenset({stale}))
    assert await executions_of(store, stale) == []
    assert await states(store, fresh) == [State.RUNNING]
    assert (await job_of(store, stale)).due_at == DUE


# One execution for each instant


async def replan(store: Store, job_id: str, due_at: int, **fields: Any) -> int:
    """The effect of a change after the clock was set back: the timer is due at an instant that was decided before."""
    job = spec(**fields)
    version = (await job_of(store, job_id)).version
    answer = await one(store, c.ChangeJob(NOW, TENANT, job_id, version, None, job.name, job.type, True, due_at, job))
    assert answer == version + 1
    return version + 1


@pytest.mark.parametrize("policy", sorted(Overlap))
@pytest.mark.parametrize("is_over", [True, False])
async def test_a_decided_instant_is_not_decided_again(store: Store, node: int, policy: Overlap, is_over: bool):
    job_id = await add_job(store, spec(overlap=policy))
    _, (claim,) = await fire(store, node, DUE)
    if is_over:
        await finish(store, node, DUE, ended(claim))
    await replan(store, job_id, DUE, overlap=policy)
    before = await executions_of(store, job_id)
    fired, claims = await fire(store, node, DUE)
    assert fired == c.Fired(not_claimed=frozenset({claim.execution_id}))
    assert claims == []
    assert await executions_of(store, job_id) == before
    found = await job_of(store, job_id)
    assert (found.due_at, found.fired) == (DUE + MINUTE, 1)
    assert await totals(store) == await recount(store)


async def test_an_instant_planned_twice_counts_once_towards_max_runs(store: Store, node: int):
    job_id = await add_job(store, spec(max_runs=2))
    _, (claim,) = await fire(store, node, DUE)
    await finish(store, node, DUE, ended(claim))
    await replan(store, job_id, DUE, max_runs=2)
    for n in range(2):
        _, claims = await fire(store, node, DUE + n * MINUTE)
        await finish(store, node, DUE + n * MINUTE, *map(ended, claims))
    assert [e.scheduled_at for e in await executions_of(store, job_id)] == [DUE, DUE + MINUTE]
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.due_at) == (JobStatus.COMPLETED, 2, None)


async def test_only_undecided_instants_of_a_page_are_written(store: Store, node: int):
    job_id = await add_job(store, spec(overlap="allow"))
    _, (claim,) = await fire(store, node, DUE)
    version = await replan(store, job_id, DUE, overlap="allow")
    command = fire_at(node, job_id, DUE, DUE + SECOND, DUE + 2 * SECOND, version=version, if_open="run")
    answer = await one(store, command)
    assert answer == c.Fired(not_claimed=frozenset({claim.execution_id}))
    assert await states(store, job_id) == [State.RUNNING] * 3
    assert await totals(store) == await recount(store)


async def test_an_execution_after_a_decided_instant_is_not_left_waiting(store: Store, node: int):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, DUE)
    await finish(store, node, DUE, ended(claim))
    version = await replan(store, job_id, DUE)
    move = TimerMove(job_id, DUE, version, None, 2)
    executions = tuple(planned(job_id, at, has_siblings=True) for at in (DUE, DUE + 1))
    fired = await one(store, c.Fire(node, DUE, True, (move,), executions))
    assert fired == c.Fired(not_claimed=frozenset({executions[0].execution_id}))
    assert await states(store, job_id) == [State.COMPLETED, State.RUNNING]


# Overlap


async def overlapping(store: Store, node: int, policy: str) -> tuple[str, str, c.Fired]:
    """A job with one running execution, and the result of the fire of its next instant."""
    job_id = await add_job(store, spec(overlap=policy))
    _, (running,) = await fire(store, node, DUE)
    fired, _ = await fire(store, node, DUE + MINUTE)
    return job_id, running.execution_id, fired


async def test_the_policy_allow_runs_both(store: Store, node: int):
    job_id, _, fired = await overlapping(store, node, "allow")
    assert fired == c.Fired()
    assert await states(store, job_id) == [State.RUNNING, State.RUNNING]


async def test_the_policy_skip_records_the_newer_execution_as_skipped(store: Store, node: int):
    job_id, _, fired = await overlapping(store, node, "skip")
    second = planned_id(job_id, DUE + MINUTE)
    assert fired == c.Fired(not_claimed=frozenset({second}), skipped=frozenset({second}))
    found = await execution(store, second)
    assert (found.state, found.reason, found.ended_at, found.attempt) == (State.SKIPPED, "overlap", DUE + MINUTE, 0)
    assert (await job_of(store, job_id)).due_at == DUE + 2 * MINUTE


@pytest.mark.parametrize("policy", ["queue_one", "queue_all"])
async def test_a_queued_execution_is_held_until_the_running_one_has_ended(store: Store, node: int, policy: str):
    job_id, running, fired = await overlapping(store, node, policy)
    second = planned_id(job_id, DUE + MINUTE)
    assert fired == c.Fired(not_claimed=frozenset({second}))
    found = await execution(store, second)
    assert (found.state, found.held) == (State.QUEUED, True)
    assert await store.next_waiting_at() is None
    assert await claim_waiting(store, node, DUE + HOUR) == []

    claim = await as_claim(store, await execution(store, running))
    assert await finish(store, node, DUE + 90 * SECOND, ended(claim, now=DUE + 90 * SECOND)) == []
    assert await store.next_waiting_at() == DUE + MINUTE
    assert [r.execution_id for r in await claim_waiting(store, node, DUE + HOUR)] == [second]
    assert not (await execution(store, second)).held


async def as_claim(store: Store, record: ExecutionRecord) -> Claim:
    job = await job_of(store, record.job_id)
    return Claim(
        record.execution_id, record.job_id, TENANT, record.scheduled_at, record.trigger, record.priority,
        endpoint_of_url(URL), record.attempt, record.token, False, job.spec,
    )  # fmt: skip


async def test_the_policy_queue_one_holds_one_and_skips_the_next(store: Store, node: int):
    job_id, _, _ = await overlapping(store, node, "queue_one")
    await fire(store, node, DUE + 2 * MINUTE)
    assert await states(store, job_id) == [State.RUNNING, State.QUEUED, State.SKIPPED]


async def test_the_policy_queue_all_holds_all_and_runs_them_one_by_one_in_order(store: Store, node: int):
    job_id, running, _ = await overlapping(store, node, "queue_all")
    await fire(store, node, DUE + 2 * MINUTE)
    assert await states(store, job_id) == [State.RUNNING, State.QUEUED, State.QUEUED]
    claim = await as_claim(store, await execution(store, running))
    order = []
    for _ in range(2):
        await finish(store, node, DUE + HOUR, ended(claim))
        (claim,) = await claim_waiting(store, node, DUE + HOUR)
        order.append(claim.scheduled_at)
    assert order == [DUE + MINUTE, DUE + 2 * MINUTE]


async def test_a_held_execution_waits_for_the_retries_of_the_one_before_it(store: Store, node: int):
    job_id, running, _ = await overlapping(store, node, "queue_all")
    claim = await as_claim(store, await execution(store, running))
    await finish(store, node, DUE + MINUTE, ended(claim, Outcome(ErrorType.TIMEOUT), now=DUE + MINUTE))
    assert await states(store, job_id) == [State.RETRYING, State.QUEUED]
    (again,) = await claim_waiting(store, node, DUE + HOUR)
    assert again.execution_id == running


@pytest.mark.parametrize(("policy", "held"), [("skip", 0), ("queue_one", 1)])
async def test_a_skipped_instant_does_not_count_towards_max_runs(store: Store, node: int, policy: str, held: int):
    job_id = await add_job(store, spec(overlap=policy, max_runs=2 + held))
    _, (first,) = await fire(store, node, DUE)
    for n in range(1, 3 + held):
        await fire(store, node, DUE + n * MINUTE)
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.due_at) == (JobStatus.PENDING, 1 + held, DUE + (3 + held) * MINUTE)
    await finish(store, node, DUE + 9 * SECOND, ended(first))
    for claim in await claim_waiting(store, node, DUE + HOUR):
        await finish(store, node, DUE + 9 * SECOND, ended(claim))
    _, (last,) = await fire(store, node, DUE + (3 + held) * MINUTE)
    await finish(store, node, DUE + HOUR, ended(last))
    found = await job_of(store, job_id)
    assert (found.status, found.fired, found.runs) == (JobStatus.COMPLETED, 2 + held, 2 + held)


async def test_the_policy_cancel_running_stops_the_older_and_runs_the_newer(store: Store, node: int):
    job_id, running, fired = await overlapping(store, node, "cancel_running")
    assert fired == c.Fired(to_cancel=(running,))
    assert await states(store, job_id) == [State.RUNNING, State.RUNNING]
    successor = await one(store, c.StartNode(NOW, "node-1"))
    expired = {claim.execution_id: claim.cancel_requested for claim in await store.list_expired_claims(successor, 10)}
    assert expired == {running: True, planned_id(job_id, DUE + MINUTE): False}


async def test_the_policy_cancel_running_cancels_waiting_executions_and_stops_none(store: Store, node: int):
    job_id = await add_job(store, spec(overlap="cancel_running"))
    await fire(store, node, DUE, claim=False)
    fired, (claim,) = await fire(store, node, DUE + MINUTE)
    assert fired == c.Fired()
    assert claim.scheduled_at == DUE + MINUTE
    first, second = await executions_of(store, job_id)
    assert (first.state, first.reason) == (State.CANCELLED, "replaced by a newer run")
    assert second.state is State.RUNNING
    assert await totals(store) == await recount(store)


async def test_siblings_run_one_after_the_other(store: Store, node: int):
    job_id = await add_job(store, spec("every 1s"))
    fired, (first,) = await fire(store, node, NOW + 3 * SECOND)
    assert first.scheduled_at == NOW + SECOND
    assert len(fired.not_claimed) == 2
    order, claim = [first.scheduled_at], first
    for _ in range(2):
        await finish(store, node, NOW + 4 * SECOND, ended(claim))
        (claim,) = await claim_waiting(store, node, NOW + 4 * SECOND)
        order.append(claim.scheduled_at)
    assert order == [NOW + n * SECOND for n in (1, 2, 3)]
    assert (await job_of(store, job_id)).fired == 3


async def test_a_manual_run_counts_as_open(store: Store, node: int):
    job_id = await add_job(store)
    await add_execution(store, job_id)
    await fire(store, node, DUE)
    assert await states(store, job_id) == [State.QUEUED, State.SKIPPED]


async def test_another_jobs_open_execution_is_no_overlap(store: Store, node: int):
    await add_job(store)
    await fire(store, node, DUE)
    job_id = await add_job(store)
    await fire(store, node, DUE, job_id)
    assert await states(store, job_id) == [State.RUNNING]


# The ledger


async def test_skipped_spans_are_in_the_ledger_latest_first(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(3):
        at = DUE + n * HOUR
        skip = Skipped(job_id, TENANT, at, at + MINUTE, None if n == 1 else n, "missed")
        await one(store, fire_at(node, job_id, due_at=at, next_due_at=at + HOUR, skips=(skip,)))
    found = await store.list_skipped(job_id, 2)
    assert [(skip.first_at, skip.count) for skip in found] == [(DUE + 2 * HOUR, 2), (DUE + HOUR, None)]
    assert len(await store.list_skipped(job_id, 10)) == 3
    assert await store.list_skipped(new_id(), 10) == []


# Manual executions


async def test_a_manual_execution_waits_with_the_priority_of_its_job(store: Store):
    job_id = await add_job(store, spec(priority=9))
    made = await add_execution(store, job_id, NOW + 7)
    found = await execution(store, made)
    assert (found.state, found.trigger, found.priority, found.scheduled_at, found.due_at) == (
        State.QUEUED, Trigger.MANUAL, 9, NOW + 7, NOW + 7,
    )  # fmt: skip
    assert (await job_of(store, job_id)).fired == 0


async def test_manual_executions_of_one_instant_and_the_planned_one_are_separate_executions(store: Store, node: int):
    job_id = await add_job(store, spec(overlap="allow"))
    for _ in range(3):
        await add_execution(store, job_id, DUE)
    _, (claim,) = await fire(store, node, DUE)
    assert claim.execution_id == planned_id(job_id, DUE)
    assert len(await executions_of(store, job_id)) == 4


async def test_a_run_of_an_unknown_job_is_refused(store: Store):
    theirs = await add_job(store, tenant="other")
    for job_id in (new_id(), theirs):
        assert isinstance(await one(store, c.AddExecution(NOW, TENANT, job_id, new_id(), Trigger.MANUAL)), NotFound)


async def test_a_cancelled_job_gets_no_further_execution(store: Store):
    job_id = await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, job_id))
    before = await snapshot(store)
    assert isinstance(await one(store, c.AddExecution(NOW, TENANT, job_id, new_id(), Trigger.MANUAL)), Conflict)
    assert await snapshot(store) == before


async def test_a_second_run_with_the_same_id_is_refused_alone(store: Store):
    job_id = await add_job(store)
    made = await add_execution(store, job_id)
    again = c.AddExecution(NOW, TENANT, job_id, made, Trigger.MANUAL)
    other = c.AddExecution(NOW, TENANT, job_id, new_id(), Trigger.MANUAL)
    refused, answer = await store.apply([again, other])
    assert isinstance(refused, Conflict)
    assert answer == other.execution_id
