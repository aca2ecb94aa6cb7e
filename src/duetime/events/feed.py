"""The events of all nodes: one read of the log for all followers on this node.

While a tenant has followers here, the feed keeps the last pages with its events. A follower has no queue, only a
position in the log. If it is slower than its tenant's events, it reads older pages from the store, at its own pace. So
it misses nothing while they are kept there, and delays neither the engine nor other followers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from duetime.domain.event_log import (
    EVERY_TENANT,
    Event,
    EventPages,
    LoggedEvents,
    after_loss,
    end_of,
    first_unread,
    is_lost,
    pages_of,
)
from duetime.ports.store import Store

PAGES = 16  # of the log that are read at once
OLDER_PAGES = 8  # that a follower reads for itself at once
ENOUGH = 500  # events that a follower takes at once; it takes whole pages
MOST_HELD = 20_000  # events in memory, of all followed tenants
LEAST_HELD = 200  # of one tenant
_NOTHING_AFTER = 2**60  # a number that no page has

Page = tuple[int, list[Event | None]]


class _Tail:
    """The pages of one tenant after `base` up to `upto`. Its followers share them."""

    def __init__(self, head: int) -> None:
        self.base = self.upto = head
        self.pages: deque[Page] = deque()
        self.held = 0
        self.followers: set[Follower] = set()

    def add(self, pages: Iterable[Page], upto: int, most: int) -> None:
        news = [page for page in pages if page[0] > self.upto]
        self.pages.extend(news)
        self.held += sum(len(events) for _, events in news)
        while self.held > most and len(self.pages) > 1:
            self.base, events = self.pages.popleft()
            self.held -= len(events)
        self.upto = max(self.upto, upto)
        if news:
            self.wake()

    def drop(self, upto: int) -> None:
        """Drops all pages: the followers read from the store, where they find out what they missed."""
        self.base = self.upto = upto
        self.pages.clear()
        self.held = 0
        self.wake()

    def wake(self) -> None:
        for follower in self.followers:
            follower.wake()


class Follower:
    """A follower of the events of one tenant. Call `close` when it ends.

    `wake()` is called when there is something to take, and when the feed closes.
    """

    def __init__(self, feed: EventFeed, tenant: str, tail: _Tail, position: int, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.tenant = tenant
        self.position = position  # the id of the last event that it has, or of a later place without an event
        self._feed = feed
        self._tail = tail
        self._has_gap = False

    @property
    def is_over(self) -> bool:
        """The feed is closed: the follower resumes on another node."""
        return self._feed.is_closed

    def note_gap(self) -> None:
        self._has_gap = True

    async def take(self) -> list[Event | None]:
        """Returns the next events, and None where some were lost. Wakes the follower again if there may be more."""
        if self._has_gap:
            self._has_gap = False
            self.wake()
            return [None]
        begin = first_unread(self.position)
        if begin <= self._tail.base:
            return await self._take_older(begin)
        return self._take_pages([page for page in self._tail.pages if page[0] >= begin], self._tail.upto)

    def _take_pages(self, pages: Sequence[Page], upto: int) -> list[Event | None]:
        """Returns the events of the next pages. There are no other events up to `upto`."""
        taken: list[Event | None] = []
        for number, events in pages:
            taken += [event for event in events if event is None or event.id > self.position]
            self.position = end_of(number)
            if len(taken) >= ENOUGH:
                self.wake()
                return taken
        self.position = max(self.position, end_of(upto))
        return taken

    async def _take_older(self, begin: int) -> list[Event | None]:
        """Reads pages from the store: this follower is slower than its tenant's events, or resumes."""
        found = await self._feed.read_older(begin - 1, self.tenant)
        if is_lost(self.position, found):
            self.position = after_loss(self.position, found)
            self.wake()
            return [None]
        before = self.position
        taken = self._take_pages(pages_of(found.rows), _upto(found, OLDER_PAGES))
        if self.position > before:  # else the log is empty
            self.wake()
        return taken

    def close(self) -> None:
        self._feed.remove(self)


class EventFeed:
    """`on_followed()` is called when the first follower comes: from then on, call `read` about once a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[str, _Tail] = {}  # by tenant
        self.on_followed: Callable[[], None] = lambda: None
        self.is_closed = False

    @property
    def followers(self) -> int:
        return sum(len(tail.followers) for tail in self._tails.values())

    async def follow(self, tenant: str, after: int | None, wake: Callable[[], None]) -> Follower:
        """Follows the events with ids after `after`; None: those that are logged from now on."""
        found = await self._store.list_events(_NOTHING_AFTER, (tenant,), 1, tenant)
        tail = self._tails.get(tenant)
        if tail is None:
            tail = self._tails[tenant] = _Tail(found.head)
        follower = Follower(self, tenant, tail, end_of(found.head) if after is None else after, wake)
        if after is not None and is_lost(after, found):
            follower.note_gap()
            follower.position = after_loss(after, found)
        tail.followers.add(follower)
        self.on_followed()
        wake()
        return follower

    def remove(self, follower: Follower) -> None:
        tail = self._tails.get(follower.tenant)
        if tail is not None:
            tail.followers.discard(follower)
            if not tail.followers:
                del self._tails[follower.tenant]

    def close(self) -> None:
        """Ends all followers now: they resume on another node."""
        self.is_closed = True
        for tail in self._tails.values():
            tail.wake()

    async def read(self) -> bool:
        """Reads the new pages of all followed tenants. Returns whether there may be more."""
        tails = dict(self._tails)  # tenants that are followed during the read are not in it
        if not tails:
            return False
        after = min(tail.upto for tail in tails.values())
        found = await self._store.list_events(after, (*tails, EVERY_TENANT), PAGES)
        upto, most = _upto(found, PAGES), max(LEAST_HELD, MOST_HELD // len(tails))
        rows = defaultdict[str, list[LoggedEvents]](list)
        for row in found.rows:
            rows[row.tenant].append(row)
        for tenant, tail in tails.items():
            if tail.upto < found.pruned:
                tail.drop(found.pruned)
            tail.add(pages_of([*rows[tenant], *rows[EVERY_TENANT]]), upto, most)
        return upto < found.head

    async def read_older(self, after: int, tenant: str) -> EventPages:
        """Returns the first pages of a tenant numbered after `after`."""
        return await self._store.list_events(after, (tenant, EVERY_TENANT), OLDER_PAGES, tenant)


def _upto(found: EventPages, limit: int) -> int:
    """Returns the number up to which a read of `limit` pages has everything."""
    is_cut = len({row.number for row in found.rows}) == limit
    return found.rows[-1].number if is_cut else found.head
