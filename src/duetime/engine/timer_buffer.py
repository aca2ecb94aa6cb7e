"""Timers that will be due soon, read and planned ahead, so that only the write and the request remain at the due time.

The buffer is a copy, not the truth: it may be dropped at any time, and the store refuses a fire that is based on an old
copy. Timers are read in order of their places, page after page, to a little ahead of now. A timer that is added behind
the place of the reader leaves a gap there, which is read next.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from duetime.domain.errors import DuetimeError
from duetime.domain.instants import SECOND
from duetime.domain.plan import GRACE, AheadPlan, DueTimer, FirePlan, Place, plan_ahead
from duetime.ports.store import Store

READ_AHEAD = SECOND // 2  # how far ahead of now timers are read; the reading goes on when half of that is left
READ_PAGE = 512  # timers: decoded and planned in a few milliseconds, and nobody waits for longer
BURST_PAGE = 2048  # of those that are due already: what is read now is written next, and larger pages cost less each
MOST_HELD = 8_192  # timers of a burst; the rest is read while these are fired
MOST_EXTRA = 8_192  # places of memory (`domain.held_specs`) that large jobs take beside one for each timer
MISSED_PAGE = 64  # recurring jobs that were missed take long to decide: others get their turn in between
QUIET = 15  # ms before an instant in which no reading begins: it might still be decoded when the instant comes

_LAST_TENANT = "\U0010ffff"
_LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_due_at = attrgetter("due_at")
_tenant = attrgetter("tenant")
_places = attrgetter("places")


def _end_of(instant: int) -> Place:
    """The place after all timers of an instant."""
    return instant, _LAST_TENANT, _LAST_ID


class Due(NamedTuple):
    """Timers to fire now, with their plan if it was made ahead and still holds."""

    timers: Sequence[DueTimer]
    planned: FirePlan | None


class _Page:
    """A reading, of which the timers before `position` were taken."""

    __slots__ = ("ahead", "extra", "position", "timers")

    def __init__(self, timers: list[DueTimer], ahead: AheadPlan | None, position: int = 0) -> None:
        self.timers = timers
        self.ahead = ahead
        self.position = position
        self.extra = sum(map(_places, timers)) - len(timers)  # places, until all of it was taken

    def without(self, first_at: int, last_at: int) -> Iterable[_Page]:
        """What is left of it, but for what is due from `first_at` to `last_at`."""
        begin = bisect_left(self.timers, first_at, self.position, key=_due_at)
        end = bisect_right(self.timers, last_at, begin, key=_due_at)
        if begin > self.position:
            yield _Page(self.timers[:begin], self.ahead, self.position)
        if end < len(self.timers):
            yield _Page(self.timers, self.ahead, end)


class TimerBuffer:
    """`shards`: to read timers of; None stands for all. `without`: tenants whose timers are passed over.

    `since`: what was due before is not read.
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
        self.drop()

    def read_only(self, shards: tuple[int, ...] | None) -> None:
        """From here on, timers of these shards only; what was read before is forgotten."""
        self._shards = shards
        self.drop()

    def drop(self) -> None:
        """Forget everything: the next reading begins with the earliest timer there is."""
        self._pages: list[_Page] = []
        self._reading: asyncio.Task[list[DueTimer]] | None = None
        self._place = None if self._since is None else _end_of(self._since)  # every timer up to here was read
        self._until = 0  # how far the reading looks
        self._more = True  # there may be more to read up to there
        self._hinted: tuple[int, int] | None = None  # the first and last instant of timers that came behind the reading
        self._looks_back: int | None = None  # from that instant on
        self._gap: tuple[Place, int] | None = None  # what is read again: from where, and up to which instant

    def hint(self, due_at: int) -> bool:
        """A timer is due then. True if the reading may have passed it by."""
        if due_at > self._until:
            return False
        first, last = self._hinted or (due_at, due_at)
        self._hinted = (min(first, due_at), max(last, due_at))
        return True

    def look_back(self, since: int = 0) -> None:
        """Look for timers that came before the first of those held, and that nobody hinted at."""
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
        return self.held() >= MOST_HELD or sum(page.extra for page in self._pages) >= MOST_EXTRA

    def count_by_tenant(self) -> Counter[str]:
        """How many timers of each tenant are held."""
        found = Counter[str]()
        for page in self._pages:
            found.update(map(_tenant, islice(page.timers, page.position, None)))
        return found

    def take(self, now: int, most: int) -> Due | None:
        """The next timers whose instant has come, if any."""
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
        """Begin to read the next page, if one is wanted. True while one is being read."""
        if self._reading is None:
            self._open_gap()
            if self._gap is not None:
                place, until = self._gap
                self._reading = self._read(until, READ_PAGE, place)
            elif self._wants_more(now):
                if not self._more:
                    self._place = _end_of(self._until)
                self._until = now + READ_AHEAD
                is_behind = self._place is not None and self._place[0] <= now
                self._reading = self._read(self._until, BURST_PAGE if is_behind else READ_PAGE, self._place)
        return self._reading is not None

    def _read(self, until: int, limit: int, after: Place | None) -> asyncio.Task[list[DueTimer]]:
        task = asyncio.ensure_future(
            self._store.list_due_timers(until, limit, after, self._shards, tuple(self.without))
        )
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be dropped
        return task

    def _open_gap(self) -> None:
        """What was read for the instants that were hinted at is read again, the rest is kept."""
        if self._gap is not None:
            return
        if self._hinted is not None:
            (first_at, last_at), self._hinted = self._hinted, None
            if self._more:  # the reading itself has yet to come by what lies beyond its place
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
        """When the reading goes on, if it has read all there is so far."""
        return self._until - READ_AHEAD // 2

    async def end_reading(self) -> None:
        """Add the page that is being read to the buffer."""
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
        # A page may be short because its jobs are large: only an empty one says that there is no more.
        last = timers[-1].place if timers else None
        if self._gap is None:
            self._more = last is not None
            self._place = last or self._place
            position = len(self._pages)
        else:
            until = self._gap[1]
            self._gap = None if last is None else (last, until)
            if last is None and self._place is not None:  # all of that instant was read, where the reading stood in it
                self._place = max(self._place, _end_of(until))
            position = sum(page.timers[-1].due_at <= until for page in self._pages)
        if timers:
            self._pages.insert(position, _Page(timers, self._plan(timers)))
        if self._gap is not None and self.is_full():  # too wide to keep what comes after it
            del self._pages[position + 1 :]
            self._place, self._more, self._gap = last, True, None

    def _plan(self, timers: Sequence[DueTimer]) -> AheadPlan | None:
        try:
            return plan_ahead(timers, int.from_bytes(self._random_bytes(9), "big"))
        except DuetimeError:  # a job that can't be planned: it is set aside when it is due
            return None


def _few_missed(timers: Sequence[DueTimer], begin: int, end: int, now: int) -> int:
    missed, at = 0, begin
    while at < end and missed < MISSED_PAGE:
        missed += timers[at].recurs and now - timers[at].due_at > GRACE
        at += 1
    return at
