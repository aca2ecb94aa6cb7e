"""The timer: reads timers shortly before they are due, and fires them at their due time.

It contains no rules: `domain.plan` decides, one Fire command writes, the dispatcher starts the attempts. The timers in
memory are a copy that may be dropped at any time: the store refuses a fire that is based on an outdated copy.
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
from duetime.domain.execution import Claim
from duetime.domain.instants import SECOND
from duetime.domain.plan import DueTimer, FirePlan, plan
from duetime.engine.dispatcher import MOST_WAITS, Dispatcher, Target
from duetime.engine.execution_events import publish_overlaps, publish_skips, publish_started
from duetime.engine.ownership import Ownership
from duetime.engine.pages import Pages
from duetime.engine.second_buffer import SecondBuffer
from duetime.engine.service import Service
from duetime.engine.timer_buffer import MOST_HELD, MOST_HELD_SHARED, READ_AHEAD, Due, TimerBuffer
from duetime.engine.unanswered import Unanswered
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.store import Store, result_of
from duetime.process.crash import crash_point
from duetime.telemetry.debugging import debug

PAGE = 2048
FIRST_PAGE = 8  # a burst begins with a small page, so that its first requests leave at once
# A page size. Once pages may be this large, the next page is planned and sent while the last one is being written.
# Otherwise the store would be idle while this process plans, and this process while the store writes: twice the pages
# on PostgreSQL, measured. Smaller pages are waited for, so that the first requests of a burst leave before all else.
BURST = 24
PAGE_GROWTH = 3  # planning and writing a page takes about as long as running the page before it
SHARED_PAGE = 256  # while other tenants are due beside a crowding one: they wait for one such page at most
MOST_WRITTEN_SECOND = 2  # pages of the second buffer at once
ROOM_WAIT_SECONDS = 0.25  # how long a page waits for room in the dispatcher before it is written as QUEUED
CLOCK_JUMP_SECONDS = 2.0
STILL_SENDING = SECOND // 10  # after an instant was fired, its requests are being sent for about so long

_places = attrgetter("places")
_target = attrgetter("tenant", "endpoint")  # in C: a burst has one for each execution

log = structlog.get_logger()


def _places_by_target(targets: Sequence[Target], held: Sequence[DueTimer | Claim]) -> Counter[Target]:
    """Returns the places of memory for each target. `held[i]` is for `targets[i]`: nearly always one place."""
    found = Counter(targets)
    if max(map(_places, held), default=1) > 1:
        for target, one in zip(targets, held, strict=True):
            found[target] += one.places - 1
    return found


class _Writing(NamedTuple):
    """A page that is being written, and how many places of memory its executions will take for each target."""

    task: asyncio.Task[None]
    claims: Counter[Target]


class Timer(Service):
    """`waiting_hint(due_at)`: an execution can be claimed from then on."""

    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, random_bytes: Callable[[int], bytes],
        ownership: Ownership, unanswered: Unanswered, waiting_hint: Callable[[int], None], events: EventHub,
    ) -> None:  # fmt: skip
        super().__init__("timer", clock)
        self._ownership = ownership
        self._unanswered = unanswered
        self._waiting_hint = waiting_hint
        self._events = events
        self._random_bytes = random_bytes
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._buffer = TimerBuffer(store, random_bytes)
        self._second = SecondBuffer(store, random_bytes)
        self._page = FIRST_PAGE
        self._pages = Pages(PAGE)
        self._writing: deque[_Writing] = deque()
        self._writing_second: deque[_Writing] = deque()
        self._looked_back_at = 0
        self._fired_at = 0
        self._offset: float | None = None  # of the wall clock from the monotonic clock, as of the last turn

    def hint(self, due_at: int) -> None:
        """Takes note that a created or changed job is due at `due_at`. Cheap enough to be called for each job."""
        if self._hint(due_at) or due_at <= self._clock.now() + 2 * SECOND:
            self.wake()

    def _hint(self, due_at: int) -> bool:
        self._second.hint(due_at)
        return self._buffer.hint(due_at)

    def read_ahead(self) -> int:
        """Returns how many timers are held that were read before they are due."""
        return self._buffer.held()

    def quiet_for(self) -> int:
        """Returns for how many ms no timer will be due, as far as is known. Timers of a crowding tenant don't count."""
        now = self._clock.now()
        if 0 <= now - self._fired_at < STILL_SENDING:
            return 0
        if self._second.is_shared(now):
            return int(self._second.seconds_left(now) * SECOND)
        if self._writing:
            return 0
        first_due_at = self._buffer.first_due_at()
        return READ_AHEAD // 2 if first_due_at is None else first_due_at - now

    def due_of(self) -> Counter[str]:
        """Returns the number of due timers in memory that were not fired yet, by tenant."""
        return self._buffer.count_due(self._clock.now())

    async def run_once(self) -> int:
        now = self._clock.now()
        self._notice_clock_jumps(now)
        buffer, ownership = self._buffer, self._ownership
        if await ownership.settle():
            buffer.read_only(ownership.shards())
            self._second.close()
        shards = ownership.shards()
        if shards == ():
            return now + SECOND
        if abs(now - self._looked_back_at) >= SECOND:  # or the clock was set back
            self._looked_back_at = now
            buffer.look_back()
        if buffer.is_read():
            await buffer.end_reading()
        self._second.look(now, buffer, shards)
        buffer.most_held = MOST_HELD_SHARED if self._second.is_shared(now) else MOST_HELD
        try:
            if self._second.is_open:
                if (due := await self._second.take(self._clock.now(), SHARED_PAGE)) is not None:
                    await self._fire(due, is_second=True)
                if not await self._await_turn():
                    return 0
            due, is_reading = buffer.take(self._clock.now(), self._page_size(now)), buffer.read_on(now)
            if due is None and is_reading:
                await buffer.end_reading()
                due = buffer.take(self._clock.now(), self._page_size(now))
            if due is not None:
                await self._fire(self._second.without_fired(due))
                return 0
            if is_reading:
                return 0
            await self._written(self._writing)
            await self._written(self._writing_second)
        except BaseException:
            self._drop()  # timers that were not written are still due: read them again
            self._page = min(self._page, self._pages.size)
            raise
        self._page = min(FIRST_PAGE, self._pages.size)
        first_due_at = buffer.first_due_at()
        if first_due_at is not None:
            next_at = min(first_due_at, now + SECOND)
            # A read that is postponed (until the due time, or until a page was fired) is no reason to wake up earlier.
            return next_at if buffer.reads_on_at() <= now else min(next_at, buffer.reads_on_at())
        nearest = await self._store.next_due_at(ownership.shards())
        buffer.drop()  # the next read starts over, and finds the timers that were added meanwhile
        return now + SECOND if nearest is None else min(now + SECOND, max(nearest - READ_AHEAD, now + 1))

    async def _await_turn(self) -> bool:
        """Waits until the first buffer may write a page. Returns False if other tenants are due before that."""
        # While other tenants are due, the first buffer writes one page at a time: the store must serve them, too.
        most = 0 if self._second.is_shared(self._clock.now()) else self._most_writing()
        while len(self._writing) > most:
            left = self._second.seconds_left(self._clock.now())
            if left <= 0:
                return False
            oldest = self._writing[0].task
            await asyncio.wait({oldest}, timeout=left)
            if not oldest.done():
                return False
            await self._written(self._writing, but=len(self._writing) - 1)
        return True

    def _page_size(self, now: int) -> int:
        return min(self._page, SHARED_PAGE) if self._second.is_shared(now) else self._page

    def _drop(self) -> None:
        self._buffer.drop()
        self._second.close()

    async def _fire(self, due: Due, is_second: bool = False) -> None:
        timers, planned = due
        if not timers:
            return
        if planned is not None:
            targets = list(map(_target, planned.executions))
        else:
            targets = [(timer.tenant, endpoint_of(timer.spec, timer.tenant)) for timer in timers]
        places = _places_by_target(targets, timers if planned is None else planned.claims)
        wanted = sum((page.claims for page in self._all_writing()), places)
        refused = await self._dispatcher.admit(wanted, self._room_wait())
        if not refused:
            await self._fire_page(due, True, is_second, None if planned is None else places)
            return
        # Executions without room are written as QUEUED and claimed later. They must not delay the others.
        left_out = [target in refused for target in targets]
        if all(left_out):
            await self._fire_page(due, False, is_second)
            return
        for claim in (True, False):
            if page := [timer for timer, out in zip(timers, left_out, strict=True) if out is not claim]:
                await self._fire_page(Due(page, None), claim, is_second)

    def _room_wait(self) -> float:
        """Returns how long a page may wait for room: never past the time at which other tenants are due."""
        now = self._clock.now()
        if not self._second.is_shared(now):
            return ROOM_WAIT_SECONDS
        return min(ROOM_WAIT_SECONDS, max(0.0, self._second.seconds_left(now) / MOST_WAITS))

    async def _fire_page(self, due: Due, claim: bool, is_second: bool, places: Counter[Target] | None = None) -> None:
        """`places`: of the executions by target, if they are known already."""
        now = self._clock.now()
        page = await self._plan(due, now)
        if len(page.executions) > len(due.timers) and sum(map(_places, page.claims)) > self._dispatcher.room():
            claim = False  # room was made for one execution per timer; catching up needs more
        crash_point("after_plan")
        if not self._ownership.is_held():
            self._drop()
            return
        if is_second or not self._second.is_shared(now):
            self._fired_at = now
        epochs = self._ownership.epochs([move.job_id for move in page.moves])
        command = Fire(self._node, now, claim, tuple(page.moves), tuple(page.executions), tuple(page.skips), epochs)
        claims = Counter[Target]()
        if claim:
            claims = _places_by_target(list(map(_target, page.executions)), page.claims) if places is None else places
        writing = self._writing_second if is_second else self._writing
        writing.append(_Writing(asyncio.create_task(self._write(page, command)), claims))
        if is_second:  # it does not wait for pages of the first buffer
            await self._written(writing, but=MOST_WRITTEN_SECOND)
            return
        if not self._second.is_open:  # else `_await_turn` waits before the next page, until others are due
            await self._written(writing, but=self._most_writing())
        self._page = min(self._page * PAGE_GROWTH, self._pages.size)

    async def _written(self, writing: deque[_Writing], but: int = 0) -> None:
        """Waits until at most `but` pages are being written. If a write fails, waits for all pages, then raises."""
        while len(writing) > but:
            try:
                await writing.popleft().task
            except BaseException:
                await asyncio.gather(*(page.task for page in self._all_writing()), return_exceptions=True)
                self._writing.clear()
                self._writing_second.clear()
                raise

    def _most_writing(self) -> int:
        """Returns how many pages may be in flight to the store while the next one is planned."""
        return 1 if self._page >= BURST else 0

    def _all_writing(self) -> tuple[_Writing, ...]:
        return (*self._writing, *self._writing_second)

    async def stop(self) -> None:
        await super().stop()
        await asyncio.gather(*(page.task for page in self._all_writing()), return_exceptions=True)

    async def _write(self, page: FirePlan, command: Fire) -> None:
        with self._unanswered.write(), self._pages.writing(len(command.moves)):
            (answer,) = await self._store.apply([command])
        crash_point("after_fire")
        try:
            fired = result_of(command, answer)
        except StaleEpoch as error:
            log.warning("a fire was refused: another node owns the shard", shard=error.shard, epoch=error.epoch)
            self._ownership.doubt()
            self._drop()
            return
        debug(
            "a page of due jobs was fired", jobs=len(page.moves), executions=len(page.executions),
            skipped=len(page.skips), claimed=command.claim, stale=len(fired.stale_jobs), in_pages_of=self._page,
        )  # fmt: skip
        self._publish(page, fired, self._dispatch(page, fired, command.claim))
        for next_due_at in {move.next_due_at for move in page.moves}:  # it may lie in the range already read
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
        """Pauses jobs that can't be planned any more (their time zone was removed, say). Returns the other timers."""
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

    def _publish(self, page: FirePlan, fired: Fired, started: Sequence[Claim]) -> None:
        events, now = self._events, self._clock.now()
        publish_started(events, started, now)
        if page.skips:
            publish_skips(events, [skip for skip in page.skips if skip.job_id not in fired.stale_jobs], now)
        if fired.skipped:
            publish_overlaps(events, [one for one in page.executions if one.execution_id in fired.skipped], now)

    def _dispatch(self, page: FirePlan, fired: Fired, claim: bool) -> Sequence[Claim]:
        """Starts the attempts that the page has claimed, and returns their claims."""
        for execution_id in fired.to_cancel:
            self._dispatcher.cancel(execution_id)
        if not claim:
            self._waiting_hint(0)
            return ()
        claims = page.claims
        if fired.stale_jobs or fired.not_claimed:
            claims = [
                claim
                for claim in claims
                if claim.job_id not in fired.stale_jobs and claim.execution_id not in fired.not_claimed
            ]
        self._dispatcher.offer(claims)
        return claims

    def _notice_clock_jumps(self, now: int) -> None:
        """If the wall clock was set, logs a warning and drops the timers that were read by the old time."""
        offset = now / SECOND - self._clock.monotonic()
        jumped = 0.0 if self._offset is None else offset - self._offset
        self._offset = offset
        if abs(jumped) >= CLOCK_JUMP_SECONDS:
            log.warning("the clock jumped", seconds=round(jumped, 3))
            self._drop()
