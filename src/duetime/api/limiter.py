"""Limits each user's requests exactly across all nodes, without a call to the store for each request.

A node reserves a part of the remaining requests (a twentieth; one when few remain) and spends it by itself. After a
second it gives back the rest. So all nodes together never admit more than the limit allows, and no request is refused
for long because another node holds a reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from duetime.domain import limits
from duetime.domain.commands import TakeRequests
from duetime.domain.errors import DuetimeError, RateLimited
from duetime.domain.identity import Caller
from duetime.domain.instants import SECOND
from duetime.domain.limits import MICRO, Quota, TierLimits
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one

HELD_SECONDS = 1.0  # how long a node keeps reserved requests that are not spent

log = structlog.get_logger()


Headers = list[tuple[bytes, bytes]]
# For a request without a limit. Clients parse these as numbers: a large one, so that no client slows down, and an
# instant in the past, so that no client waits for it.
NO_LIMIT_HEADERS: Headers = [
    (b"x-ratelimit-limit", b"2147483647"),
    (b"x-ratelimit-remaining", b"2147483647"),
    (b"x-ratelimit-reset", b"0"),
]
_Key = tuple[str, str, int]  # tenant, user, limit: a user may use two tiers, each with its own limit


class _Reservation:
    """One user's requests that this node has reserved."""

    __slots__ = ("full_at", "held", "left", "most", "quota", "reset", "since", "taking")

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.held = 0
        self.full_at = 0  # the store's last value, with the held requests subtracted
        self.since = 0
        self.taking: asyncio.Task[None] | None = None
        # For the response headers. A reservation is seldom older than a second, and so are these.
        self.most = b"%d" % quota.limit.most
        self.left = 0  # in the store, without the held ones
        self.reset = b"0"  # Unix time, in seconds

    def learn(self, full_at: int, now: int) -> None:
        """Takes over the store's value."""
        self.full_at = full_at
        self.left = limits.remaining(self.quota.limit, full_at, now)
        self.reset = b"%d" % -(-max(full_at, now * MICRO) // (MICRO * SECOND))

    def headers(self) -> Headers:
        return [
            (b"x-ratelimit-limit", self.most),
            (b"x-ratelimit-remaining", b"%d" % (self.left + self.held)),
            (b"x-ratelimit-reset", self.reset),
        ]


class Limiter:
    def __init__(self, store: Store, clock: Clock, rules: TierLimits) -> None:
        self._store = store
        self._clock = clock
        self._rules = rules
        self._reservations: dict[_Key, _Reservation] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._giving: set[asyncio.Task[None]] = set()

    async def take(self, caller: Caller) -> Headers:
        """Counts one request of the caller. Returns the rate limit headers. Raises RateLimited."""
        limit = self._rules.requests.get(caller.tier)
        if limit is None:
            return NO_LIMIT_HEADERS
        key = caller.tenant, caller.user_id, limit.most
        reservation = self._reservations.get(key)
        if reservation is None:
            reservation = self._reservations[key] = _Reservation(Quota(caller.tenant, caller.user_id, limit))
        while not reservation.held:
            if reservation.taking is None:  # one reservation for all waiting requests
                reservation.taking = asyncio.create_task(self._reserve(reservation))
            await asyncio.shield(reservation.taking)
        reservation.held -= 1
        return reservation.headers()

    def exhausted(self, caller: Caller) -> Headers:
        """Returns the rate limit headers for a caller that was refused."""
        limit = self._rules.requests.get(caller.tier)
        reservation = None if limit is None else self._reservations.get((caller.tenant, caller.user_id, limit.most))
        return NO_LIMIT_HEADERS if reservation is None else reservation.headers()

    async def _reserve(self, reservation: _Reservation) -> None:
        try:
            granted = await self._ask(reservation)
            if not granted and self._giving:  # this node may just be giving back requests of this user
                await asyncio.wait(set(self._giving))
                granted = await self._ask(reservation)
            now = self._clock.now()
            if not granted:
                raise RateLimited(*limits.refusal(reservation.quota.limit, reservation.full_at, now, 1))
            reservation.held, reservation.since = granted, now
            self._sweep_later()
        finally:
            reservation.taking = None

    async def _ask(self, reservation: _Reservation) -> int:
        """Reserves more requests in the store. Returns how many it granted."""
        now = self._clock.now()
        wanted = limits.reservation_size(reservation.quota.limit, reservation.full_at, now)
        granted, full_at = await apply_one(self._store, TakeRequests(now, reservation.quota, wanted))
        reservation.learn(full_at, now)
        return granted

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(HELD_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        task = asyncio.create_task(
            self.give_back(lambda reservation: self._clock.now() - reservation.since >= HELD_SECONDS * SECOND)
        )
        self._giving.add(task)
        task.add_done_callback(self._giving.discard)

    async def give_back(self, which: Callable[[_Reservation], bool] = lambda _: True) -> None:
        """Gives unspent requests back to the store. If that fails, the limit recovers with time."""
        idle = [
            (key, reservation)
            for key, reservation in self._reservations.items()
            if reservation.taking is None and which(reservation)
        ]
        commands = []
        for key, reservation in idle:
            del self._reservations[key]
            if reservation.held:
                commands.append(TakeRequests(self._clock.now(), reservation.quota, 0, reservation.held))
        if self._reservations:
            self._sweep_later()
        if commands:
            try:
                await self._store.apply(commands)
            except DuetimeError as error:
                log.warning(
                    "requests that were reserved could not be given back", users=len(commands), error=str(error)
                )
