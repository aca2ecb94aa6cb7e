"""Chains of jobs, with a clock set by hand: the next job starts at once, also after a crash."""

from __future__ import annotations

import asyncio

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import LATEST
from duetime.domain.job import JobSpec, RetryPolicy
from duetime.domain.retry import LOST_ATTEMPTS
from duetime.domain.states import ErrorType, State, Trigger
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, add_execution, spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "404", 404)
NO_RETRY = RetryPolicy(max_retries=0)


def url_of(name: str) -> str:
    return f"https://{name}.example/"


def chained(name: str, *after: str, **fields: object) -> JobSpec:
    return spec("on_demand", key=name, name=name, url=url_of(name), after=after, **fields)


async def run(stage: Stage, job_id: str) -> None:
    await add_execution(stage.store, job_id, stage.clock.now())
    stage.engine.term.waiting_hint(stage.clock.now())


async def lose(stage: Stage) -> None:
    """Simulates kill -9: written data stays, and the node writes nothing more."""
    _, running = await stage.engine.term.dispatcher.drain(0)
    stage.engine.term.recorder.add = lambda *_: None  # type: ignore[method-assign,assignment]
    for attempt in running:
        attempt.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def began(executor: ScriptedExecutor) -> list[str]:
    return [attempt.payload.url.split("//")[1].split(".")[0] for attempt in executor.attempts]


async def test_the_jobs_of_a_chain_run_in_order(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    first = await stage.add_job(chained("extract"))
    await stage.add_job(chained("clean", "extract"))
    await stage.add_job(chained("count", "extract"))
    last = await stage.add_job(chained("report", "clean", "count"))
    await run(stage, first)
    for _ in range(3):
        await stage.tick()
    assert began(executor) == ["extract", "clean", "count", "report"]
    assert [attempt.claim.trigger for attempt in executor.attempts] == [Trigger.MANUAL, *[Trigger.AFTER] * 3]
    assert await stage.states(last) == [State.COMPLETED]
    assert (await stage.job(last)).due_at == LATEST


async def test_the_end_of_a_job_wakes_the_timer_for_the_next_one(stage: Stage, executor: ScriptedExecutor):
    """All loops run and the clock stands still: the end of a job wakes the timer."""
    engine = stage.make_engine()
    await engine.start()
    try:
        first = await stage.add_job(chained("a"))
        await stage.add_job(chained("b", "a"))
        await stage.add_job(chained("c", "b"))
        await run(stage, first)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await executor.until_started(3)
        assert began(executor) == ["a", "b", "c"]
        assert stage.clock.now() == NOW
    finally:
        await engine.stop()


async def test_a_failure_starts_only_the_jobs_that_run_after_failures(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE, url_of("a"))
    await stage.join()
    first = await stage.add_job(chained("a", retry_policy=NO_RETRY))
    await stage.add_job(chained("good", "a"))
    await stage.add_job(chained("bad", "a", on="failure"))
    await stage.add_job(chained("always", "a", on="any"))
    await run(stage, first)
    await stage.tick()
    await stage.tick()
    assert sorted(began(executor)) == ["a", "always", "bad"]


async def test_a_crash_between_the_end_and_the_start_loses_nothing(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    first = await stage.add_job(chained("a"))
    then = await stage.add_job(chained("b", "a"))
    await run(stage, first)
    await stage.engine.term.claimer.run_once()
    await stage.settle()  # the end of the first is written, and no timer has run since
    assert (await stage.job(then)).due_at == NOW
    await lose(stage)

    stage.clock.advance(5)
    await stage.join()
    await stage.tick()
    (execution,) = await stage.executions(then)
    assert (execution.state, execution.trigger, execution.scheduled_at) == (State.COMPLETED, Trigger.AFTER, NOW)
    assert began(executor) == ["a", "b"]


async def test_after_a_long_crash_the_catch_up_policy_decides(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    first = await stage.add_job(chained("a"))
    then = await stage.add_job(chained("b", "a"))
    never = await stage.add_job(chained("c", "a", catch_up={"policy": "skip"}))
    await run(stage, first)
    await stage.engine.term.claimer.run_once()
    await stage.settle()
    await lose(stage)
    stage.clock.advance(600)
    await stage.join()
    await stage.tick()
    (execution,) = await stage.executions(then)
    assert (execution.state, execution.trigger) == (State.COMPLETED, Trigger.CATCH_UP)
    assert await stage.executions(never) == []
    (skip,) = await stage.store.list_skipped(never, 10)
    assert (skip.first_at, skip.count, skip.reason) == (NOW, 1, "missed")


async def test_an_execution_that_fails_with_its_node_starts_the_jobs_that_run_after_failures(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold(url_of("a"))
    await stage.join()
    first = await stage.add_job(chained("a"))
    then = await stage.add_job(chained("alarm", "a", on="failure"))
    await run(stage, first)
    for _ in range(LOST_ATTEMPTS):
        await stage.tick()
        await lose(stage)
        await stage.join()
        await stage.engine.term.reconciler.run_once()
    await stage.tick()
    assert await stage.states(first) == [State.FAILED]
    assert await stage.states(then) == [State.COMPLETED]


async def test_the_overlap_policy_decides_a_start_while_the_last_execution_is_open(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold(url_of("b"))
    await stage.join()
    first = await stage.add_job(chained("a"))
    then = await stage.add_job(chained("b", "a"))
    for _ in range(2):
        await run(stage, first)
        await stage.tick()
        await stage.pass_time(1)
    assert await stage.states(then) == [State.RUNNING, State.SKIPPED]
    executor.let_go(url_of("b"))
    await stage.settle()


async def test_a_job_on_demand_runs_once_per_request(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(spec("on_demand"))
    await stage.pass_time(120, step=30)
    assert await stage.states(job_id) == []
    await run(stage, job_id)
    await stage.tick()
    (execution,) = await stage.executions(job_id)
    assert (execution.state, execution.trigger) == (State.COMPLETED, Trigger.MANUAL)
    record = await stage.job(job_id)
    assert (record.status, record.due_at) == ("PENDING", LATEST)


async def test_a_paused_job_breaks_the_chain_and_the_skip_is_recorded(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    first = await stage.add_job(chained("a"))
    then = await stage.add_job(chained("b", "a"))
    await stage.apply(c.PauseJob(NOW, TENANT, then, "ann", "x"))
    await run(stage, first)
    await stage.tick()
    await stage.pass_time(2)
    assert began(executor) == ["a"]
    assert [skip.reason for skip in await stage.store.list_skipped(then, 10)] == ["paused"]


async def test_a_chain_of_a_hundred_jobs_runs_to_its_end(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    jobs = [await stage.add_job(chained(f"k{n}", *((f"k{n - 1}",) if n else ()))) for n in range(100)]
    await run(stage, jobs[0])
    for _ in range(100):
        await stage.tick()
    assert began(executor) == [f"k{n}" for n in range(100)]
