"""The timer: knows the nearest due instant, reads its timers a little ahead, and fires when it has come.

It holds no rule: `domain.plan` decides, one Fire command writes, the dispatcher acts. What it holds in memory is a page
that it may drop at any time; the store refuses a fire that is based on an old reading.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

import structlog

from duetime.domain.commands import Fire, Fired, PauseJob
from duetime.domain.endpoints import endpoint_of
from duetime.domain.errors import DuetimeError, StaleEpoch
from duetime.domain.execution import Run
from duetime.domain.fairness import FEW_DUE, crowding
from duetime.domain.instants import SECOND
from duetime.domain.plan import GRACE, DueTimer, FirePlan, Place, plan
from duetime.engine.dispatcher import MOST_WAITS, Dispatcher, Target
from duetime.engine.ownership import Ownership
from duetime.engine.pages import Pages
from duetime.engine.service import Service
from duetime.engine.timer_buffer import READ_AHEAD, Due, TimerBuffer
from duetime.engine.unanswered import Unanswered
from duetime.ports.clock import Clock
from duetime.ports.store import Store
from duetime.telemetry.crash import crash_point
from duetime.telemetry.debugging import debug

PAGE = 2048
FIRST_PAGE = 8  # a burst begins with a small page, so that its first requests leave at once
# Runs: once pages may have this size, the next one is made and sent while one is being written. The store would have
# nothing to do otherwise while this process makes a page, nor this process while the store writes one: twice the pages
# on PostgreSQL, measured. Small ones are waited for, so that the first requests of a burst leave before all else.
BURST = 24
PAGE_GROWTH = 3  # a page is planned and written in about the time that the one before it takes to run
SHARED_PAGE = 256  # while others are due beside a tenant that has hundreds: nobody waits for longer than such a page
LOOK_BESIDE = SECOND // 4  # how often it is found out who has hundreds
BESIDE_FOR = 2 * SECOND  # how long after others were due beside them pages stay small
CROWDING_FOR = 10 * SECOND
LOOK_BACK_BESIDE = 5 * SECOND
MOST_FIRED = 100_000
MOST_WRITTEN_BESIDE = 2  # pages at once
ROOM_WAIT_SECONDS = 0.25  # how long a page waits to be born claimed before it is written as QUEUED
CLOCK_JUMP_SECONDS = 2.0

_places = attrgetter("places")

log = structlog.get_logger()


def _places_by_target(targets: Sequence[Target], held: Sequence[DueTimer | Run]) -> Counter[Target]:
    """How much memory these take, which run parallel to their targets: nearly always one place each."""
    found = Counter(targets)
    if max(map(_places, held), default=1) > 1:
        for target, one in zip(targets, held, strict=True):
            found[target] += one.places - 1
    return found


class _Writing(NamedTuple):
    """A page that is being written, and how many places the runs of each target will take."""

    task: asyncio.Task[None]
    born: Counter[Target]


class Timer(Service):
    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, random_bytes: Callable[[int], bytes],
        ownership: Ownership, unanswered: Unanswered | None = None,
    ) -> None:  # fmt: skip
        super().__init__("timer", clock)
        self._ownership = ownership
        self._unanswered = unanswered or Unanswered(clock.monotonic)
        self._random_bytes = random_bytes
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._buffer = TimerBuffer(store, random_bytes)
        # While a tenant has more due than can be fired at once, a second reading without that tenant goes ahead, so
        # that others need not wait for it. The first one reads everything; what was fired meanwhile, the store refuses.
        self._beside: TimerBuffer | None = None
        self._crowding: dict[str, int] = {}  # tenants that had hundreds due, and when that was last seen
        self._looked_beside_at = 0
        self._looked_back_beside_at = 0
        self._fired: set[Place] = set()  # by the second reading; the first one comes by later
        self._was_beside_at = 0
        self._page = FIRST_PAGE
        self._pages = Pages(PAGE)
        self._writing: deque[_Writing] = deque()
        self._writing_beside: deque[_Writing] = deque()
        self._looked_back_at = 0
        self._offset = clock.now() / SECOND - clock.monotonic()

    def hint(self, due_at: int) -> None:
        """A job was created or changed and is due then. Cheap enough to be called for each."""
        if self._hint(due_at) or due_at <= self._clock.now() + 2 * SECOND:
            self.wake()

    def _hint(self, due_at: int) -> bool:
        if self._beside is not None:
            self._beside.hint(due_at)
        return self._buffer.hint(due_at)

    async def run_once(self) -> int:
        now = self._clock.now()
        self._notice_clock_jumps(now)
        buffer, ownership = self._buffer, self._ownership
        if await ownership.settle():
            buffer.read_only(ownership.shards())
            self._end_beside()
        if ownership.shards() == ():
            return now + SECOND
        if abs(now - self._looked_back_at) >= SECOND:  # or the clock was set back
            self._looked_back_at = now
            buffer.look_back()
        if buffer.is_read():
            await buffer.end_reading()
        self._look_beside(now)
        try:
            if self._beside is not None:
                await self._fire_beside(self._beside)
                if not await self._await_turn(self._beside):
                    return 0
            due, is_reading = buffer.take(self._clock.now(), self._page_size(now)), buffer.read_on(now)
            if due is None and is_reading:
                await buffer.end_reading()
                due = buffer.take(self._clock.now(), self._page_size(now))
            if due is not None:
                await self._fire(self._without_fired(due))
                return 0
            if is_reading:
                return 0
            await self._written(self._writing)
            await self._written(self._writing_beside)
        except BaseException:
            self._drop()  # what was not written is due still: read it again
            self._page = min(self._page, self._pages.size)
            raise
        self._page = min(FIRST_PAGE, self._pages.size)
        first_due_at = buffer.first_due_at()
        if first_due_at is not None:
            next_at = min(first_due_at, now + SECOND)
            # A reading that is put off (until the instant has come, or a page was fired) is no reason to look again.
            return next_at if buffer.reads_on_at() <= now else min(next_at, buffer.reads_on_at())
        nearest = await self._store.next_due_at(ownership.shards())
        buffer.drop()  # the next reading begins anew, whatever came meanwhile
        return now + SECOND if nearest is None else min(now + SECOND, max(nearest - READ_AHEAD, now + 1))

    # Others beside a tenant that has hundreds due

    def _look_beside(self, now: int) -> None:
        """Find out which tenants have so much due that the others must be read beside them."""
        if abs(now - self._looked_beside_at) < LOOK_BESIDE or (self._beside is None and self._buffer.held() <= FEW_DUE):
            return
        self._looked_beside_at = now
        held = self._buffer.count_by_tenant()
        if self._beside is not None:
            held |= self._beside.count_by_tenant()
        found = crowding(held)
        self._crowding |= dict.fromkeys(found, now)
        # Some time longer: what such a tenant has due may lie beyond what was read so far.
        self._crowding = {tenant: at for tenant, at in self._crowding.items() if abs(now - at) < CROWDING_FOR}
        without = frozenset(self._crowding)
        if not without:
            self._end_beside()
        elif self._beside is None or without != self._beside.without:
            # What is later than that was missed: it is decided by the first reading, in its order.
            self._beside = TimerBuffer(self._store, self._random_bytes, self._ownership.shards(), without, now - GRACE)
            self._looked_back_beside_at = now

    async def _fire_beside(self, beside: TimerBuffer) -> None:
        now = self._clock.now()
        if abs(now - self._looked_back_beside_at) >= LOOK_BACK_BESIDE:
            self._looked_back_beside_at = now
            beside.look_back(now - GRACE)
        if beside.is_read():
            await beside.end_reading()
        due = beside.take(now, SHARED_PAGE)
        beside.read_on(now)
        if due is not None:
            self._was_beside_at = now
            if len(self._fired) > MOST_FIRED:
                self._fired.clear()  # the store refuses them when they come again; this only saves the trouble
            self._fired.update(timer.place for timer in due.timers)
            await self._fire(due, is_beside=True)

    async def _await_turn(self, beside: TimerBuffer) -> bool:
        """Wait until the first reading may write a page. Returns False if others come before that."""
        # While others are due beside it, it has one page at a time: the store works for them, too.
        most = 0 if self._is_shared(self._clock.now()) else self._most_writing()
        while len(self._writing) > most:
            left = self._seconds_alone(beside)
            if left <= 0:
                return False
            oldest = self._writing[0].task
            await asyncio.wait({oldest}, timeout=left)
            if not oldest.done():
                return False
            await self._written(self._writing, but=len(self._writing) - 1)
        return True

    def _seconds_alone(self, beside: TimerBuffer) -> float:
        """Returns how long it is until others are due beside the first reading. What is not read is not due soon."""
        now = self._clock.now()
        first_due_at = beside.first_due_at()
        return (READ_AHEAD // 2 if first_due_at is None else first_due_at - now) / SECOND

    def _without_fired(self, due: Due) -> Due:
        """What was not fired beside it meanwhile."""
        if not self._fired:
            return due
        timers, planned = due
        kept = [number for number, timer in enumerate(timers) if timer.place not in self._fired]
        if len(kept) == len(timers):
            return due
        self._fired.difference_update(timer.place for timer in timers)
        return Due([timers[number] for number in kept], None if planned is None else planned.only(kept))

    def _end_beside(self) -> None:
        self._beside = None
        self._fired.clear()

    def _page_size(self, now: int) -> int:
        return min(self._page, SHARED_PAGE) if self._is_shared(now) else self._page

    def _is_shared(self, now: int) -> bool:
        return self._beside is not None and abs(now - self._was_beside_at) < BESIDE_FOR

    def _drop(self) -> None:
        self._buffer.drop()
        self._end_beside()

    async def _fire(self, due: Due, is_beside: bool = False) -> None:
        timers, planned = due
        if not timers:
            return
        if planned is not None:
            targets = [(run.tenant, run.endpoint) for run in planned.runs]
        else:
            targets = [(timer.tenant, endpoint_of(timer.spec, timer.tenant)) for timer in timers]
        places = _places_by_target(targets, timers if planned is None else planned.born)
        wanted = sum((page.born for page in self._all_writing()), places)
        refused = await self._dispatcher.admit(wanted, self._room_wait())
        if not refused:
            await self._fire_page(due, True, is_beside)
            return
        # What has no room is written as QUEUED, and claimed later; the others are not to suffer for it.
        left_out = [target in refused for target in targets]
        if all(left_out):
            await self._fire_page(due, False, is_beside)
            return
        for claim in (True, False):
            if page := [timer for timer, out in zip(timers, left_out, strict=True) if out is not claim]:
                await self._fire_page(Due(page, None), claim, is_beside)

    def _room_wait(self) -> float:
        """Returns how long a page may wait for room: never into an instant at which others are due."""
        if self._beside is None or not self._is_shared(self._clock.now()):
            return ROOM_WAIT_SECONDS
        return min(ROOM_WAIT_SECONDS, max(0.0, self._seconds_alone(self._beside) / MOST_WAITS))

    async def _fire_page(self, due: Due, claim: bool, is_beside: bool) -> None:
        now = self._clock.now()
        page = await self._plan(due, now)
        if len(page.runs) > len(due.timers) and sum(map(_places, page.born)) > self._dispatcher.room():
            claim = False  # room was made for a run a timer; catching up asks for more
        crash_point("after_plan")
        if not self._ownership.is_held():
            self._drop()
            return
        epochs = self._ownership.epochs([move.job_id for move in page.moves])
        command = Fire(self._node, now, claim, tuple(page.moves), tuple(page.runs), tuple(page.skips), epochs)
        born = Counter[Target]()
        if claim:
            born = _places_by_target([(run.tenant, run.endpoint) for run in page.runs], page.born)
        writing = self._writing_beside if is_beside else self._writing
        writing.append(_Writing(asyncio.create_task(self._write(page, command)), born))
        if is_beside:  # it does not wait for those of the first reading
            await self._written(writing, but=MOST_WRITTEN_BESIDE)
            return
        if self._beside is None:  # else it waits before the next page, and only until others are due
            await self._written(writing, but=self._most_writing())
        self._page = min(self._page * PAGE_GROWTH, self._pages.size)

    async def _written(self, writing: deque[_Writing], but: int = 0) -> None:
        """Wait until no more than so many pages are being written; all of them, if one fails."""
        while len(writing) > but:
            try:
                await writing.popleft().task
            except BaseException:
                await asyncio.gather(*(page.task for page in self._all_writing()), return_exceptions=True)
                self._writing.clear()
                self._writing_beside.clear()
                raise

    def _most_writing(self) -> int:
        """Returns how many pages may be on their way to the store while the next one is made."""
        return 1 if self._page >= BURST else 0

    def _all_writing(self) -> tuple[_Writing, ...]:
        return (*self._writing, *self._writing_beside)

    async def stop(self) -> None:
        await super().stop()
        await asyncio.gather(*(page.task for page in self._all_writing()), return_exceptions=True)

    async def _write(self, page: FirePlan, command: Fire) -> None:
        with self._unanswered.write(), self._pages.writing(len(command.moves)):
            (fired,) = await self._store.apply([command])
        crash_point("after_fire")
        if isinstance(fired, StaleEpoch):
            log.warning("a fire was refused: another node owns the shard", shard=fired.shard, epoch=fired.epoch)
            self._ownership.doubt()
            self._drop()
            return
        if isinstance(fired, DuetimeError):
            raise fired
        debug(
            "a page of due jobs was fired", jobs=len(page.moves), executions=len(page.runs), skipped=len(page.skips),
            claimed=command.claim, stale=len(fired.stale_jobs), in_pages_of=self._page,
        )  # fmt: skip
        self._dispatch(page, fired, command.claim)
        for next_due_at in {move.next_due_at for move in page.moves}:  # due again within what was read
            if next_due_at is not None:
                self._hint(next_due_at)

    async def _plan(self, due: Due, now: int) -> FirePlan:
        timers, planned = due
        if planned is not None:
            return planned
        random_number = int.from_bytes(self._random_bytes(9), "big")
        try:
            return plan(timers, now, random_number)
        except DuetimeError:
            good = await self._set_aside(timers, now)
            return plan(good, now, random_number)

    async def _set_aside(self, due: Sequence[DueTimer], now: int) -> list[DueTimer]:
        """Pause jobs whose schedule can't be read any more (a zone that is gone, say): one must not stop the others."""
        good: list[DueTimer] = []
        for timer in due:
            try:
                plan([timer], now, 0)
                good.append(timer)
            except DuetimeError as error:
                log.error("a job was paused: it can't be planned", job_id=timer.job_id, error=error.message)
                reason = f"it can't be planned: {error.message}"
                await self._store.apply([PauseJob(now, timer.tenant, timer.job_id, "duetime", reason)])
        return good

    def _dispatch(self, page: FirePlan, fired: Fired, claim: bool) -> None:
        for execution_id in fired.to_cancel:
            self._dispatcher.cancel(execution_id)
        if not claim:
            self._dispatcher.waiting_hint(0)
            return
        runs = page.born
        if fired.stale_jobs or fired.not_claimed:
            runs = [
                run for run in runs if run.job_id not in fired.stale_jobs and run.execution_id not in fired.not_claimed
            ]
        self._dispatcher.offer(runs)

    def _notice_clock_jumps(self, now: int) -> None:
        """The wall clock was set: timers that were read by the old time are read again, and a warning is logged."""
        offset = now / SECOND - self._clock.monotonic()
        jumped = offset - self._offset
        self._offset = offset
        if abs(jumped) >= CLOCK_JUMP_SECONDS:
            log.warning("the clock jumped", seconds=round(jumped, 3))
            self._drop()
