"""Attempts: what the response of a target does to an execution, from the first attempt to the last."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.job import JobStatus, RetryPolicy
from duetime.domain.states import ErrorType, State, Trigger
from duetime.engine.dispatcher import Limits
from duetime.ports.executor import Attempt, NotSent
from duetime.testing import ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage
from samples import NOW, TENANT, URL, add_execution, execution, spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500)


async def run_now(stage: Stage, **fields: object) -> str:
    """Runs a job that is due now. Returns its id."""
    await stage.join()
    return await stage.add_job(spec("immediate", **fields))


async def test_a_success_is_recorded_with_its_times(stage: Stage, executor: ScriptedExecutor):
    job_id = await run_now(stage)
    executor.hold()
    stage.clock.advance(0.03)
    await stage.tick()
    (running,) = await stage.executions(job_id)
    assert (running.state, running.worker_id) == (State.RUNNING, "node-1")
    stage.clock.advance(0.25)
    executor.let_go()
    await stage.settle()
    (done,) = await stage.executions(job_id)
    assert (done.state, done.started_at, done.ended_at, done.http_status) == (State.COMPLETED, NOW + 30, NOW + 280, 200)
    job = await stage.job(job_id)
    assert (job.status, job.runs, job.busy_ms) == (JobStatus.COMPLETED, 1, 250)
    assert await stage.store.list_lateness(job_id, 5) == [30]


async def test_a_failed_execution_is_retried_after_each_wait_with_the_same_id_and_a_new_token(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer([FAILURE, FAILURE, Outcome(http_status=200)])
    job_id = await run_now(stage, retry_policy=RetryPolicy(delays=(5, 20)))
    begun: list[int] = []
    await stage.tick()
    for _ in range(30):
        begun += [stage.clock.now()] * (len(executor.attempts) - len(begun))
        await stage.pass_time(1)
    assert begun == [NOW, NOW + 5 * SECOND, NOW + 25 * SECOND]
    assert [(attempt.claim.attempt, attempt.claim.token) for attempt in executor.attempts] == [(1, 1), (2, 2), (3, 3)]
    assert len({attempt.claim.execution_id for attempt in executor.attempts}) == 1
    assert await stage.states(job_id) == [State.COMPLETED]


async def test_retry_after_of_a_target_delays_the_retry(stage: Stage, executor: ScriptedExecutor):
    asks = Outcome(ErrorType.HTTP_ERROR, "slow down", 429, retry_after_seconds=30)
    executor.answer([asks, Outcome(http_status=200)])
    await run_now(stage, retry_policy=RetryPolicy(delays=(1,)))
    await stage.tick()
    await stage.pass_time(29)
    assert len(executor.attempts) == 1
    await stage.pass_time(1)
    assert len(executor.attempts) == 2


async def test_retry_after_is_limited_to_a_day(stage: Stage, executor: ScriptedExecutor):
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "go away", 503, retry_after_seconds=1e9))
    job_id = await run_now(stage)
    await stage.tick()
    (waiting,) = await stage.executions(job_id)
    assert waiting.due_at == NOW + 86_400 * SECOND


async def test_an_execution_that_always_fails_ends_as_a_dead_letter_after_its_last_attempt(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer(FAILURE)
    job_id = await run_now(stage, retry_policy=RetryPolicy(max_retries=2, backoff="fixed", initial_delay_seconds=1))
    await stage.tick()
    await stage.pass_time(60)
    assert len(executor.attempts) == 3
    (dead,) = await stage.executions(job_id)
    assert (dead.state, dead.dead, dead.attempt, dead.http_status) == (State.FAILED, True, 3, 500)
    assert (await stage.job(job_id)).status is JobStatus.COMPLETED
    assert [a.attempt for a in await stage.store.list_attempts(dead.execution_id)] == [1, 2, 3]


async def test_a_redriven_dead_letter_runs(stage: Stage, executor: ScriptedExecutor):
    executor.answer([Outcome(ErrorType.BLOCKED_TARGET), Outcome(http_status=200)])
    job_id = await run_now(stage)
    await stage.tick()
    (dead,) = await stage.executions(job_id)
    fresh = "019b76da-b000-7000-8000-000000000001"
    assert await stage.apply(c.Redrive(NOW, TENANT, ((dead.execution_id, fresh),))) == [(dead.execution_id, fresh)]
    stage.engine.term.claimer.hint(NOW)
    await stage.tick()
    assert executor.attempts[-1].claim.execution_id == fresh
    assert executor.attempts[-1].claim.trigger is Trigger.RETRY
    assert (await execution(stage.store, fresh)).state is State.COMPLETED


async def test_slow_attempts_end_as_timeout(stage: Stage, executor: ScriptedExecutor):
    executor.answer(Outcome(ErrorType.TIMEOUT, "no answer within 30 s"))
    job_id = await run_now(stage, retry_policy=RetryPolicy(delays=(1,)))
    await stage.tick()
    await stage.pass_time(5)
    (found,) = await stage.executions(job_id)
    assert (found.state, found.dead, found.error_type) == (State.TIMEOUT, True, ErrorType.TIMEOUT)
    assert (await stage.job(job_id)).failures == 1


async def test_status_410_pauses_the_job_with_a_reason(stage: Stage, executor: ScriptedExecutor):
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "gone", 410))
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    await stage.pass_time(180, step=10)
    assert len(executor.attempts) == 1
    job = await stage.job(job_id)
    assert (job.status, job.paused_by, job.pause_reason) == (
        JobStatus.PAUSED, "duetime", "its target answered 410 Gone",
    )  # fmt: skip
    assert await stage.states(job_id) == [State.FAILED]


async def test_status_410_of_a_one_off_job_is_a_plain_failure(stage: Stage, executor: ScriptedExecutor):
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "gone", 410))
    job_id = await run_now(stage)
    await stage.tick()
    assert (await stage.job(job_id)).status is JobStatus.COMPLETED
    assert await stage.states(job_id) == [State.FAILED]


async def test_an_exception_of_an_executor_is_a_failed_attempt(stage: Stage, executor: ScriptedExecutor):
    def fails(attempt: Attempt) -> Outcome:
        raise RuntimeError("a bug")

    executor.answer(fails)
    job_id = await run_now(stage, retry_policy=RetryPolicy(delays=(1,)))
    with capture_logs() as logs:
        await stage.tick()
    assert [log["event"] for log in logs] == ["an executor failed"]
    (found,) = await stage.executions(job_id)
    assert (found.state, found.error_type) == (State.RETRYING, ErrorType.INTERNAL_ERROR)
    assert "RuntimeError: a bug" in (found.error_message or "")


async def test_an_execution_that_was_not_sent_counts_no_attempt(stage: Stage, executor: ScriptedExecutor):
    """The lease was in doubt before the first byte was sent: the attempt does not count."""

    def not_at_first(attempt: Attempt) -> Outcome:
        if len(executor.attempts) == 1:
            raise NotSent
        return Outcome(http_status=200)

    executor.answer(not_at_first)
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    first, second = (attempt.claim for attempt in executor.attempts)
    assert (first.attempt, first.token) == (second.attempt, second.token) == (1, 1)
    (found,) = await stage.executions(job_id)
    assert (found.state, found.attempt) == (State.COMPLETED, 1)


async def test_a_manual_execution_runs_at_once(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    job_id = await stage.add_job(spec("every 1h"))
    await stage.tick()
    made = await add_execution(stage.store, job_id, NOW)
    stage.engine.term.claimer.hint(NOW)
    await stage.tick()
    assert [(attempt.claim.execution_id, attempt.claim.trigger) for attempt in executor.attempts] == [
        (made, Trigger.MANUAL)
    ]


# Cancellation


async def test_a_cancelled_attempt_stops_and_is_not_retried(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    job_id = await run_now(stage)
    await stage.tick()
    (running,) = await stage.executions(job_id)
    await stage.cancel_execution(running.execution_id)
    await stage.settle()
    (found,) = await stage.executions(job_id)
    assert (found.state, found.error_type, found.dead) == (State.CANCELLED, ErrorType.CANCELLED, False)
    assert len(executor.cancelled) == 1
    assert stage.engine.term.dispatcher.running() == 0
    await stage.pass_time(60, step=10)
    assert len(executor.attempts) == 1


async def test_a_slot_whose_execution_was_cancelled_runs_the_next_one(stage: Stage, executor: ScriptedExecutor):
    await stage.join(Limits(concurrency=1))
    executor.hold("https://slow.example")
    slow = await stage.add_job(spec("immediate", url="https://slow.example"))
    quick = [await stage.add_job(spec("immediate")) for _ in range(3)]
    await stage.tick()
    (running,) = await stage.executions(slow)
    await stage.cancel_execution(running.execution_id)
    await stage.settle()
    assert [await stage.states(job_id) for job_id in (slow, *quick)] == [
        [State.CANCELLED], [State.COMPLETED], [State.COMPLETED], [State.COMPLETED],
    ]  # fmt: skip


async def test_a_claim_that_has_not_started_is_cancelled_without_a_request(stage: Stage, executor: ScriptedExecutor):
    await stage.join(Limits(concurrency=1))
    executor.hold()
    await stage.add_job(spec("immediate"))
    waiting = await stage.add_job(spec("immediate"))
    await stage.tick()
    (found,) = await stage.executions(waiting)
    await stage.cancel_execution(found.execution_id)
    executor.let_go()
    await stage.settle()
    assert await stage.states(waiting) == [State.CANCELLED]
    assert len(executor.attempts) == 1


async def test_a_cancelled_retry_never_runs(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    job_id = await run_now(stage)
    await stage.tick()
    (waiting,) = await stage.executions(job_id)
    await stage.cancel_execution(waiting.execution_id)
    await stage.pass_time(120, step=10)
    assert len(executor.attempts) == 1
    assert await stage.states(job_id) == [State.CANCELLED]


async def test_cancelling_a_job_stops_its_attempts_and_its_timer(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    await stage.pass_time(60, step=60)
    for running in await stage.apply(c.CancelJob(stage.clock.now(), TENANT, job_id)):
        stage.engine.term.dispatcher.cancel(running)
    await stage.settle()
    await stage.pass_time(300, step=60)
    assert await stage.states(job_id) == [State.CANCELLED]
    assert (await stage.job(job_id)).status is JobStatus.CANCELLED


# Recording


@pytest.mark.parametrize("times", [1, 3])
async def test_a_result_is_kept_until_it_is_stored(stage: Stage, executor: ScriptedExecutor, times: int):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    job_id = await stage.add_job(spec("immediate"))
    flaky.fail_next(c.Finish, times)
    await stage.engine.term.timer.run_once()
    await stage.let_run()
    for _ in range(times):
        with pytest.raises(Exception, match="the disk is full"):
            await stage.engine.term.recorder.run_once()
        assert await stage.states(job_id) == [State.RUNNING]
        assert stage.engine.term.dispatcher.room() == Limits().capacity - 1, "an unwritten result still takes room"
    await stage.settle()
    assert flaky.failed == times
    assert await stage.states(job_id) == [State.COMPLETED]
    assert stage.engine.term.dispatcher.room() == Limits().capacity
    assert len(executor.attempts) == 1


async def test_results_keep_their_order_through_a_failure(stage: Stage):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    jobs = [await stage.add_job(spec("immediate"))]
    flaky.fail_next(c.Finish)
    await stage.engine.term.timer.run_once()
    await stage.let_run()
    with pytest.raises(Exception, match="the disk is full"):
        await stage.engine.term.recorder.run_once()
    jobs.append(await stage.add_job(spec("immediate")))
    await stage.tick()
    assert [await stage.states(job_id) for job_id in jobs] == [[State.COMPLETED], [State.COMPLETED]]


async def test_each_end_is_published_to_followers(stage: Stage, executor: ScriptedExecutor):
    executor.answer([FAILURE, Outcome(http_status=200)])
    await run_now(stage, retry_policy=RetryPolicy(delays=(1,)))
    following = stage.events.follow(TENANT, lambda: None)
    await stage.tick()
    await stage.pass_time(MINUTE // SECOND, step=10)
    events = [event for event in following.take() if event is not None]
    assert [(event.kind, event.data["attempt"]) for event in events] == [
        ("execution.started", 1), ("execution.retrying", 1), ("execution.started", 2), ("execution.completed", 2),
    ]  # fmt: skip


async def test_the_target_gets_the_request_of_the_job(stage: Stage, executor: ScriptedExecutor):
    job_id = await run_now(stage, timeout_seconds=7.5)
    await stage.tick()
    (attempt,) = executor.attempts
    assert (attempt.claim.job_id, attempt.claim.tenant) == (job_id, TENANT)
    assert (attempt.timeout_seconds, attempt.payload.url) == (7.5, URL)
