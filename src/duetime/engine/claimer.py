"""The claimer: fetches executions that wait in the store (retries, manual executions, overflow) when there is room.

Tenants take turns: each ClaimExecutions command is for the next tenants with waiting executions, and each of them gets
the same number. A tenant that has used up its share of this node's memory is skipped; only its notices
of alerts are claimed, for which there is room besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duetime.domain.commands import ClaimExecutions, Release
from duetime.domain.commands.executions import CLAIM_BYTES
from duetime.domain.endpoints import NOTICES
from duetime.domain.execution import Claim
from duetime.domain.held_specs import limit_of_bytes
from duetime.domain.instants import SECOND
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.execution_events import publish_started
from duetime.engine.service import Service
from duetime.engine.unanswered import Unanswered
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.store import Store, apply_one
from duetime.telemetry.debugging import debug

PAGE = 500
MOST_TENANTS = 64  # in one ClaimExecutions command
SHORTEST_PAUSE, LONGEST_PAUSE = 20, 320  # ms, while there is nothing to claim, or no room for it


class Claimer(Service):
    def __init__(
        self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher, unanswered: Unanswered,
        events: EventHub, is_clock_right: Callable[[], bool] = always,
    ) -> None:  # fmt: skip
        super().__init__("claimer", clock)
        self._store = store
        self._node = node
        self._dispatcher = dispatcher
        self._next_at = 0
        self._last_tenant = ""  # the last one that had its turn in this round; empty: a round begins
        self._has_claimed = False  # in this round
        self._pause = SHORTEST_PAUSE
        self._unanswered = unanswered
        self._is_clock_right = is_clock_right
        self._events = events
        self.releasing: list[Claim] = []  # claims to release for other tenants, not yet written

    def hint(self, due_at: int) -> None:
        """Takes note that an execution can be claimed from `due_at` on."""
        if due_at < self._next_at:
            self._next_at = due_at
            self._pause = SHORTEST_PAUSE
            self.wake()

    async def run_once(self) -> int:
        now = self._clock.now()
        self._dispatcher.resume()
        self._next_at = now + SECOND
        if not self._is_clock_right():
            return self._next_at
        await self._release()
        waiting_at = await self._store.next_waiting_at()
        if waiting_at is None or waiting_at > now:
            self._next_at = min(self._next_at, waiting_at or self._next_at)
            return self._next_at
        if await self._claim(now):
            self._pause = SHORTEST_PAUSE
            return 0
        # The waiting executions are not due, or their tenants have no room: look less and less often, until a hint.
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return now + self._pause

    async def _claim(self, now: int) -> bool:
        """Claims for the next tenants. Returns False if a whole round claimed nothing, or there is no room."""
        if not self._last_tenant:
            self._has_claimed = False  # a new round
        waiting = await self._store.list_waiting_tenants(now, self._last_tenant, MOST_TENANTS)
        tenants, limit = await self._choose(waiting)
        has_notices = await self._claim_notices([tenant for tenant in waiting if limit <= 0 or tenant not in tenants])
        if limit <= 0:
            return has_notices
        is_last_page = len(waiting) < MOST_TENANTS and len(tenants) <= limit
        self._last_tenant = "" if is_last_page else waiting[-1] if len(tenants) <= limit else tenants[limit - 1]
        if tenants:
            full_endpoints = self._dispatcher.full_endpoints()
            # Read the clock again: it may have been set during the query.
            command = ClaimExecutions(
                self._node, self._clock.now(), limit, tuple(tenants[:limit]), full_endpoints,
                bytes=min(CLAIM_BYTES, limit_of_bytes(self._dispatcher.room())),
            )  # fmt: skip
            if not self._is_clock_right():
                return False
            with self._unanswered.write():
                claimed = await apply_one(self._store, command)
            debug("executions were claimed", count=len(claimed), limit=limit, tenants=len(command.tenants))
            self._dispatcher.offer(claimed)
            publish_started(self._events, claimed, command.now)
            self._has_claimed |= bool(claimed)
        return not is_last_page or self._has_claimed or has_notices

    async def _claim_notices(self, tenants: Sequence[str]) -> bool:
        """Claims the notices of tenants that have no room for anything else. Returns whether there were any."""
        room = self._dispatcher.notice_room()
        if not tenants or not room:
            return False
        now, most = self._clock.now(), limit_of_bytes(room)
        command = ClaimExecutions(self._node, now, room, tuple(tenants), only=(NOTICES,), bytes=min(CLAIM_BYTES, most))
        with self._unanswered.write():
            claimed = await apply_one(self._store, command)
        self._dispatcher.offer(claimed)
        return bool(claimed)

    async def _choose(self, waiting: Sequence[str]) -> tuple[list[str], int]:
        """Returns the tenants to claim for, and the limit. Without room, they are the tenants below their share."""
        if self._dispatcher.room() > 0:
            full = self._dispatcher.full_tenants()
            return [tenant for tenant in waiting if tenant not in full], min(PAGE, self._dispatcher.room())
        lacks = self._dispatcher.lacks(waiting)
        wanted = min(PAGE, sum(lacks.values())) - self._dispatcher.room()
        if lacks:
            self.releasing = self._dispatcher.make_room(wanted, lacks)
            await self._release()
        return list(lacks), max(0, min(PAGE, self._dispatcher.room()))

    async def _release(self) -> int:
        """Writes the releases. A failed write is retried: the token makes sure that each claim is released once."""
        claims = self.releasing
        if not claims:
            return 0
        await apply_one(self._store, Release(self._node, self._clock.now(), tuple(claims)))
        debug("executions were released for tenants that have fewer", count=len(claims))
        self.releasing = []
        self._dispatcher.recorded(claims)
        return len(claims)
