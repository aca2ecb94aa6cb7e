"""A clock that was ahead is set right: earlier decisions stay, and nothing else starts before its instant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from duetime.domain import commands as c
from duetime.domain.execution import ErrorType, Outcome
from duetime.domain.instants import SECOND, format_instant
from duetime.domain.states import State
from duetime.engine.dispatcher import Limits
from duetime.engine.service import Service
from duetime.ports.store import Store
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.stage import Stage, until
from samples import NOW, new_job, spec

HALF_PAST = "2026-01-01T00:30:00Z"
URL = "https://later.example/run"
FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500)


class Interrupted:
    """A store that calls a function while the next waiting instant is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jump: float = 0.0
        self.clock: HandClock

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        waiting_at = await self._store.next_waiting_at(tenant, only)
        self.clock.jump(self.jump)
        return waiting_at


@pytest.fixture
async def waiting(stage: Stage, executor: ScriptedExecutor) -> str:
    """Returns the job of a waiting claim. It is due at half past; the clock was an hour ahead until now."""
    executor.hold()
    await stage.join(Limits(concurrency=1), drain_seconds=0.01)
    await stage.add_job(spec("immediate", priority=9))
    await stage.tick()
    job_id = await stage.add_job(spec(HALF_PAST, url=URL))
    stage.clock.jump(3600)
    await stage.turn_timer()
    assert (stage.engine.term.dispatcher.running(), stage.engine.term.dispatcher.waiting()) == (1, 1)
    stage.clock.jump(-3600)
    return job_id


async def test_a_claim_made_at_its_instant_runs_after_the_clock_was_set_back(
    stage: Stage, executor: ScriptedExecutor, waiting: str
):
    executor.let_go()
    await stage.tick()
    assert await stage.states(waiting) == [State.COMPLETED]
    await stage.pass_time(3600, step=60)
    assert len(executor.attempts) == 2


async def test_a_released_execution_waits_for_its_instant(stage: Stage, executor: ScriptedExecutor, waiting: str):
    await stage.engine.stop()
    executor.let_go()
    await stage.join()
    await stage.engine.term.reconciler.run_once()
    await stage.pass_time(1799, step=60)
    assert await stage.states(waiting) == [State.QUEUED]
    await stage.pass_time(1)
    assert await stage.states(waiting) == [State.COMPLETED]


async def test_a_retry_does_not_run_before_the_scheduled_instant(
    stage: Stage, executor: ScriptedExecutor, waiting: str
):
    executor.answer([FAILURE, SUCCESS], URL)
    executor.let_go()
    await stage.pass_time(1800, step=60)
    (execution,) = await stage.executions(waiting)
    assert (execution.state, execution.attempt) == (State.RETRYING, 1)
    await stage.pass_time(60)
    assert await stage.states(waiting) == [State.COMPLETED]


async def test_a_claim_uses_the_clock_at_the_time_of_the_claim(
    stage: Stage, clock: HandClock, executor: ScriptedExecutor, waiting: str
):
    await stage.engine.stop()  # what it held is to be claimed at half past
    executor.let_go()
    store = Interrupted(stage.store)
    store.clock = clock
    await stage.join(store=store)  # type: ignore[arg-type]
    clock.jump(3600)
    store.jump = -3600.0
    await stage.engine.term.claimer.run_once()
    await stage.settle()
    assert (clock.now(), await stage.states(waiting)) == (NOW, [State.QUEUED])


class Asleep(Service):
    """A service whose turn reads the clock, which is set back before the turn ends."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__("asleep", clock)
        self.turns = 0

    async def run_once(self) -> int:
        now = self._clock.now()
        self.turns += 1
        if self.turns == 1:
            self._clock.jump(-3600)  # type: ignore[attr-defined]
        return now + SECOND


async def test_a_clock_set_back_during_a_turn_does_not_prolong_the_sleep_of_a_service(clock: HandClock):
    service = Asleep(clock)
    await service.start()
    await until(lambda: clock.waiting() == 1)
    clock.advance(1)
    await until(lambda: service.turns >= 2)
    await service.stop()


async def test_timers_without_a_hint_are_found_after_the_clock_was_set_back(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    stage.clock.jump(3600)
    await stage.turn_timer()
    stage.clock.jump(-3600)
    for number in range(1, 21):  # some timer is read ahead at all times
        await stage.add_job(spec(format_instant(NOW + 100 * number)))
    forgotten = new_job(spec(format_instant(NOW + 550)))
    for late in range(0, 1400, 50):
        if late == 300:
            await stage.apply(c.CreateJobs(NOW, (forgotten,)))
        stage.clock.set(NOW + late)
        await stage.tick()
    assert forgotten.job_id in {attempt.claim.job_id for attempt in executor.attempts}


async def test_executions_of_an_expired_node_are_found_after_the_clock_was_set_back(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold()
    await stage.join(node_name="node-1")
    job_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    other = await stage.join(node_name="node-2", reconcile_interval_seconds=60)
    stage.clock.jump(3600)
    await other.term.reconciler.run_once()
    stage.clock.jump(-3600)
    await stage.apply(c.StartNode(NOW, "node-1"))  # the earlier node-1 is fenced
    await other.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.QUEUED]
