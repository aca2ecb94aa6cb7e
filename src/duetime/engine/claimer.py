"""The claimer: fetches executions that wait in the store (retries, manual runs, overflow) when there is room."""

from __future__ import annotations

from duetime.domain.commands import Claim
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import SECOND
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

PAGE = 500
SHORTEST_PAUSE = 20  # ms, while there is no room


class Claimer(Service):
    def __init__(self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher) -> None:
        super().__init__("claimer", clock)
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._next_at = 0

    def hint(self, due_at: int) -> None:
        """An execution may be claimed at that instant."""
        if due_at < self._next_at:
            self._next_at = due_at
            self.wake()

    async def run_once(self) -> int:
        now = self._clock.now()
        self._dispatcher.resume()
        self._next_at = now + SECOND
        waiting_at = await self._store.next_waiting_at()
        if waiting_at is None or waiting_at > now:
            self._next_at = min(self._next_at, waiting_at or self._next_at)
            return self._next_at
        limit = min(PAGE, self._dispatcher.room())
        if limit <= 0:
            return now + SHORTEST_PAUSE
        full = self._dispatcher.full_endpoints()
        # By the clock as it is now: it may have been set back while the store was asked.
        (claimed,) = await self._store.apply([Claim(self._node, self._clock.now(), limit, full)])
        if isinstance(claimed, DuetimeError):
            raise claimed
        self._dispatcher.offer(claimed)
        return 0 if len(claimed) == limit else now + SHORTEST_PAUSE
