"""What the engine emits and reads, on a real store: the metrics that a node would show."""

from __future__ import annotations

import pytest

from duetime.domain.execution import Outcome
from duetime.domain.job import Overlap
from duetime.domain.states import ErrorType
from duetime.engine.dispatcher import Limits
from duetime.engine.readings import read_term
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.measured_store import measured
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.telemetry.readings import DUE, QUEUED, RECORDING
from engine.stage import Stage, until
from metrics.scene import READINGS, samples_of
from samples import spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "500", 500)


class Measured:
    """An engine whose telemetry reaches metrics, as in a node."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.telemetry = Telemetry()
        self.metrics = Metrics(self.telemetry)

    async def join(self, limits: Limits | None = None) -> None:
        self.stage.telemetry = self.telemetry
        await self.stage.join(limits, measured(self.stage.store, self.telemetry))

    def samples(self) -> dict[str, float]:
        return samples_of(self.metrics.render(READINGS)[1].decode())


@pytest.fixture
async def node(stage: Stage) -> Measured:
    return Measured(stage)


async def test_an_execution_is_measured_from_its_instant_to_its_end(node: Measured) -> None:
    await node.join()
    stage = node.stage
    await stage.add_job(spec("every 1m"))
    before = node.samples()
    await stage.pass_time(120, step=60)
    after = node.samples()
    web = '{type="http_request"}'
    assert after['duetime_executions_created_total{trigger="schedule"}'] == 2
    assert after["duetime_pages_fired_total"] - before["duetime_pages_fired_total"] == 2
    assert after['duetime_executions_ended_total{error_type="none",state="COMPLETED",type="http_request"}'] == 2
    for name in ("execution_lateness_seconds", "attempt_duration_seconds", "execution_end_to_end_seconds"):
        assert after[f"duetime_{name}_count{web}"] == 2, name
    assert after["duetime_execution_queue_wait_seconds_count"] == 2
    assert after['duetime_stage_wait_seconds_count{stage="due"}'] == 2
    assert after['duetime_store_write_seconds_count{command="Fire"}'] == 2
    assert after['duetime_store_write_seconds_count{command="Finish"}'] == 2


async def test_a_late_execution_counts_as_late_by_the_clock(node: Measured) -> None:
    await node.join()
    stage = node.stage
    await stage.add_job(spec("every 1m"))
    stage.clock.advance(63)
    await stage.tick()
    assert node.samples()['duetime_execution_lateness_seconds_sum{type="http_request"}'] == 3.0


async def test_an_overlap_is_counted_as_skipped(node: Measured) -> None:
    await node.join()
    stage = node.stage
    stage.executor.hold()
    await stage.add_job(spec("every 1m", overlap=Overlap.SKIP))
    await stage.pass_time(120, step=60)
    assert node.samples()['duetime_instants_skipped_total{reason="overlap"}'] == 1
    stage.executor.let_go()


async def test_readings_tell_what_runs_and_what_waits_by_tenant(node: Measured) -> None:
    await node.join(Limits(concurrency=2, tenant=2))
    stage = node.stage
    stage.executor.hold()
    for tenant in ("a", "a", "a", "b"):
        await stage.add_job(spec("every 1m"), tenant=tenant)
    stage.clock.advance(60)
    term = stage.engine.term
    await term.timer.run_once()
    await until(lambda: len(term.dispatcher.queue.waiting) + term.dispatcher.running() == 4)
    readings = read_term(term)
    assert readings.in_flight["http_request"] == term.dispatcher.running()
    assert readings.limits["http_request"] == 2
    assert readings.limits["script"] == 2
    assert readings.places == 4
    assert sum(readings.waiting[QUEUED].values()) == 4 - term.dispatcher.running()
    assert readings.shards == 64
    assert readings.services["timer"]
    stage.executor.let_go()
    await until(lambda: term.dispatcher.running() == 0)
    assert sum(read_term(term).waiting[RECORDING].values()) > 0
    await term.recorder.run_once()
    assert not read_term(term).waiting[RECORDING]


async def test_due_timers_that_were_not_fired_are_counted_by_tenant(node: Measured) -> None:
    await node.join()
    stage = node.stage
    await stage.add_job(spec("every 1m"), tenant="a")
    term = stage.engine.term
    stage.clock.advance(59.8)
    await stage.turn_timer()
    readings = read_term(term)
    assert readings.read_ahead == 1
    assert not readings.waiting[DUE]
    stage.clock.advance(0.2)
    assert read_term(term).waiting[DUE] == {"a": 1}
    await stage.tick()
    assert not read_term(term).waiting[DUE]


async def test_open_circuits_are_counted_by_state(node: Measured) -> None:
    await node.join()
    stage = node.stage
    stage.executor.answer(FAILURE)
    for _ in range(5):
        await stage.add_job(spec("immediate", retry_policy={"max_retries": 0}))
        await stage.tick()
    assert read_term(stage.engine.term).circuits["OPEN"] == 1
