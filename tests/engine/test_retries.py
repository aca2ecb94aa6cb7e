"""Retries survive the node that planned them. The error decides whether there is one. Their number is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import SECOND
from duetime.domain.job import Delivery, JobStatus, RetryPolicy
from duetime.domain.retry import LOST_ATTEMPTS
from duetime.domain.states import ErrorType, State
from duetime.testing import SUCCESS, ScriptedExecutor
from engine.stage import Stage
from engine.test_restart import lose
from engine.test_worker_gateway import call, done, hire
from engine.test_worker_gateway import lose as lose_workers
from samples import NOW, TENANT, execution, new_id, spec

BUSY = Outcome(ErrorType.HTTP_ERROR, "busy", 503)
SLOW_DOWN = Outcome(ErrorType.HTTP_ERROR, "slow down", 429, retry_after_seconds=45)
POLICIES: dict[str, tuple[RetryPolicy, Outcome, list[int]]] = {
    "fixed": (RetryPolicy(max_retries=3, backoff="fixed", initial_delay_seconds=7), BUSY, [7, 7, 7]),
    "linear": (RetryPolicy(max_retries=3, backoff="linear", initial_delay_seconds=10), BUSY, [10, 20, 30]),
    "exponential": (RetryPolicy(initial_delay_seconds=2, backoff_factor=5), BUSY, [2, 10, 50]),
    "ceiling": (RetryPolicy(initial_delay_seconds=20, max_delay_seconds=30), BUSY, [20, 30, 30]),
    "delays": (RetryPolicy(delays=(5, 40, 8)), BUSY, [5, 40, 8]),
    "Retry-After": (RetryPolicy(delays=(5, 60, 5)), SLOW_DOWN, [45, 60, 45]),
}


@pytest.mark.parametrize("name", POLICIES)
async def test_a_retry_policy_continues_on_another_node(stage: Stage, executor: ScriptedExecutor, name: str):
    """A new node after each attempt: the next attempt has the planned instant and the next number."""
    policy, answer, waits = POLICIES[name]
    executor.answer([answer] * len(waits) + [SUCCESS])
    await stage.join()
    job_id = await stage.add_job(spec("immediate", retry_policy=policy))
    await stage.tick()
    for attempt, wait in enumerate(waits, start=1):
        due_at = stage.clock.now() + wait * SECOND
        await lose(stage)
        await stage.join()
        await stage.engine.term.reconciler.run_once()
        stage.clock.set(due_at - 1)
        await stage.tick()
        assert len(executor.attempts) == attempt, "too early"
        stage.clock.set(due_at)
        await stage.tick()
        assert len(executor.attempts) == attempt + 1, "too late"
    assert [attempt.claim.attempt for attempt in executor.attempts] == [1, 2, 3, 4]
    assert len({attempt.claim.execution_id for attempt in executor.attempts}) == 1
    assert await stage.states(job_id) == [State.COMPLETED]


AGAIN, NEVER = State.RETRYING, State.FAILED
BY_TYPE = {
    ErrorType.TIMEOUT: AGAIN,
    ErrorType.CONNECTION_ERROR: AGAIN,
    ErrorType.DNS_ERROR: AGAIN,
    ErrorType.TLS_ERROR: AGAIN,
    ErrorType.HTTP_ERROR: AGAIN,  # decided by its status, see below
    ErrorType.BLOCKED_TARGET: NEVER,
    ErrorType.CIRCUIT_OPEN: State.SKIPPED,
    ErrorType.EXIT_CODE: AGAIN,
    ErrorType.LIMIT_EXCEEDED: NEVER,
    ErrorType.SQL_ERROR: NEVER,
    ErrorType.DATABASE_BUSY: AGAIN,
    ErrorType.FUNCTION_ERROR: AGAIN,
    ErrorType.REJECTED: NEVER,
    ErrorType.LEASE_LOST: AGAIN,
    ErrorType.CANCELLED: State.CANCELLED,
    ErrorType.INTERNAL_ERROR: AGAIN,
}


def test_the_table_has_every_type():
    assert set(BY_TYPE) == set(ErrorType)


@pytest.mark.parametrize("error_type", BY_TYPE)
async def test_the_error_type_decides_whether_there_is_a_retry(
    stage: Stage, executor: ScriptedExecutor, error_type: ErrorType
):
    executor.answer(Outcome(error_type, "it failed"))
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    (found,) = await stage.executions(job_id)
    assert (found.state, found.dead) == (BY_TYPE[error_type], BY_TYPE[error_type] is NEVER)


@pytest.mark.parametrize(
    ("status", "state"),
    [(400, NEVER), (404, NEVER), (408, NEVER), (410, NEVER), (429, AGAIN), (500, AGAIN), (503, AGAIN), (302, NEVER)],
)
async def test_the_http_status_decides_whether_there_is_a_retry(
    stage: Stage, executor: ScriptedExecutor, status: int, state: State
):
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "answered", status))
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    await stage.pass_time(60, step=60)
    (found,) = await stage.executions(job_id)
    assert found.state is state
    assert ((await stage.job(job_id)).status is JobStatus.PAUSED) == (status == 410)


# Executions that kill their worker, or are rejected


async def test_a_function_that_kills_its_worker_each_time_becomes_a_dead_letter(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(retry_policy=RetryPolicy(max_retries=0)))
    await stage.tick()
    for attempt in range(1, LOST_ATTEMPTS + 1):
        (one,) = await (await hire(stage)).poll()
        assert one.attempt == attempt
        await lose_workers(stage)
    (dead,) = await stage.executions(job_id)
    assert (dead.state, dead.dead, dead.attempt, dead.error_type) == (
        State.FAILED, True, LOST_ATTEMPTS, ErrorType.LEASE_LOST,
    )  # fmt: skip
    assert await (await hire(stage)).poll() == []


async def test_a_function_that_rejects_becomes_a_dead_letter_that_can_be_redriven(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call())
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await hand.report(done(one, error_type=ErrorType.REJECTED, error_message="no such customer"))
    (dead,) = await stage.executions(job_id)
    assert (dead.state, dead.dead) == (State.FAILED, True)
    fresh = new_id(stage.clock.now())
    await stage.apply(c.Redrive(stage.clock.now(), TENANT, ((dead.execution_id, fresh),)))
    (again,) = await hand.poll()
    assert (again.execution_id, again.attempt) == (fresh, 1)


# At most once


@pytest.mark.parametrize("error_type", [it for it, state in BY_TYPE.items() if state is AGAIN])
async def test_an_at_most_once_execution_is_not_retried(
    stage: Stage, executor: ScriptedExecutor, error_type: ErrorType
):
    executor.answer(Outcome(error_type, "it failed", retry_after_seconds=1))
    await stage.join()
    job_id = await stage.add_job(
        spec("immediate", delivery=Delivery.AT_MOST_ONCE, retry_policy=RetryPolicy(delays=(1, 1)))
    )
    await stage.tick()
    await stage.pass_time(10)
    assert len(executor.attempts) == 1
    assert not executor.attempts[0].repeatable
    (found,) = await stage.executions(job_id)
    assert (found.state in (State.FAILED, State.TIMEOUT), found.dead, found.attempt) == (True, True, 1)


async def test_an_at_most_once_execution_is_not_repeated_when_its_node_expires(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("immediate", delivery=Delivery.AT_MOST_ONCE))
    await stage.tick()
    await lose(stage)
    await stage.join()
    await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert len(executor.attempts) == 1
    (found,) = await stage.executions(job_id)
    assert (found.state, found.dead, found.error_type) == (State.FAILED, True, ErrorType.LEASE_LOST)


# Redrive


async def test_a_dead_letter_that_is_redriven_while_its_circuit_is_open_stays_one(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer([Outcome(ErrorType.BLOCKED_TARGET), Outcome(ErrorType.CIRCUIT_OPEN, "it is open")])
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    (dead,) = await stage.executions(job_id)
    await stage.apply(c.Redrive(NOW, TENANT, ((dead.execution_id, fresh := new_id(NOW)),)))
    stage.engine.term.claimer.hint(NOW)
    await stage.tick()
    found = await execution(stage.store, fresh)
    assert (found.state, found.dead, found.error_type) == (State.FAILED, True, ErrorType.CIRCUIT_OPEN)


async def test_redriven_dead_letters_keep_their_pace_after_a_restart(stage: Stage, executor: ScriptedExecutor):
    executor.answer([Outcome(ErrorType.BLOCKED_TARGET)] * 4 + [SUCCESS] * 4)
    await stage.join()
    jobs = [await stage.add_job(spec("immediate")) for _ in range(4)]
    await stage.tick()
    letters = [(await stage.executions(job_id))[0].execution_id for job_id in jobs]
    pairs = tuple((letter, new_id(NOW)) for letter in letters)
    await stage.apply(c.Redrive(NOW, TENANT, pairs, per_second=0.5))
    stage.engine.term.claimer.hint(NOW)
    begun: list[int] = []
    for second in range(8):
        if second == 3:
            await lose(stage)
            await stage.join()
        await stage.tick()
        begun += [stage.clock.now() - NOW] * (len(executor.attempts) - 4 - len(begun))
        stage.clock.advance(1)
    assert begun == [0, 2 * SECOND, 4 * SECOND, 6 * SECOND]
    assert [attempt.claim.execution_id for attempt in executor.attempts[4:]] == [new for _, new in pairs]
    found: list[Any] = [(await execution(stage.store, new)).state for _, new in pairs]
    assert found == [State.COMPLETED] * 4
