"""The claimer: fetches executions that wait in the store (retries, manual runs, overflow) when there is room.

Tenants take turns: each claim is for the next tenants that have something waiting, and each of them gets the same. One
that holds its share of this node's memory already is passed by.
"""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.commands import Claim, Release
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import Run
from duetime.domain.instants import SECOND
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.service import Service
from duetime.engine.unanswered import Unanswered
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.store import Store

PAGE = 500
MOST_TENANTS = 64  # of one claim
SHORTEST_PAUSE = 20  # ms, while there is no room


class Claimer(Service):
    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, unanswered: Unanswered | None = None
    ) -> None:
        super().__init__("claimer", clock)
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._next_at = 0
        self._last_tenant = ""  # that had its turn in this round; none: a round begins
        self._has_claimed = False  # in this round
        self._unanswered = unanswered or Unanswered(clock.monotonic)
        self.releasing: list[Run] = []  # given back for others' sake, and not written yet
        self.is_clock_right: Callable[[], bool] = always

    def hint(self, due_at: int) -> None:
        """An execution may be claimed at that instant."""
        if due_at < self._next_at:
            self._next_at = due_at
            self.wake()

    async def run_once(self) -> int:
        now = self._clock.now()
        self._dispatcher.resume()
        self._next_at = now + SECOND
        if not self.is_clock_right():
            return self._next_at
        await self._release()
        waiting_at = await self._store.next_waiting_at()
        if waiting_at is None or waiting_at > now:
            self._next_at = min(self._next_at, waiting_at or self._next_at)
            return self._next_at
        limit = min(PAGE, self._dispatcher.room()) or await self._make_room()
        if limit <= 0:
            return now + SHORTEST_PAUSE
        return 0 if await self._claim(limit) else now + SHORTEST_PAUSE

    async def _claim(self, limit: int) -> bool:
        """Claim for the tenants whose turn it is. Returns False if all had theirs and there was nothing to claim."""
        if not self._last_tenant:
            self._has_claimed = False  # a new round
        waiting = await self._store.list_waiting_tenants(self._last_tenant, MOST_TENANTS)
        is_last_page = len(waiting) < MOST_TENANTS
        self._last_tenant = "" if is_last_page else waiting[-1]
        full = self._dispatcher.full_tenants()
        if tenants := tuple(tenant for tenant in waiting if tenant not in full):
            full_endpoints = self._dispatcher.full_endpoints()
            # By the clock as it is now: it may have been set while the store was asked.
            claim = Claim(self._node, self._clock.now(), limit, tenants, full_endpoints)
            if not self.is_clock_right():
                return False
            with self._unanswered.write():
                (claimed,) = await self._store.apply([claim])
            if isinstance(claimed, DuetimeError):
                raise claimed
            self._dispatcher.offer(claimed)
            self._has_claimed |= bool(claimed)
        return not is_last_page or self._has_claimed

    async def _make_room(self) -> int:
        """Release claims of the tenant that holds most, if it holds more than its share. Returns how many."""
        self.releasing = self._dispatcher.make_room(PAGE)
        return await self._release()

    async def _release(self) -> int:
        """Write what is to be given back. If that fails it is tried again: by its token it is given back once."""
        runs = self.releasing
        if not runs:
            return 0
        (refused,) = await self._store.apply([Release(self._node, self._clock.now(), tuple(runs))])
        if isinstance(refused, DuetimeError):
            raise refused
        self.releasing = []
        self._dispatcher.recorded(runs)
        return len(runs)
