"""Timers that will be due soon, read and planned ahead, so that only the write and the request remain at the due time.

The buffer is a copy, not the truth: it may be dropped at any time, and the store refuses a fire that is based on an old
copy. Timers are read in order of their places, page after page, to a little ahead of now. A timer that is added behind
the read position leaves a gap there. The gap is read next.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from duetime.domain.commands import PauseJob
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import SECOND
from duetime.domain.plan import GRACE, AheadPlan, DueTimer, FirePlan, Place, plan_ahead
from duetime.ports.pages import DueTimers
from duetime.ports.store import Store

READ_AHEAD = SECOND // 2  # how far ahead of now timers are read; the next read starts when half of it is left
READ_PAGE = 512  # timers: decoded and planned in a few milliseconds, which is the longest that other work waits
BURST_PAGE = 2048  # for timers that are already due: they are written next, and larger pages cost less per timer
# Timers in the buffer, 1.5 kB each. The rest of a burst is read while these are fired, which slows the burst down.
MOST_HELD = 32_768
MOST_HELD_SHARED = 16_384  # while other tenants are due, too
MOST_EXTRA = 8_192  # places of memory (`domain.held_specs`) that large jobs take in addition to one per timer
MISSED_PAGE = 64  # missed recurring jobs take long to plan: small pages let other work run in between
QUIET = 15  # ms before a due time in which no read starts: decoding might not be finished at the due time

_LAST_TENANT = "\U0010ffff"
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_due_at = attrgetter("due_at")
_tenant = attrgetter("tenant")
_places = attrgetter("places")


def _end_of(instant: int) -> Place:
    """Returns the place after all timers of an instant."""
    return instant, _LAST_TENANT, _LAST_ID


class Due(NamedTuple):
    """Timers to fire now, with their plan if it was made ahead and still holds."""

    timers: Sequence[DueTimer]
    planned: FirePlan | None


class _Page:
    """A page of timers that was read. The timers before `position` were taken."""

    __slots__ = ("ahead", "extra", "position", "timers")

    def __init__(self, timers: list[DueTimer], ahead: AheadPlan | None, position: int = 0) -> None:
        self.timers = timers
        self.ahead = ahead
        self.position = position
        self.extra = sum(map(_places, timers)) - len(timers)  # places; counted until all timers of the page were taken

    def add_to(self, counts: Counter[str]) -> None:
        """Adds the number of timers not yet taken, by tenant."""
        if self.position == len(self.timers):
            return
        first, last = self.timers[self.position], self.timers[-1]
        # A page of a burst is of one tenant: timers are in order of (due_at, tenant). Counting each of them several
        # times a second took 4 % of a burst.
        if (first.due_at, first.tenant) == (last.due_at, last.tenant):
            counts[first.tenant] += len(self.timers) - self.position
        else:
            counts.update(map(_tenant, islice(self.timers, self.position, None)))

    def without(self, first_at: int, last_at: int) -> Iterable[_Page]:
        """Returns the timers not yet taken, except those due from `first_at` to `last_at`."""
        begin = bisect_left(self.timers, first_at, self.position, key=_due_at)
        end = bisect_right(self.timers, last_at, begin, key=_due_at)
        if begin > self.position:
            yield _Page(self.timers[:begin], self.ahead, self.position)
        if end < len(self.timers):
            yield _Page(self.timers, self.ahead, end)


class TimerBuffer:
    """`shards`: the shards to read; None means all. `without`: tenants whose timers are not read.

    `since`: timers that were due up to then are not read.
    """

    def __init__(
        self, store: Store, random_bytes: Callable[[int], bytes], shards: tuple[int, ...] | None = None,
        without: frozenset[str] = frozenset(), since: int | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._random_bytes = random_bytes
        self._shards = shards
        self.without = without
        self._since = since
        self.most_held = MOST_HELD_SHARED
        self.drop()

    def read_only(self, shards: tuple[int, ...] | None) -> None:
        """Drops the buffer, and reads only timers of these shards from now on."""
        self._shards = shards
        self.drop()

    def drop(self) -> None:
        """Empties the buffer: the next read starts with the earliest timer (after `since`, if given)."""
        self._pages: list[_Page] = []
        self._reading: asyncio.Task[DueTimers] | None = None
        self._place = None if self._since is None else _end_of(self._since)  # every timer up to here was read
        self._until = 0  # timers due up to here are read
        self._more = True  # there may be more timers up to `_until`
        self._hinted: tuple[int, int] | None = None  # the first and last due time hinted within `_until`
        self._looks_back: int | None = None  # look for timers before the first held one, from that instant on
        self._gap: tuple[Place, int] | None = None  # to read again: from which place, up to which instant

    def hint(self, due_at: int) -> bool:
        """Takes note of a timer due at `due_at`. Returns True if the reads may have passed it already."""
        if due_at > self._until:
            return False
        first, last = self._hinted or (due_at, due_at)
        self._hinted = (min(first, due_at), max(last, due_at))
        return True

    def look_back(self, since: int = 0) -> None:
        """Makes the next read look for timers before the first held one for which no hint arrived."""
        self._looks_back = since

    def first_due_at(self) -> int | None:
        while self._pages:
            page = self._pages[0]
            if page.position < len(page.timers):
                return page.timers[page.position].due_at
            del self._pages[0]
        return None

    def held(self) -> int:
        return sum(len(page.timers) - page.position for page in self._pages)

    def is_full(self) -> bool:
        return self.held() >= self.most_held or sum(page.extra for page in self._pages) >= MOST_EXTRA

    def count_by_tenant(self) -> Counter[str]:
        """Returns how many timers of each tenant are held."""
        found = Counter[str]()
        for page in self._pages:
            page.add_to(found)
        return found

    def count_due(self, now: int) -> Counter[str]:
        """Returns how many held timers of each tenant are due at `now`."""
        found = Counter[str]()
        for page in self._pages:
            end = bisect_right(page.timers, now, page.position, key=_due_at)
            found.update(map(_tenant, page.timers[page.position : end]))
        return found

    def take(self, now: int, most: int) -> Due | None:
        """Returns the next timers that are due, `most` at most; None if there are none."""
        timers: list[DueTimer] = []
        planned: FirePlan | None = None
        while len(timers) < most:
            first_due_at = self.first_due_at()
            if first_due_at is None or first_due_at > now:
                break
            page = self._pages[0]
            begin = page.position
            end = bisect_right(page.timers, now, begin, min(len(page.timers), begin + most - len(timers)), key=_due_at)
            part = None if page.ahead is None else page.ahead.cut(begin, end, now)
            if part is None:
                if timers:
                    break
                page.position = _few_missed(page.timers, begin, end, now)
                return Due(page.timers[begin : page.position], None)
            page.position = end
            timers += page.timers[begin:end]
            planned = part if planned is None else planned.joined(part)
        return Due(timers, planned) if timers else None

    # Reading

    def read_on(self, now: int) -> bool:
        """Starts to read the next page, if one is wanted. Returns True while a page is being read."""
        if self._reading is None:
            self._open_gap()
            if self._gap is not None:
                place, until = self._gap
                self._reading = self._read(until, READ_PAGE, place, now)
            elif self._wants_more(now):
                if not self._more:
                    self._place = _end_of(self._until)
                self._until = now + READ_AHEAD
                is_behind = self._place is not None and self._place[0] <= now
                self._reading = self._read(self._until, BURST_PAGE if is_behind else READ_PAGE, self._place, now)
        return self._reading is not None

    def _read(self, until: int, limit: int, after: Place | None, now: int) -> asyncio.Task[DueTimers]:
        task = asyncio.ensure_future(self._read_page(until, limit, after, now))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a dropped read is not awaited
        return task

    async def _read_page(self, until: int, limit: int, after: Place | None, now: int) -> DueTimers:
        """Returns a page. Pauses jobs whose definition this version can't read, with that reason: the others go on."""
        timers = await self._store.list_due_timers(until, limit, after, self._shards, tuple(self.without))
        if timers.unreadable:
            await self._store.apply(
                [PauseJob(now, job.tenant, job.job_id, "duetime", job.error) for job in timers.unreadable]
            )
            if not timers:  # an empty page means that no timer is left, which is not known yet
                timers = await self._store.list_due_timers(until, limit, after, self._shards, tuple(self.without))
        return timers

    def _open_gap(self) -> None:
        """Drops the timers of the hinted instants, so that they are read again. Keeps the rest."""
        if self._gap is not None:
            return
        if self._hinted is not None:
            (first_at, last_at), self._hinted = self._hinted, None
            if self._more:  # timers beyond the read position will be read anyway
                last_at = min(last_at, -1 if self._place is None else self._place[0])
            if first_at <= last_at:
                self._gap = (_end_of(first_at - 1), last_at)
                self._pages = [part for page in self._pages for part in page.without(first_at, last_at)]
        elif self._looks_back is not None:
            since, self._looks_back = self._looks_back, None
            first_due_at = self.first_due_at()
            if first_due_at is not None and since < first_due_at:
                self._gap = (_end_of(since - 1), first_due_at - 1)

    def _wants_more(self, now: int) -> bool:
        if self.is_full():
            return False
        first_due_at = self.first_due_at()
        if first_due_at is not None and 0 < first_due_at - now <= QUIET:
            return False
        return self._more or now >= self.reads_on_at()

    def reads_on_at(self) -> int:
        """Returns when to read on, if all timers up to `_until` were read."""
        return self._until - READ_AHEAD // 2

    async def end_reading(self) -> None:
        """Waits for the page that is being read, and adds it to the buffer."""
        reading = self._reading
        if reading is None:
            return
        try:
            timers = await reading
        finally:
            dropped = self._reading is not reading
            if not dropped:
                self._reading = None
        if not dropped:
            self._buffer_timers(timers)

    def is_read(self) -> bool:
        return self._reading is not None and self._reading.done()

    def _buffer_timers(self, timers: list[DueTimer]) -> None:
        # A page may be short because its jobs are large. Only an empty page means that there are no more timers.
        last = timers[-1].place if timers else None
        if self._gap is None:
            self._more = last is not None
            self._place = last or self._place
            position = len(self._pages)
        else:
            until = self._gap[1]
            self._gap = None if last is None else (last, until)
            if last is None and self._place is not None:  # the gap was read to the end of its last instant
                self._place = max(self._place, _end_of(until))
            position = sum(page.timers[-1].due_at <= until for page in self._pages)
        if timers:
            self._pages.insert(position, _Page(timers, self._plan(timers)))
        if self._gap is not None and self.is_full():  # the gap is too wide: drop the pages after it
            del self._pages[position + 1 :]
            self._place, self._more, self._gap = last, True, None

    def _plan(self, timers: Sequence[DueTimer]) -> AheadPlan | None:
        try:
            return plan_ahead(timers, int.from_bytes(self._random_bytes(9), "big"))
        except DuetimeError:  # a job can't be planned: the timer pauses it when it is due
            return None


def _few_missed(timers: Sequence[DueTimer], begin: int, end: int, now: int) -> int:
    missed, at = 0, begin
    while at < end and missed < MISSED_PAGE:
        missed += timers[at].recurs and now - timers[at].due_at > GRACE
        at += 1
    return at
