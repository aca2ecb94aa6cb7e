"""The event log: writes what this node has gathered, a page at a time, and feeds this node's followers.

Both outlive a term: a fenced node still tells what it has done. An event is in the log at most GATHER_MS after it was
published; a process that is killed loses those that it had gathered since its last page.
"""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.commands import AddEvents
from duetime.domain.event_log import Allowance
from duetime.domain.hint import Hint
from duetime.domain.instants import LATEST, SECOND
from duetime.engine.service import Service
from duetime.events import EventFeed, EventHub
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one
from duetime.telemetry.debugging import debug

GATHER_MS = 200  # a page holds the events of this span: few commits in a burst, and none while nothing happens
LOOK = SECOND  # between two reads of the log while somebody follows; a hint or an own page comes first mostly


class EventLog(Service):
    """`send(hint)`: to the other nodes. `clock`: for all times that are stored."""

    def __init__(
        self, store: Store, clock: Clock, events: EventHub, feed: EventFeeding, random_bytes: Callable[[int], bytes],
        send: Callable[[Hint], None],
    ) -> None:  # fmt: skip
        super().__init__("event log", clock)
        self._store = store
        self._events = events
        self._feed = feed
        self._send = send
        self._writer = int.from_bytes(random_bytes(7), "big")
        self._sequence = 0
        self._unwritten: AddEvents | None = None  # a page whose write failed: it may be in the log
        self._due_at: int | None = None
        self._allowance = Allowance(clock.monotonic())
        events.on_gathering = self._begin_page

    def _begin_page(self) -> None:
        self._events.set_room(self._allowance.room(self._clock.monotonic()))
        self.wake()

    async def run_once(self) -> int:
        now = self._clock.now()
        if self._unwritten is None and not self._events.has_gathered():
            self._due_at = None
            return LATEST
        if self._due_at is None or self._due_at > now + GATHER_MS:  # (the clock was set back)
            self._due_at = now + GATHER_MS
        if now < self._due_at:
            return self._due_at
        await self.flush()
        return 0 if self._events.has_gathered() else LATEST

    async def flush(self) -> None:
        """Writes what was gathered, now."""
        self._due_at = None
        command = self._unwritten or self._next_page()
        if command is None:
            return
        self._unwritten = command
        await apply_one(self._store, command)
        self._unwritten = None
        debug("events were logged", tenants=len(command.rows))
        self._feed.wake()
        self._send(Hint(events=True))

    def _next_page(self) -> AddEvents | None:
        page = self._events.take_page()
        if not page:
            return None
        self._allowance.take(page.kept)
        self._sequence += 1
        now = self._clock.now()
        return AddEvents(self._writer, self._sequence, now, page.rows(now))

    async def stop(self) -> None:
        await super().stop()
        while self._unwritten is not None or self._events.has_gathered():
            await self.flush()


class EventFeeding(Service):
    """Reads the log for the followers on this node: once a second, and when there is a new page."""

    def __init__(self, feed: EventFeed, clock: Clock) -> None:
        super().__init__("event feed", clock)
        self._feed = feed
        feed.on_followed = self.wake

    async def run_once(self) -> int:
        if not self._feed.followers:
            return LATEST
        return 0 if await self._feed.read() else self._clock.now() + LOOK
