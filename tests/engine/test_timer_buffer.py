"""The timer buffer: timers are read and planned ahead, and each is taken once, in any order of their creation."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from operator import attrgetter

import pytest

from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.plan import DueTimer, Place
from duetime.engine import timer_buffer
from duetime.engine.timer_buffer import READ_AHEAD, Due, TimerBuffer
from duetime.ports.pages import DueTimers
from samples import NOW, TENANT, new_id, spec

SOON = NOW + READ_AHEAD - 100


_place = attrgetter("place")


class Timers:
    """A store that holds its timers in a list. It has only the method that TimerBuffer needs."""

    def __init__(self) -> None:
        self.rows: list[DueTimer] = []
        self.readings: list[int] = []  # how many rows each of them returned
        self.most = 1_000_000  # rows per page: fewer than requested if jobs are large

    def add(self, due_at: int, count: int = 1, tenant: str = TENANT) -> list[DueTimer]:
        job = spec("2027-01-01T00:00:00Z")
        made = [DueTimer(new_id(), tenant, due_at, 1, 0, False, NOW, job) for _ in range(count)]
        for row in made:
            insort(self.rows, row, key=_place)
        return made

    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> DueTimers:  # fmt: skip
        del shards, without
        await asyncio.sleep(0)  # like any store, it returns in a later turn of the loop
        begin = bisect_right(self.rows, after or (-1, "", ""), key=_place)
        page = DueTimers(row for row in self.rows[begin : begin + min(limit, self.most)] if row.due_at <= until)
        self.readings.append(len(page))
        return page

    def fire(self, due: Due | None) -> list[DueTimer]:
        taken = list(due.timers) if due is not None else []
        for timer in taken:
            at = bisect_left(self.rows, timer.place, key=_place)
            if self.rows[at : at + 1] == [timer]:  # a timer that is taken twice was removed already
                del self.rows[at]
        return taken


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def buffer(timers: Timers) -> TimerBuffer:
    return TimerBuffer(timers, random.Random(1).randbytes)  # type: ignore[arg-type]


async def read_all(buffer: TimerBuffer, now: int) -> None:
    while buffer.read_on(now):
        await buffer.end_reading()


async def test_a_burst_is_read_and_planned_before_its_instant(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, 2000)
    await read_all(buffer, NOW)
    readings = len(timers.readings)
    taken: list[DueTimer] = []
    while (due := buffer.take(SOON, 600)) is not None:
        assert due.planned is not None
        assert [claim.job_id for claim in due.planned.executions] == [timer.job_id for timer in due.timers]
        taken += timers.fire(due)
    assert len({timer.job_id for timer in taken}) == len(taken) == 2000
    assert len(timers.readings) == readings


async def test_nothing_is_taken_before_its_instant(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON)
    await read_all(buffer, NOW)
    assert buffer.take(SOON - 1, 10) is None
    assert buffer.take(SOON, 10) is not None


async def test_a_late_timer_is_read_without_reading_the_burst_again(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, 2000)
    await read_all(buffer, NOW)
    timers.readings.clear()
    (late,) = timers.add(NOW)
    assert buffer.hint(NOW)
    await read_all(buffer, NOW)
    assert timers.readings == [1, 0]
    assert timers.fire(buffer.take(NOW, 10)) == [late]
    due = buffer.take(SOON, 5000)
    assert due is not None
    assert len(due.timers) == 2000


async def test_a_timer_added_to_an_instant_that_was_read_is_taken_with_the_others(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, 3)
    timers.add(SOON + 1, 3)
    await read_all(buffer, NOW)
    timers.add(SOON)
    buffer.hint(SOON)
    await read_all(buffer, NOW)
    due = buffer.take(SOON + 1, 10)
    assert due is not None
    assert [timer.due_at - SOON for timer in due.timers] == [0, 0, 0, 0, 1, 1, 1]


async def test_a_timer_without_a_hint_is_found_by_looking_back(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, 600)
    await read_all(buffer, NOW)
    (forgotten,) = timers.add(NOW)
    await read_all(buffer, NOW)
    assert buffer.take(NOW, 10) is None
    buffer.look_back()
    await read_all(buffer, NOW)
    assert timers.fire(buffer.take(NOW, 10)) == [forgotten]


async def test_a_page_that_is_short_because_its_jobs_are_large_is_not_the_last(timers: Timers, buffer: TimerBuffer):
    timers.most = 3
    timers.add(SOON, 10)
    await read_all(buffer, NOW)
    due = buffer.take(SOON, 100)
    assert due is not None
    assert len(due.timers) == 10


async def test_the_buffer_is_bounded_and_the_rest_is_read_while_it_is_fired(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, buffer.most_held + 5000)
    await read_all(buffer, NOW)
    assert sum(timers.readings) == buffer.most_held
    fired = 0
    while timers.rows:
        fired += len(timers.fire(buffer.take(SOON, timer_buffer.READ_PAGE)))
        await read_all(buffer, SOON)
    assert fired == buffer.most_held + 5000


async def test_timers_are_counted_by_tenant_until_they_are_taken(timers: Timers, buffer: TimerBuffer):
    for due_at, count, tenant in ((SOON, 700, "a"), (SOON, 3, "b"), (SOON + 1, 2, "a"), (SOON + 1, 600, "c")):
        timers.add(due_at, count, tenant)
    await read_all(buffer, NOW)
    assert buffer.count_by_tenant() == {"a": 702, "b": 3, "c": 600}
    buffer.take(SOON, 512)
    assert buffer.count_by_tenant() == {"a": 190, "b": 3, "c": 600}
    buffer.take(SOON + 1, 1000)
    assert not any(buffer.count_by_tenant().values())


async def test_no_read_starts_right_before_a_due_instant(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON, 10_000)
    assert buffer.read_on(NOW)
    await buffer.end_reading()
    assert not buffer.read_on(SOON - timer_buffer.QUIET)
    assert buffer.read_on(SOON)


async def test_a_read_in_flight_when_the_buffer_is_dropped_is_ignored(timers: Timers, buffer: TimerBuffer):
    timers.add(SOON)
    buffer.read_on(NOW)
    ending = asyncio.create_task(buffer.end_reading())
    await asyncio.sleep(0)  # it now waits for the read
    buffer.drop()
    await ending
    assert timers.readings == [1]
    assert buffer.first_due_at() is None


async def test_an_outdated_plan_is_not_returned(timers: Timers, buffer: TimerBuffer):
    timers.add(NOW)
    await read_all(buffer, NOW)
    due = buffer.take(NOW + MINUTE, 10)
    assert due is not None
    assert due.planned is None


@pytest.mark.parametrize("seed", range(12))
async def test_every_timer_is_taken_once_in_any_order(
    timers: Timers, buffer: TimerBuffer, seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Small pages and a random mix: every timer is taken once, and on time if it was created early enough."""
    monkeypatch.setattr(timer_buffer, "READ_PAGE", 3)
    monkeypatch.setattr(timer_buffer, "BURST_PAGE", 5)
    buffer.most_held = 12
    rng = random.Random(seed)
    now, late_by, added = NOW, [0], 0
    taken: list[str] = []
    looked_back_at = NOW
    while now < NOW + 5 * SECOND:
        for _ in range(rng.choice([0, 0, 0, 1, 2, 9])):
            due_at = now + rng.choice([0, 0, 1, 50, 300, 499, 700, 2000])
            count = rng.choice([1, 1, 1, 2, 20])
            timers.add(due_at, count)
            added += count
            buffer.hint(due_at)
        timers.most = rng.choice([1, 3, 3, 3])
        if now - looked_back_at >= SECOND:
            buffer.look_back()
            looked_back_at = now
        if rng.random() < 0.02:
            buffer.drop()
        for _ in range(rng.choice([1, 3, 50]) if seed % 2 else 1000):
            due = buffer.take(now, rng.choice([1, 5, 100]))
            late_by += [now - timer.due_at for timer in due.timers] if due else []
            taken += [timer.job_id for timer in timers.fire(due)]
            if not buffer.read_on(now) and due is None:
                break
            await buffer.end_reading()
        now += rng.choice([0, 1, 7, 40])
    for _ in range(5):
        now += SECOND
        await read_all(buffer, now)
        while (due := buffer.take(now, 100)) is not None:
            taken += [timer.job_id for timer in timers.fire(due)]
            await read_all(buffer, now)
    assert len(taken) == len(set(taken)) == added
    assert min(late_by) >= 0
    assert seed % 2 or max(late_by) <= 40
