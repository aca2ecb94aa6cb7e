"""The dispatcher by itself: what is offered runs or is given back, however the loop's turns fall."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from duetime.domain.execution import Run
from duetime.domain.ids import execution_id
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
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


# How often an endpoint is called


class Paced(Attempts):
    """With the seconds at which each attempt began."""

    def __init__(self, limits: Limits, *, hold: bool = False) -> None:
        super().__init__(limits, hold=hold)
        self.at: dict[int, list[float]] = {}

    async def _attempt(self, run: Run) -> None:
        self.at.setdefault(run.endpoint, []).append(asyncio.get_running_loop().time())
        await super()._attempt(run)


@pytest.mark.parametrize(("rate", "count"), [(40.0, 9), (300.0, 91)])
async def test_an_endpoint_is_not_called_more_often_than_its_rate(rate: float, count: int):
    attempts = Paced(Limits(rate=rate))
    runs = [run_of(number) for number in range(count)]
    begun = asyncio.get_running_loop().time()
    attempts.dispatcher.offer(runs)
    await until(lambda: len(attempts.begun) == count)
    assert attempts.begun == runs, "in their order"
    at_once = max(1, rate // 10)
    for place, at in enumerate(attempts.at[1], 1):  # a busy machine makes them later, and never earlier
        assert at - begun >= (place - at_once) / rate - 0.002


async def test_an_endpoint_that_has_spent_its_rate_delays_no_other():
    attempts = Paced(Limits(concurrency=4, rate=10.0))
    attempts.dispatcher.offer([run_of(number) for number in range(100)])
    begun = asyncio.get_running_loop().time()
    attempts.dispatcher.offer([run_of(1000 + endpoint, endpoint) for endpoint in range(2, 52)])
    await until(lambda: len(attempts.at) == 51)
    assert len(attempts.at[1]) < 40
    waits = [at[0] - begun for endpoint, at in attempts.at.items() if endpoint != 1]
    assert sorted(waits)[25] < 0.05, "at once, and not in turns with it"
    never_started, _ = await attempts.dispatcher.drain(0)
    assert len(never_started) + len(attempts.begun) == 150


async def test_a_rate_below_one_lets_one_go_and_the_next_wait():
    attempts = Attempts(Limits(rate=0.5))
    runs = [run_of(number) for number in range(3)]
    attempts.dispatcher.offer(runs)
    await until(lambda: attempts.dispatcher.waiting() == 2 and not attempts.dispatcher.running())
    assert attempts.begun == runs[:1]
    assert await attempts.dispatcher.drain(0) == (runs[1:], [])
    assert not any(handle for handle in attempts.dispatcher._clocks.values()), "no timer is left behind"


async def test_a_run_that_is_cancelled_while_it_waits_for_its_turn_costs_none(monkeypatch: pytest.MonkeyPatch):
    attempts = Attempts(Limits(rate=9.0))
    pace = attempts.dispatcher._pace
    assert pace is not None
    taken: list[bool] = []
    take = pace.take
    monkeypatch.setattr(pace, "take", lambda endpoint, now: taken.append(is_taken := take(endpoint, now)) or is_taken)
    runs = [run_of(number) for number in range(4)]
    attempts.dispatcher.offer(runs)
    assert attempts.dispatcher.cancel(runs[1].execution_id)
    assert attempts.dispatcher.cancel(runs[2].execution_id)
    await until(lambda: len(attempts.begun) == 2)
    assert attempts.begun == [runs[0], runs[3]]
    assert attempts.dropped == [runs[1], runs[2]]
    assert sum(taken) == 2


async def test_those_parked_for_a_place_go_on_when_the_one_that_had_it_waits_for_its_rate():
    """One tenant has one place. The run that could take it must wait for its endpoint's rate: the next one takes it."""
    attempts = Attempts(Limits(tenant=1, rate=0.5), hold=True)
    first, same, other = run_of(1, endpoint=1), run_of(2, endpoint=1), run_of(3, endpoint=2)
    attempts.dispatcher.offer([first, same, other])
    await until(lambda: attempts.begun == [first])
    attempts.let_go()
    await until(lambda: attempts.begun == [first, other])
    assert (await attempts.dispatcher.drain(0))[0] == [same]


async def test_whoever_comes_later_does_not_overtake_those_that_wait(monkeypatch: pytest.MonkeyPatch):
    attempts = Attempts(Limits(rate=0.5))
    pace = attempts.dispatcher._pace
    assert pace is not None
    runs = [run_of(number) for number in range(4)]
    attempts.dispatcher.offer(runs[:2])
    await until(lambda: attempts.begun == runs[:1] and not attempts.dispatcher.running())
    monkeypatch.setattr(pace, "take", lambda endpoint, now: True)  # there is one again, and nobody has been woken yet
    attempts.dispatcher.offer(runs[2:])
    assert attempts.dispatcher.running() == 0
    attempts.dispatcher._clocks[1].cancel()
    attempts.dispatcher._pay(1, pace)
    await until(lambda: attempts.begun == runs)


async def test_what_is_not_sent_at_all_waits_for_no_rate():
    attempts = Attempts(Limits(rate=0.5))
    attempts.dispatcher.is_held = lambda run: True
    runs = [run_of(number) for number in range(20)]
    attempts.dispatcher.offer(runs)
    await until(lambda: attempts.begun == runs)


async def test_what_runs_here_and_calls_nobody_has_no_rate():
    attempts = Attempts(Limits(rate=0.5))
    job = PythonJob(name="f", schedule="every 1m", payload=PythonCall("f"))
    runs = [msgspec.structs.replace(run_of(number), spec=job) for number in range(5)]
    attempts.dispatcher.offer(runs)
    await until(lambda: attempts.begun == runs)
