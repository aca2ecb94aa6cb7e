"""Events: published by the engine and the API, read by followers (SSE, tests).

The latest events are kept, so that a follower that lost its connection resumes where it was. Tenants share the space
fairly: a tenant with many events costs the others none. Publishing an event touches only the followers of its tenant.
An event is a hint for people and pages; the store is authoritative.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from duetime.domain.shares import Holdings

KEPT = 10_000
LONGEST_QUEUE = 1000  # events; a follower further behind gets a gap (None) instead: this bounds memory


class Event(msgspec.Struct, frozen=True, gc=False):
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


class EventHub:
    def __init__(self, kept: int = KEPT) -> None:
        self._kept: dict[str, _Kept] = {}  # by tenant
        self._holdings = Holdings(kept)
        self._forgotten = 0  # the latest event number of the tenants of which no events are kept
        self._number = 0
        self._followers: dict[str, set[asyncio.Queue[Event | None]]] = {}  # by tenant
        self._closed = False

    @property
    def followers(self) -> int:
        return sum(map(len, self._followers.values()))

    def list_kept(self) -> list[Event]:
        """Returns the kept events of all tenants, in order."""
        kept = [event for kept in self._kept.values() for event in kept.events]
        return sorted(kept, key=lambda event: event.number)

    def close(self) -> None:
        """Ends all followers now: they read the remaining events elsewhere."""
        self._closed = True
        for queues in self._followers.values():
            for queue in queues:
                queue.put_nowait(None)  # wakes a waiting follower

    def publish(self, kind: str, at: int, tenant: str, data: dict[str, object], owner: str | None = None) -> None:
        self._number += 1
        event = Event(self._number, at, kind, tenant, data, owner)
        self._keep(event)
        if not self._followers:
            return
        for queue in self._followers.get(tenant, ()):
            if queue.qsize() < LONGEST_QUEUE:
                queue.put_nowait(event)
            elif queue.qsize() == LONGEST_QUEUE:
                queue.put_nowait(None)

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

    async def follow(self, tenant: str, after: int | None) -> AsyncGenerator[Event | None, None]:
        """Yields events later than `after` (None: from now on) until the hub closes, and None where some were lost."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._followers.setdefault(tenant, set()).add(queue)
        try:
            last = self._number if after is None else after
            of_tenant = self._kept.get(tenant)
            kept = [] if of_tenant is None else [event for event in of_tenant.events if event.number > last]
            # A number above ours is from before a restart: some events may have been lost then, too.
            if last > self._number or last < (self._forgotten if of_tenant is None else of_tenant.lost):
                yield None
            for event in kept:
                if self._closed:
                    return
                yield event
            while not self._closed:
                item = await queue.get()
                if self._closed:
                    return
                if item is None:
                    while not queue.empty():
                        queue.get_nowait()
                    yield None
                else:
                    yield item
        finally:
            followers = self._followers[tenant]
            followers.discard(queue)
            if not followers:
                del self._followers[tenant]
