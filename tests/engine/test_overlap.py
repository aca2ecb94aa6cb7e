"""Overlap, from end to end: how a due instant is decided while the last execution still runs."""

from __future__ import annotations

import pytest

from duetime.domain.instants import MINUTE
from duetime.domain.states import State
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from samples import NOW, spec


async def three_minutes(stage: Stage, policy: str) -> str:
    """Returns a job that is due each minute and whose first execution does not end, after three instants."""
    await stage.join()
    stage.executor.hold()
    job_id = await stage.add_job(spec("every 1m", overlap=policy))
    await stage.pass_time(180, step=60)
    return job_id


async def let_go(stage: Stage) -> None:
    stage.executor.let_go()
    await stage.settle()
    await stage.tick()


@pytest.mark.parametrize(
    ("policy", "meanwhile", "in_the_end"),
    [
        ("allow", ["RUNNING"] * 3, ["COMPLETED"] * 3),
        ("skip", ["RUNNING", "SKIPPED", "SKIPPED"], ["COMPLETED", "SKIPPED", "SKIPPED"]),
        ("queue_one", ["RUNNING", "QUEUED", "SKIPPED"], ["COMPLETED", "COMPLETED", "SKIPPED"]),
        ("queue_all", ["RUNNING", "QUEUED", "QUEUED"], ["COMPLETED"] * 3),
        ("cancel_running", ["CANCELLED", "CANCELLED", "RUNNING"], ["CANCELLED", "CANCELLED", "COMPLETED"]),
    ],
)
async def test_each_policy_decides_every_instant(
    stage: Stage, policy: str, meanwhile: list[str], in_the_end: list[str]
):
    job_id = await three_minutes(stage, policy)
    assert await stage.states(job_id) == meanwhile
    await let_go(stage)
    assert await stage.states(job_id) == in_the_end
    assert [e.scheduled_at for e in await stage.executions(job_id)] == [NOW + n * MINUTE for n in (1, 2, 3)]


async def test_queued_executions_run_one_at_a_time(stage: Stage, executor: ScriptedExecutor):
    job_id = await three_minutes(stage, "queue_all")
    assert executor.running() == 1
    await let_go(stage)
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + n * MINUTE for n in (1, 2, 3)]
    assert await stage.states(job_id) == [State.COMPLETED] * 3


async def test_an_instant_after_the_end_of_the_last_execution_runs(stage: Stage, executor: ScriptedExecutor):
    await three_minutes(stage, "skip")
    await let_go(stage)
    await stage.pass_time(60, step=60)
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + MINUTE, NOW + 4 * MINUTE]


async def test_late_executions_of_a_short_downtime_run_one_after_the_other(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    executor.hold()
    job_id = await stage.add_job(spec("every 1s"))
    stage.clock.advance(5)
    await stage.tick()
    assert executor.running() == 1
    assert await stage.states(job_id) == [State.RUNNING] + [State.QUEUED] * 4
    await let_go(stage)
    assert [attempt.claim.scheduled_at - NOW for attempt in executor.attempts] == [1000, 2000, 3000, 4000, 5000]


async def test_the_end_of_an_execution_hints_at_the_queued_one_of_its_job(stage: Stage, executor: ScriptedExecutor):
    engine = await stage.join()
    executor.hold()
    await stage.add_job(spec("every 1s"))
    stage.clock.advance(5)
    await stage.tick()
    hints: list[int] = []
    engine.term.claimer.hint = hints.append  # type: ignore[method-assign]
    executor.let_go()
    await stage.settle()
    assert hints == [stage.clock.now()]


async def test_the_end_of_an_execution_without_a_queued_one_sends_no_hint(stage: Stage, executor: ScriptedExecutor):
    """Each hint costs a query."""
    engine = await stage.join()
    hints: list[int] = []
    engine.term.claimer.hint = hints.append  # type: ignore[method-assign]
    await stage.add_job(spec("every 1s"))
    await stage.pass_time(3)
    assert len(executor.attempts) == 3
    assert hints == []


@pytest.mark.parametrize(
    ("policy", "in_the_end"),
    [
        ("allow", ["COMPLETED"] * 6),
        ("skip", ["COMPLETED"] + ["SKIPPED"] * 5),
        ("queue_one", ["COMPLETED"] * 2 + ["SKIPPED"] * 4),
        ("queue_all", ["COMPLETED"] * 6),
        ("cancel_running", ["CANCELLED"] + ["SKIPPED"] * 4 + ["COMPLETED"]),
    ],
)
async def test_the_overlap_policy_decides_late_instants_during_an_open_execution(
    stage: Stage, executor: ScriptedExecutor, policy: str, in_the_end: list[str]
):
    await stage.join()
    executor.hold()
    job_id = await stage.add_job(spec("every 1s", overlap=policy))
    await stage.pass_time(1)
    stage.clock.advance(5)
    await stage.tick()
    await let_go(stage)
    await stage.tick()
    assert await stage.states(job_id) == in_the_end
    ran = [number for number, state in enumerate(in_the_end, 1) if state != "SKIPPED"]
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + number * 1000 for number in ran]
