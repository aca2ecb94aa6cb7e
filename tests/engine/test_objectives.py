"""Objectives: failing, late and missed executions burn the budget that the engine tells of; chosen skips do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from duetime.domain import commands as c
from duetime.domain.alert_rules import AlertKind, AlertRule
from duetime.domain.budgets import JobStanding
from duetime.domain.execution import Outcome
from duetime.domain.instants import SECOND
from duetime.domain.job import CatchUp, JobStatus, RetryPolicy, Slo
from duetime.domain.objectives import ObjectiveKind
from duetime.domain.states import ErrorType
from duetime.engine import watched as watched_subjects
from duetime.engine.objectives import JOBS_OF_A_TURN, Objectives
from duetime.engine.statistics import Collected
from duetime.engine.watched import WatchedSubjects
from duetime.telemetry.emitted import ObjectivesRead
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.measured_store import measured
from duetime.telemetry.prometheus.families import Gauge
from duetime.telemetry.prometheus.objectives import LABELS, MOST_OBJECTIVES, ObjectiveMetrics
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, add_job, job_of, new_job, spec

SLO = Slo(lateness_seconds=5, on_time=90, success=90, window="1h")
GONE = Outcome(ErrorType.HTTP_ERROR, "gone", 404)
LOST = Outcome(ErrorType.HTTP_ERROR, "busy", 503)


async def watched_job(stage: Stage, **fields: object) -> str:
    await stage.join(store=measured(stage.store, stage.telemetry))
    job_id = await stage.add_job(spec("every 1m", **{"slo": SLO, **fields}))
    await stage.engine.term.watched.run_once()
    return job_id


async def known(stage: Stage) -> Sequence[JobStanding]:
    await stage.engine.term.statistics.flush()
    await stage.engine.term.objectives.run_once()
    return stage.engine.term.objectives.known()


async def counts(stage: Stage) -> dict[str, tuple[int, int]]:
    """Returns good and total executions, by kind."""
    budgets = {str(one.standing.objective.kind): one.standing.budget for one in await known(stage)}
    return {kind: (budget.good, budget.total) for kind, budget in budgets.items()}


async def test_a_failure_burns_the_budget_of_success_and_not_that_of_lateness(stage: Stage, executor: ScriptedExecutor):
    await watched_job(stage)
    executor.answer([SUCCESS] * 9 + [GONE])
    await stage.pass_time(10 * 60, step=10)
    assert await counts(stage) == {"lateness": (10, 10), "success": (9, 10)}
    success = (await known(stage))[1].standing
    assert success.budget.left == pytest.approx(0)
    assert success.burning is None
    await stage.pass_time(10 * 60, step=10)
    success = (await known(stage))[1].standing
    assert (success.budget.good, success.budget.total, success.budget.errors_left) == (9, 20, -9)
    assert success.budget.left < 0


async def test_an_execution_that_is_retried_counts_once_when_it_has_ended(stage: Stage, executor: ScriptedExecutor):
    await watched_job(stage, retry_policy=RetryPolicy(delays=(1, 1)))
    executor.answer([LOST, LOST, SUCCESS])
    await stage.pass_time(60 + 5)
    assert await counts(stage) == {"lateness": (1, 1), "success": (1, 1)}


async def test_a_start_at_the_bound_is_on_time_and_one_beyond_is_late(stage: Stage, clock: HandClock):
    job_id = await watched_job(stage)
    for late in (5 * SECOND, 5 * SECOND + 1):
        due_at = (await job_of(stage.store, job_id)).due_at
        assert due_at is not None
        clock.set(due_at + late)
        await stage.tick()
    assert await counts(stage) == {"lateness": (1, 2), "success": (2, 2)}


async def test_a_missed_instant_is_bad_for_both(stage: Stage, clock: HandClock):
    await watched_job(stage, catch_up=CatchUp("skip"))
    clock.advance(5 * 60 + 30)
    await stage.tick()
    assert await counts(stage) == {"lateness": (0, 5), "success": (0, 5)}


async def test_what_a_user_chose_not_to_run_counts_for_neither(stage: Stage, clock: HandClock):
    job_id = await watched_job(stage)
    await stage.apply(c.PauseJob(clock.now(), TENANT, job_id, "ann", "holidays"))
    record = await job_of(stage.store, job_id)
    assert record.status == JobStatus.PAUSED
    clock.advance(10 * 60)
    await stage.tick()
    assert await counts(stage) == {"lateness": (0, 0), "success": (0, 0)}


async def test_a_job_without_objectives_any_more_is_forgotten(stage: Stage, clock: HandClock):
    job_id = await watched_job(stage)
    await stage.pass_time(60)
    assert len(await known(stage)) == 2
    await stage.apply(c.CancelJob(clock.now(), TENANT, job_id))
    assert await known(stage) == []


async def test_a_failing_job_burns_fast_enough_for_an_alert_and_then_no_more(stage: Stage, executor: ScriptedExecutor):
    await watched_job(stage, slo=Slo(success=99, window="1h"))
    executor.answer(GONE)
    await stage.pass_time(3 * 60, step=10)
    await known(stage)
    (burning,) = stage.engine.term.objectives.burning()
    assert burning.standing.objective.kind is ObjectiveKind.SUCCESS
    assert burning.standing.burning is not None
    executor.answer(SUCCESS)
    await stage.pass_time(10 * 60, step=10)
    await known(stage)
    assert stage.engine.term.objectives.burning() == []


async def test_a_job_that_is_created_is_watched_at_once(stage: Stage):
    await stage.make_engine(store=measured(stage.store, stage.telemetry)).start()
    try:
        woken = asyncio.Event()
        collected = stage.engine._around.collected
        watch = collected.watch
        collected.watch = lambda *wanted: (watch(*wanted), woken.set())  # type: ignore[method-assign]
        made = spec("every 1m", slo=SLO)
        await stage.engine._around.store.apply([c.CreateJobs(stage.clock.now(), (new_job(made),))])
        await asyncio.wait_for(woken.wait(), 10)
    finally:
        await stage.engine.stop()


async def test_metrics_have_the_worst_objectives_and_no_more(stage: Stage, executor: ScriptedExecutor):
    metrics = ObjectiveMetrics(stage.telemetry)
    job_id = await watched_job(stage)
    executor.answer(GONE)
    await stage.pass_time(2 * 60, step=10)
    (_, success) = await known(stage)
    labels = dict(zip(LABELS, (TENANT, job_id, "success"), strict=True))
    assert value(metrics.left, labels) == success.standing.budget.left < 0
    assert value(metrics.burn, labels | {"over": "1h"}) == pytest.approx(10)
    many = [success._replace(job_id=str(number)) for number in range(50)]
    stage.telemetry.emit(ObjectivesRead(many))
    assert len(metrics.left.collect().samples) == MOST_OBJECTIVES
    stage.telemetry.emit(ObjectivesRead([]))
    assert value(metrics.left, labels) is None


async def test_expected_jobs_of_others_do_not_delay_an_objective(stage: Stage):
    await stage.join()
    for _ in range(3 * JOBS_OF_A_TURN):
        await add_job(stage.store, spec("every 1h", expect_every="1d"), tenant="a-evil")
    job_id = await add_job(stage.store, spec("every 1h", slo=Slo(success=99.0)))
    objectives = Objectives(stage.store, stage.clock, Telemetry(), lambda: True)
    await objectives.run_once()
    assert [one.job_id for one in objectives.known()] == [job_id]


async def test_subjects_of_others_do_not_hide_those_of_a_tenant(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    for name, most in (("PAGE", 4), ("MOST_RULES", 16), ("MOST_JOBS", 8)):
        monkeypatch.setattr(watched_subjects, name, most)
    rules = [
        c.PutAlertRule(NOW, tenant, AlertRule(f"r{place}", AlertKind.DEAD_LETTERS, scope="tag:a=b"), "eve")
        for tenant, number in (("a-evil", 30), (TENANT, 1))
        for place in range(number)
    ]
    assert await stage.store.apply(rules) == [None] * 31
    for _ in range(20):
        await add_job(stage.store, spec("every 1h", expect_every="1d"), tenant="a-evil")
    job_id = await add_job(stage.store, spec("every 1h", slo=Slo(success=99.0)))
    collected = Collected(Telemetry(), stage.clock)
    service = WatchedSubjects(stage.store, stage.clock, collected)
    for _ in range(9):
        for _ in range(4):
            await service.run_once()
        assert collected._watching[TENANT] == ({job_id}, {("a", "b")})  # also while the next pass is read


def value(gauge: Gauge, labels: dict[str, str]) -> float | None:
    return next((sample.value for sample in gauge.collect().samples if sample.labels == labels), None)
