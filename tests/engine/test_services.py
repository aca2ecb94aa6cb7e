"""Services: loops that start and stop in any order, can be woken, and continue after a failed turn."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from duetime.domain.instants import DAY, MINUTE, SECOND
from duetime.domain.states import State
from duetime.engine.retention import Retention
from duetime.engine.service import Service
from duetime.ports.store import ExecutionQuery, Store
from duetime.process.clock import SystemClock
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage, until
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, add_execution, add_job, spec


class Counting(Service):
    def __init__(self, clock: HandClock) -> None:
        super().__init__("counting", clock)
        self.turns = 0
        self.fails = False

    async def run_once(self) -> int:
        self.turns += 1
        if self.fails:
            raise RuntimeError("a bug")
        return self._clock.now() + SECOND


@pytest.fixture
def service(clock: HandClock) -> Counting:
    return Counting(clock)


async def in_time(deed: object) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await deed  # type: ignore[misc]


async def test_a_stop_before_the_start_does_nothing(service: Counting):
    await in_time(service.stop())
    await service.start()
    await until(lambda: service.turns == 1)
    await in_time(service.stop())


async def test_a_stop_right_after_the_start_ends_it(service: Counting):
    await service.start()
    await in_time(service.stop())


async def test_a_second_start_does_nothing(service: Counting, clock: HandClock):
    await service.start()
    await service.start()
    await until(lambda: clock.waiting() == 1)
    assert service.turns == 1
    await in_time(service.stop())


async def test_a_second_stop_does_nothing(service: Counting):
    await service.start()
    await in_time(asyncio.gather(service.stop(), service.stop()))
    await in_time(service.stop())


async def test_a_service_can_be_started_again(service: Counting):
    for turns in (1, 2, 3):
        await service.start()
        await until(lambda turns=turns: service.turns == turns)  # type: ignore[misc]
        await in_time(service.stop())


async def test_a_service_turns_when_its_instant_comes_or_it_is_woken(service: Counting, clock: HandClock):
    await service.start()
    await until(lambda: clock.waiting() == 1)
    clock.advance(0.999)
    await asyncio.sleep(0)
    assert service.turns == 1
    clock.advance(0.001)
    await until(lambda: service.turns == 2)
    service.wake()
    await until(lambda: service.turns == 3)
    await in_time(service.stop())


async def test_a_failed_turn_is_logged_shown_and_retried(service: Counting, clock: HandClock):
    service.fails = True
    with capture_logs() as logs:
        await service.start()
        await until(lambda: clock.waiting() == 1)
    assert service.failure == "RuntimeError: a bug"
    assert [log["service"] for log in logs] == ["counting"]
    service.fails = False
    clock.advance(1)
    await until(lambda: service.turns == 2)
    assert service.failure is None
    await in_time(service.stop())


async def test_every_service_of_an_engine_starts_and_stops_in_any_order(stage: Stage):
    engine = await stage.join()
    order = random.Random(7)
    for _ in range(10):
        deeds = [deed for service in engine.term.services for deed in (service.start, service.stop)]
        order.shuffle(deeds)
        for deed in deeds:
            await in_time(deed())
    for service in engine.term.services:
        await in_time(service.stop())
    await in_time(engine.stop())


async def test_a_running_engine_fires_and_records(stage: Stage, clock: HandClock, executor: ScriptedExecutor):
    engine = stage.make_engine()
    await engine.start()
    job_id = await stage.add_job(spec("every 1m"))
    for minute in (1, 2, 3):
        clock.set(NOW + minute * MINUTE)
        await executor.until_ended(minute)
        await until(lambda: engine.term.dispatcher.waiting() + engine.term.dispatcher.running() == 0)
    assert set(engine.health().values()) == {"healthy"}
    await engine.stop()
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + n * MINUTE for n in (1, 2, 3)]
    assert await stage.states(job_id) == [State.COMPLETED] * 3


# Retention


async def test_history_beyond_its_age_is_removed(stage: Stage):
    await stage.join(history_seconds=3600)
    await stage.add_job(spec("every 10m"))
    await stage.pass_time(3 * 3600 + 1, step=600)
    assert await stage.store.count_history() == 18
    await stage.engine.term.retention.run_once()
    left = await stage.store.list_executions(ExecutionQuery(TENANT, limit=100))
    assert min(e.scheduled_at for e in left) >= stage.clock.now() - 3600 * SECOND


async def test_history_beyond_its_size_is_removed_oldest_first(store: Store, clock: HandClock, stage: Stage):
    await stage.join()
    await stage.add_job(spec("every 1s"))
    await stage.pass_time(20)
    retention = Retention(store, clock, 365 * DAY / SECOND, 5, lambda: True)
    clock.advance(1)
    next_at = await retention.run_once()
    assert next_at == clock.now() + 50
    assert [e.scheduled_at for e in await store.list_executions(ExecutionQuery(TENANT))] == [
        NOW + n * SECOND for n in range(20, 15, -1)
    ]
    assert await retention.run_once() == clock.now() + MINUTE


async def test_retention_leaves_open_executions(store: Store, clock: HandClock):
    await add_execution(store, await add_job(store))
    clock.advance(400 * 86_400)
    await Retention(store, clock, 1, 0, lambda: True).run_once()
    assert await store.count_history() == 1


# The machine's clock


async def test_the_machines_clock_waits_until_the_instant_or_the_event():
    clock, event = SystemClock(), asyncio.Event()
    begin = clock.now()
    assert await clock.wait(event, begin + 20) is False
    assert clock.now() >= begin + 20
    event.set()
    assert await clock.wait(event, begin + 10_000_000) is True
    assert clock.monotonic() <= clock.monotonic()
