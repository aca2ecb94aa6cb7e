"""What happens, as events: published by the engine and the API, followed by whoever subscribes (SSE, tests).

A bounded ring keeps the latest, so that a follower who lost the connection resumes where it was. An event is a hint for
people and pages; the store is the truth.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

KEPT = 10_000
LONGEST_QUEUE = 1000  # a follower slower than this is told to start over: memory stays bounded


class Event(msgspec.Struct, frozen=True):
    number: int
    at: int
    kind: str  # job.created, job.paused, execution.completed, …
    tenant: str
    data: dict[str, object]
    owner: str | None = None  # of the job; None: whoever publishes does not know


class EventHub:
    def __init__(self) -> None:
        self._ring: deque[Event] = deque(maxlen=KEPT)
        self._number = 0
        self._followers: dict[asyncio.Queue[Event | None], str] = {}  # by their tenant
        self._closed = False

    @property
    def followers(self) -> int:
        return len(self._followers)

    def close(self) -> None:
        """End all who follow, now: what they have not read yet they read elsewhere."""
        self._closed = True
        for queue in self._followers:
            queue.put_nowait(None)  # wakes who waits

    def publish(self, kind: str, at: int, tenant: str, data: dict[str, object], owner: str | None = None) -> None:
        self._number += 1
        event = Event(self._number, at, kind, tenant, data, owner)
        self._ring.append(event)
        for queue, its_tenant in self._followers.items():
            if its_tenant != tenant:
                continue
            if queue.qsize() < LONGEST_QUEUE:
                queue.put_nowait(event)
            elif queue.qsize() == LONGEST_QUEUE:
                queue.put_nowait(None)

    async def follow(self, tenant: str, after: int | None) -> AsyncGenerator[Event | None, None]:
        """Events later than `after` (None: from now on) until the hub closes. None stands for a hole: some are lost."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._followers[queue] = tenant
        try:
            last = self._number if after is None else after
            kept = [event for event in self._ring if event.number > last]
            # A number beyond ours is from before a restart: there, too, some may have been lost.
            if last > self._number or (kept and kept[0].number > last + 1):
                yield None
            for event in kept:
                if self._closed:
                    return
                if event.tenant == tenant:
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
            del self._followers[queue]
