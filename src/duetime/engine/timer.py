"""The timer: knows the nearest due instant, reads its timers a little ahead, and fires when it has come.

It holds no rule: `domain.plan` decides, one Fire command writes, the dispatcher acts. What it holds in memory is a page
that it may drop at any time; the store refuses a fire that is based on an old reading.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from duetime.domain.commands import Fire, Fired, PauseJob
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import Run
from duetime.domain.ids import endpoint_of
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.plan import GRACE, DueTimer, FirePlan, plan
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store
from duetime.telemetry.crash import crash_point

ARM_AHEAD = SECOND // 2  # timers are read and decoded this long before they are due
PAGE = 2048
FIRST_PAGE = 8  # a burst begins with a small page, so that its first requests leave at once
PAGE_GROWTH = 3  # a page is planned and written in about the time that the one before it takes to run
MISSED_PAGE = 64  # recurring jobs that were missed take long to decide: others get their turn in between
ROOM_WAIT_SECONDS = 0.25  # how long a page waits to be born claimed before it is written as QUEUED
CLOCK_JUMP_SECONDS = 2.0

log = structlog.get_logger()


class Timer(Service):
    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, entropy: Callable[[int], bytes]
    ) -> None:
        super().__init__("timer", clock)
        self._entropy = entropy
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._armed: list[DueTimer] = []
        self._position = 0
        self._ahead: asyncio.Task[list[DueTimer]] | None = None  # the page after the armed one, being read
        self._horizon = 0  # every timer due up to here was read into the page, or comes after its last
        self._readings = 0  # grows with each disarming: a reading that began before one is not to be trusted
        self._until = 0  # up to where the last reading looked
        self._hinted_at = LATEST  # the earliest hint since the last reading began, which may have missed it
        self._page = FIRST_PAGE
        self._offset = clock.now() / SECOND - clock.monotonic()

    def hint(self, due_at: int) -> None:
        """A job was created or changed and is due then. Cheap enough to be called for each."""
        if due_at <= self._horizon:
            self._disarm()
            self.wake()
        elif due_at <= self._clock.now() + 2 * SECOND:
            self._hinted_at = min(self._hinted_at, due_at)
            self.wake()

    def _disarm(self) -> None:
        self._armed, self._position, self._horizon = [], 0, 0
        self._ahead = None
        self._readings += 1

    async def run_once(self) -> int:
        now = self._clock.now()
        self._notice_clock_jumps(now)
        if self._position == len(self._armed):
            await self._arm(now)
        due = self._take_due()
        if due:
            try:
                await self._fire(due)
            except BaseException:
                self._disarm()  # what was not written is due still: read it again
                raise
            return 0
        self._page = FIRST_PAGE
        if self._position < len(self._armed):
            return self._armed[self._position].due_at
        nearest = await self._store.next_due_at()
        return now + SECOND if nearest is None else min(now + SECOND, max(nearest - ARM_AHEAD, now + 1))

    async def _arm(self, now: int) -> None:
        readings = self._readings
        reading, self._ahead = self._ahead or self._read(now, None), None
        page = await reading
        if readings != self._readings:
            self._wake.set()
            return
        self._armed, self._position = page, 0
        self._horizon = self._until if len(page) < PAGE else page[-1].due_at
        if self._hinted_at <= self._horizon:
            # A job came while the page was read: fire what is due of it, then read again before waiting for the rest.
            self._armed = [timer for timer in page if timer.due_at < max(self._hinted_at, now + 1)]
            self._horizon = self._hinted_at - 1
        elif len(page) == PAGE:  # a burst: the next page is read while this one is written
            self._ahead = self._read(now, (page[-1].due_at, page[-1].job_id))

    def _read(self, now: int, after: tuple[int, str] | None) -> asyncio.Task[list[DueTimer]]:
        self._until, self._hinted_at = now + ARM_AHEAD, LATEST
        task = asyncio.ensure_future(self._store.list_due_timers(self._until, PAGE, after))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it any more
        return task

    def _take_due(self) -> list[DueTimer]:
        """The next page of the armed timers whose instant has come."""
        now, begin = self._clock.now(), self._position
        end, missed = begin, 0
        last = min(len(self._armed), begin + self._page)
        while end < last and self._armed[end].due_at <= now and missed < MISSED_PAGE:
            missed += self._armed[end].recurs and now - self._armed[end].due_at > GRACE
            end += 1
        self._position = end
        return self._armed[begin:end]

    async def _fire(self, due: Sequence[DueTimer]) -> None:
        wanted = Counter([endpoint_of(timer.spec.payload.url) for timer in due])
        refused = await self._dispatcher.admit(wanted, ROOM_WAIT_SECONDS)
        if not refused:
            await self._fire_page(due, claim=True)
            return
        # What has no room is written as QUEUED, and claimed later; the others are not to suffer for it.
        left_out = [endpoint_of(timer.spec.payload.url) in refused for timer in due]
        for claim in (True, False):
            if page := [timer for timer, out in zip(due, left_out, strict=True) if out is not claim]:
                await self._fire_page(page, claim)

    async def _fire_page(self, due: Sequence[DueTimer], claim: bool) -> None:
        now = self._clock.now()
        page = await self._plan(due, now)
        if len(page.runs) > len(due) and len(page.runs) > self._dispatcher.room():
            claim = False  # room was made for a run a timer; catching up asks for more
        crash_point("after_plan")
        command = Fire(self._node, now, claim, tuple(page.moves), tuple(page.runs), tuple(page.skips))
        (fired,) = await self._store.apply([command])
        crash_point("after_fire")
        if isinstance(fired, DuetimeError):
            raise fired
        self._dispatch(page, fired, claim)
        # What is due again before the horizon belongs into the page: read it anew.
        horizon = max(self._horizon, self._until)
        if any(move.next_due_at is not None and move.next_due_at <= horizon for move in page.moves):
            self._disarm()
        self._page = min(self._page * PAGE_GROWTH, PAGE)
        await asyncio.sleep(0)  # let the runs of this page begin before the next one is planned

    async def _plan(self, due: Sequence[DueTimer], now: int) -> FirePlan:
        chance = int.from_bytes(self._entropy(9), "big")
        try:
            return plan(due, now, chance)
        except DuetimeError:
            good = await self._set_aside(due, now)
            return plan(good, now, chance)

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
        runs = [
            Run(run.execution_id, run.job_id, run.tenant, run.scheduled_at, run.trigger, run.priority, run.endpoint,
                1, 1, False, spec)
            for run, spec in zip(page.runs, page.specs, strict=True)
        ]  # fmt: skip
        if fired.stale_jobs or fired.not_claimed:
            runs = [
                run for run in runs if run.job_id not in fired.stale_jobs and run.execution_id not in fired.not_claimed
            ]
        self._dispatcher.offer(runs)

    def _notice_clock_jumps(self, now: int) -> None:
        """The wall clock was set: what was armed by the old one is read again, and somebody should know."""
        offset = now / SECOND - self._clock.monotonic()
        jumped = offset - self._offset
        self._offset = offset
        if abs(jumped) >= CLOCK_JUMP_SECONDS:
            log.warning("the clock jumped", seconds=round(jumped, 3))
            self._disarm()
