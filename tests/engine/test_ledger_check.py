"""A node looks now and then whether it holds all that the ledger says it runs."""

from __future__ import annotations

from duetime.domain.instants import SECOND
from duetime.domain.job import Delivery, Overlap
from duetime.domain.states import ErrorType, State
from duetime.engine.dispatcher import Limits
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from samples import spec

URL = "https://hook.example/run"


async def lose(stage: Stage, job_id: str) -> None:
    """As a defect would: the claim is in the ledger, and nowhere else."""
    (execution,) = await stage.executions(job_id)
    run = stage.engine.dispatcher._queue.waiting[execution.execution_id]
    stage.engine.dispatcher._queue.remove(run)
    stage.engine.dispatcher.recorded([run])


async def stuck(stage: Stage, executor: ScriptedExecutor, **fields: object) -> str:
    executor.hold(URL)
    await stage.join(Limits(concurrency=1))
    await stage.add_job(spec("immediate", url=URL, priority=9))
    await stage.tick()
    job_id = await stage.add_job(spec("immediate", **fields))
    await stage.tick()
    await lose(stage, job_id)
    return job_id


async def test_an_execution_that_the_node_lost_is_returned_and_runs(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor, overlap=Overlap.SKIP)
    check = stage.engine.ledger_check
    next_at = await check.run_once()
    assert next_at > stage.clock.now()
    assert await stage.states(job_id) == [State.RUNNING], "it may be on its way from the store to the dispatcher"
    stage.clock.set(next_at)
    await check.run_once()
    assert await stage.states(job_id) == [State.QUEUED]
    executor.let_go(URL)
    await stage.settle()
    await stage.tick()
    assert await stage.states(job_id) == [State.COMPLETED]
    (attempt, _) = await stage.store.list_attempts((await stage.executions(job_id))[0].execution_id)
    assert attempt.error_type is ErrorType.LEASE_LOST


async def test_what_is_to_run_at_most_once_is_not_run_again(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor, delivery=Delivery.AT_MOST_ONCE)
    for _ in range(2):
        stage.clock.set(await stage.engine.ledger_check.run_once())
    assert await stage.states(job_id) == [State.FAILED]


async def test_what_runs_waits_or_is_about_to_be_recorded_is_left_alone(stage: Stage, executor: ScriptedExecutor):
    executor.hold(URL)
    await stage.join(Limits(concurrency=1))
    jobs = [await stage.add_job(spec("immediate", url=URL)) for _ in range(3)]
    await stage.tick()
    check = stage.engine.ledger_check
    for _ in range(3):
        stage.clock.set(await check.run_once())
    assert [await stage.states(job_id) for job_id in jobs] == [[State.RUNNING]] * 3
    executor.let_go(URL)
    await stage.let_run()  # ended, and not yet recorded
    for _ in range(3):
        stage.clock.set(await check.run_once())
    await stage.settle()
    assert [await stage.states(job_id) for job_id in jobs] == [[State.COMPLETED]] * 3


async def test_a_later_claim_of_the_same_execution_is_another_claim(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor)
    check = stage.engine.ledger_check
    await check.run_once()
    ((lost, token),) = check._missing
    check._missing = frozenset({(lost, token - 1)})
    stage.clock.set(stage.clock.now() + 60 * SECOND)
    await check.run_once()
    assert await stage.states(job_id) == [State.RUNNING], "seen once, with that token"
