"""The dispatcher by itself: what is offered runs or is given back, however the loop's turns fall."""

from __future__ import annotations

import asyncio
import time

import pytest

from duetime.domain.execution import Run
from duetime.domain.ids import execution_id
from duetime.domain.states import Trigger
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.ports.executor import NotSent
from engine.stage import until
from samples import NOW, TENANT, new_id, spec


def run_of(number: int, endpoint: int = 1) -> Run:
    return Run(execution_id(NOW, number), new_id(), TENANT, NOW, Trigger.SCHEDULE, 5, endpoint, 1, 1, False, spec())


class Attempts:
    """Attempts that end at once, or when they are told to."""

    def __init__(self, limits: Limits, *, hold: bool = False) -> None:
        self.begun: list[Run] = []
        self.dropped: list[Run] = []
        self._go = asyncio.Event()
        if not hold:
            self._go.set()
        self.dispatcher = Dispatcher(limits, self._attempt, self.dropped.append)

    async def _attempt(self, run: Run) -> None:
        self.begun.append(run)
        await self._go.wait()
        if not self.dispatcher.is_trusted():
            raise NotSent
        self.dispatcher.recorded([run])

    def let_go(self) -> None:
        self._go.set()


async def test_a_run_offered_as_the_last_lane_ends_is_not_left_behind():
    attempts = Attempts(Limits(concurrency=1))
    later = run_of(2)
    attempts.dispatcher.offer([run_of(1)])
    (lane,) = asyncio.all_tasks() - {asyncio.current_task()}
    # Runs in the same turn of the loop in which the lane has ended and its callbacks are called.
    lane.add_done_callback(lambda _: attempts.dispatcher.offer([later]))
    await until(lambda: len(attempts.begun) == 2 and attempts.dispatcher.room() == Limits().capacity)
    assert attempts.begun[-1] is later


async def test_a_waiting_run_that_is_cancelled_ends_at_once_and_never_begins():
    attempts = Attempts(Limits(concurrency=1), hold=True)
    first, second, third = runs = [run_of(number) for number in range(3)]
    attempts.dispatcher.offer(runs)
    await asyncio.sleep(0)
    assert attempts.dispatcher.cancel(second.execution_id)
    assert attempts.dropped == [second], "before anything else has ended"
    attempts.let_go()
    await until(lambda: len(attempts.begun) == 2)
    assert attempts.begun == [first, third]
    assert not attempts.dispatcher.cancel(second.execution_id)


async def test_a_node_without_room_waits_once_and_not_for_each_endpoint():
    attempts = Attempts(Limits(capacity=4), hold=True)
    attempts.dispatcher.offer([run_of(number, endpoint=number) for number in range(4)])
    begun = time.perf_counter()
    for endpoint in range(100, 120):
        assert endpoint in await attempts.dispatcher.admit({endpoint: 1}, 0.05)
    assert time.perf_counter() - begun < 0.5
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == 4)
    assert await attempts.dispatcher.admit({100: 1}, 0.05) == frozenset()


@pytest.mark.parametrize("held", [True, False])
async def test_a_drain_that_is_cut_short_gives_back_what_has_not_begun(held: bool):
    attempts = Attempts(Limits(concurrency=1), hold=held)
    first, second = run_of(1), run_of(2)
    attempts.dispatcher.offer([first, second])
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(attempts.dispatcher.stop_waiting)
    never_started, lanes = await attempts.dispatcher.drain(60)
    assert never_started == ([second] if held else [])
    for lane in lanes:
        lane.cancel()
    await asyncio.gather(*lanes, return_exceptions=True)


# The lease in doubt


async def test_lanes_that_were_opened_before_the_lease_came_into_doubt_begin_nothing():
    """A process that is stopped between a claim and its lanes' first turn comes back with all of them."""
    attempts, runs = Attempts(Limits()), [run_of(number) for number in range(5)]
    attempts.dispatcher.offer(runs)
    attempts.dispatcher.is_trusted = lambda: False
    await all_lanes_end(attempts)
    assert attempts.begun == []
    assert attempts.dispatcher.waiting() == 5
    attempts.dispatcher.is_trusted = lambda: True
    attempts.dispatcher.resume()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert {run.execution_id for run in attempts.begun} == {run.execution_id for run in runs}


async def test_a_run_that_was_not_sent_waits_and_goes_on_when_the_lease_holds():
    attempts, run = Attempts(Limits(endpoint=1), hold=True), run_of(1)
    attempts.dispatcher.offer([run, run_of(2)])
    await until(lambda: attempts.begun == [run])
    attempts.dispatcher.is_trusted = lambda: False
    attempts.let_go()
    await all_lanes_end(attempts)
    assert (attempts.begun, attempts.dispatcher.waiting(), attempts.dispatcher.running()) == ([run], 2, 0)
    attempts.dispatcher.is_trusted = lambda: True
    attempts.dispatcher.resume()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert len(attempts.begun) == 3


async def test_a_drain_gives_back_what_was_not_sent():
    attempts, run = Attempts(Limits()), run_of(1)
    attempts.dispatcher.offer([run])
    attempts.dispatcher.is_trusted = lambda: False
    await all_lanes_end(attempts)
    assert await attempts.dispatcher.drain(0) == ([run], [])


async def test_a_run_that_was_asked_to_stop_before_its_lane_began_ends_though_the_lease_is_in_doubt():
    """Nothing is sent for it; put back, it would be forgotten that it was asked."""
    attempts, run = Attempts(Limits(), hold=True), run_of(1)
    attempts.dispatcher.offer([run])
    attempts.dispatcher.is_trusted = lambda: False
    assert attempts.dispatcher.cancel(run.execution_id)
    await until(lambda: attempts.begun == [run])
    attempts.dispatcher.is_trusted = lambda: True
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)


async def all_lanes_end(attempts: Attempts) -> None:
    await until(lambda: not attempts.dispatcher.running())
