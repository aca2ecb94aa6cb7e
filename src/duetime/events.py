"""Events: published by the engine and the API, read by followers (SSE, tests).

The latest events are kept, so that a follower that lost its connection resumes where it was. Tenants share the space
fairly: a tenant with many events costs the others none. Publishing an event touches only the followers of its tenant.
An event is a hint for people and pages; the store is authoritative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec

from duetime.domain.shares import Holdings

KEPT = 10_000
LONGEST_QUEUE = 1000  # events; a follower further behind gets a gap (None) instead: this bounds memory
PAGE = 500  # events that a follower takes at once


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Two events are equal if they are the same object: an event is a key of caches, though its data is a dict."""

    number: int
    at: int
    kind: str  # job.created, job.paused, execution.completed, …
    tenant: str
    data: dict[str, object]
    owner: str | None = None  # of the job; None: the publisher does not know it


class _Kept:
    """The latest events of one tenant."""

    __slots__ = ("events", "lost")

    def __init__(self, lost: int) -> None:
        self.events: deque[Event] = deque()
        self.lost = lost  # the number of the latest event that is no longer kept


class Following:
    """The events of one tenant that one follower has not taken yet. Call `close` when the follower ends.

    `wake()` is called when there are events to take, and when the hub closes.
    """

    def __init__(self, tenant: str, waiting: Iterable[Event | None], hub: EventHub, wake: Callable[[], None]) -> None:
        self.tenant = tenant
        self._waiting = deque(waiting)
        self._most = len(self._waiting) + LONGEST_QUEUE
        self._has_gap = False  # at the end of those that wait: no event is added behind it
        self._hub = hub
        self._wake = wake
        if self._waiting:
            wake()

    @property
    def is_over(self) -> bool:
        """The hub is closed: the follower reads the remaining events elsewhere."""
        return self._hub.is_closed

    def add(self, event: Event) -> None:
        if self._has_gap:
            return
        self._has_gap = len(self._waiting) >= self._most
        self._waiting.append(None if self._has_gap else event)
        self._wake()

    def end(self) -> None:
        self._waiting.clear()
        self._wake()

    def take(self) -> list[Event | None]:
        """Returns the next events, and None where some were lost. Wakes the follower again if there are more."""
        taken = list(islice(self._waiting, PAGE))
        for _ in taken:
            self._waiting.popleft()
        if self._waiting:
            self._wake()
        else:
            self._has_gap = False
        return taken

    def close(self) -> None:
        self._hub.remove(self)


class EventHub:
    def __init__(self, kept: int = KEPT) -> None:
        self._kept: dict[str, _Kept] = {}  # by tenant
        self._holdings = Holdings(kept)
        self._forgotten = 0  # the latest event number of the tenants of which no events are kept
        self._number = 0
        self._followers: dict[str, set[Following]] = {}  # by tenant
        self.is_closed = False

    @property
    def followers(self) -> int:
        return sum(map(len, self._followers.values()))

    def list_kept(self) -> list[Event]:
        """Returns the kept events of all tenants, in order."""
        kept = [event for kept in self._kept.values() for event in kept.events]
        return sorted(kept, key=lambda event: event.number)

    def close(self) -> None:
        """Ends all followers now: they read the remaining events elsewhere."""
        self.is_closed = True
        for followers in self._followers.values():
            for following in followers:
                following.end()

    def publish(self, kind: str, at: int, tenant: str, data: dict[str, object], owner: str | None = None) -> None:
        self._number += 1
        event = Event(self._number, at, kind, tenant, data, owner)
        self._keep(event)
        if not self._followers:
            return
        for following in self._followers.get(tenant, ()):
            following.add(event)

    def _keep(self, event: Event) -> None:
        kept = self._kept.get(event.tenant)
        if kept is None:
            kept = self._kept[event.tenant] = _Kept(self._forgotten)
        kept.events.append(event)
        holdings = self._holdings
        if holdings.total < holdings.capacity:
            holdings.add(event.tenant)
            return
        if len(self._kept) == 1:  # the tenant is alone, and its own oldest event gives way: no shares to compare
            kept.lost = kept.events.popleft().number
            return
        tenant = holdings.gives_way(event.tenant)
        loser = self._kept[tenant]
        loser.lost = loser.events.popleft().number
        if tenant != event.tenant:
            holdings.remove(tenant)
            holdings.add(event.tenant)
            if not loser.events:
                self._forgotten = max(self._forgotten, self._kept.pop(tenant).lost)

    def follow(self, tenant: str, after: int | None, wake: Callable[[], None]) -> Following:
        """Returns the events later than `after` (None: from now on), and None first if some of them were lost."""
        last = self._number if after is None else after
        of_tenant = self._kept.get(tenant)
        waiting: list[Event | None] = []
        # A number above ours is from before a restart: some events may have been lost then, too.
        if last > self._number or last < (self._forgotten if of_tenant is None else of_tenant.lost):
            waiting.append(None)
        if of_tenant is not None:
            waiting += [event for event in of_tenant.events if event.number > last]
        following = Following(tenant, waiting, self, wake)
        self._followers.setdefault(tenant, set()).add(following)
        return following

    def remove(self, following: Following) -> None:
        followers = self._followers.get(following.tenant, set())
        followers.discard(following)
        if not followers:
            self._followers.pop(following.tenant, None)
