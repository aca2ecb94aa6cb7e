"""Restarts: what happens to the executions of a node that is killed or stopped."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.execution import conclude
from duetime.domain.job import RetryPolicy
from duetime.domain.retry import LOST_ATTEMPTS
from duetime.domain.states import ErrorType, State
from duetime.engine.dispatcher import Limits
from duetime.testing import SUCCESS, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import NOW, TENANT, execution, spec


async def lose(stage: Stage) -> None:
    """Simulates kill -9: the executions stay RUNNING in the store, and the node writes nothing more."""
    _, running = await stage.engine.term.dispatcher.drain(0)
    stage.engine.term.recorder.add = lambda *_: None  # type: ignore[method-assign,assignment]
    for attempt in running:
        attempt.cancel()
    await asyncio.gather(*running, return_exceptions=True)


# Lost


async def test_an_execution_of_an_expired_node_is_retried_under_the_same_id(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("immediate", retry_policy=RetryPolicy(max_retries=0)))
    await stage.tick()
    await lose(stage)
    executor.let_go()

    engine = await stage.join()
    with capture_logs() as logs:
        await engine.term.reconciler.run_once()
    assert [(log["event"], log["count"]) for log in logs] == [
        ("executions of expired nodes and workers were taken over", 1)
    ]
    await stage.tick()
    first, second = (attempt.claim for attempt in executor.attempts)
    assert first.execution_id == second.execution_id
    assert [(attempt.claim.attempt, attempt.claim.token) for attempt in executor.attempts] == [(1, 1), (2, 2)]
    assert await stage.states(job_id) == [State.COMPLETED]
    attempts = await stage.store.list_attempts(first.execution_id)
    assert [(a.attempt, a.error_type) for a in attempts] == [(1, ErrorType.LEASE_LOST), (2, None)]


async def test_the_late_result_of_a_fenced_node_is_refused_and_logged(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    earlier = await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()

    later = await stage.join()
    await later.term.reconciler.run_once()
    executor.let_go()
    await until(lambda: len(executor.finished) == 1)
    with capture_logs() as logs:
        stage.engine = earlier
        await stage.settle()
    assert [log["event"] for log in logs] == ["a late result was refused: this node no longer holds the claim"]
    assert await stage.states(job_id) == [State.QUEUED]
    stage.engine = later
    await stage.tick()
    assert await stage.states(job_id) == [State.COMPLETED]
    assert earlier.term.dispatcher.room() == Limits().capacity, "a refused claim takes no room"


async def test_an_execution_that_loses_its_node_each_time_becomes_a_dead_letter(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    for _ in range(LOST_ATTEMPTS):
        await stage.tick()
        await lose(stage)
        await stage.join()
        await stage.engine.term.reconciler.run_once()
    await stage.tick()
    (dead,) = await stage.executions(job_id)
    assert (dead.state, dead.dead, dead.attempt) == (State.FAILED, True, LOST_ATTEMPTS)
    assert len(executor.attempts) == LOST_ATTEMPTS


async def test_many_executions_of_an_expired_node_are_taken_over_page_by_page(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join()
    jobs = [await stage.add_job(spec("immediate")) for _ in range(25)]
    await stage.tick()
    await lose(stage)
    executor.let_go()
    await stage.join(reconcile_batch=10)
    await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert [await stage.states(job_id) for job_id in jobs] == [[State.COMPLETED]] * 25


async def test_executions_of_a_living_node_are_not_taken_over(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(node_name="node-1")
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    other = await stage.join(node_name="node-2")
    await other.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]


async def test_a_cancelled_execution_of_an_expired_node_is_cancelled(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join()
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    (running,) = await stage.executions(job_id)
    await stage.apply(c.CancelExecution(NOW, TENANT, running.execution_id))
    await lose(stage)
    await stage.join()
    await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert await stage.states(job_id) == [State.CANCELLED]
    assert len(executor.attempts) == 1


# Stopped


async def test_a_stop_waits_for_running_attempts(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    engine = stage.make_engine()
    await engine.start()
    job_id = await stage.add_job(spec("immediate"))
    await executor.until_started(1)
    stopping = asyncio.ensure_future(engine.stop())
    await until(lambda: engine.term.dispatcher.room() == 0)
    assert executor.started
    executor.let_go()
    await stopping
    assert await stage.states(job_id) == [State.COMPLETED]
    assert not executor.started


async def test_claims_that_did_not_start_in_the_drain_are_released_without_a_counted_attempt(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold()
    await stage.join(Limits(concurrency=1), drain_seconds=0.01)
    begun = await stage.add_job(spec("immediate", priority=9))
    await stage.tick()
    waiting = await stage.add_job(spec("immediate"))
    await stage.tick()
    await stage.engine.stop()
    (first,), (second,) = await stage.executions(begun), await stage.executions(waiting)
    assert (first.state, first.attempt) == (State.QUEUED, 1)  # lost with its node: counted
    assert (second.state, second.attempt) == (State.QUEUED, 0)
    assert len(executor.cancelled) == 1
    assert not executor.started

    executor.let_go()
    await stage.join()
    await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert [(attempt.claim.attempt, attempt.claim.token) for attempt in executor.attempts[1:]] == [(2, 2), (1, 2)]
    assert await stage.states(begun) == await stage.states(waiting) == [State.COMPLETED]


async def test_a_stopped_node_is_fenced(stage: Stage):
    engine = await stage.join()
    await engine.stop()
    answer = await stage.apply(c.ClaimExecutions(engine.node, NOW, 1, (TENANT,)))
    assert answer.code == "STALE_WRITE"


async def test_a_stop_writes_the_results_that_a_failing_store_had_refused(stage: Stage):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    job_id = await stage.add_job(spec("immediate"))
    flaky.fail_next(c.Finish)
    await stage.engine.term.timer.run_once()
    await stage.let_run()
    with pytest.raises(Exception, match="the disk is full"):
        await stage.engine.term.recorder.run_once()
    stopping = asyncio.ensure_future(stage.engine.stop())
    await stage.engine.term.recorder.run_once()
    await stopping
    assert await stage.states(job_id) == [State.COMPLETED]


async def test_a_restarted_engine_continues(stage: Stage, executor: ScriptedExecutor):
    job_ids = []
    for n in range(3):
        engine = stage.make_engine()
        await engine.start()
        job_ids.append(await stage.add_job(spec("immediate")))
        await executor.until_ended(n + 1)
        await engine.stop()
    assert [await stage.states(job_id) for job_id in job_ids] == [[State.COMPLETED]] * 3


async def test_a_finish_with_an_old_token_changes_nothing(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    engine = await stage.join()
    await stage.add_job(spec("every 1m"))
    await stage.pass_time(60, step=60)
    claim = executor.attempts[0].claim
    stale = msgspec.structs.replace(claim, token=0)
    end = conclude(stale, SUCCESS, NOW, NOW, 0.5)
    assert await stage.apply(c.Finish(engine.node, NOW, (end,))) == [claim.execution_id]
    assert (await execution(stage.store, claim.execution_id)).state is State.RUNNING
