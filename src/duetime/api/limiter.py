"""How many requests a user has left, right across nodes and without asking the store each time.

A node reserves a part of what is left (a twentieth; one when little is) and spends that by itself. What it has not
spent a second later it gives back. So no more are let through than the limit allows, whatever the nodes do; and none is
refused for long because another node holds some.
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
from duetime.ports.store import Store

HELD_SECONDS = 1.0  # how long a node keeps what it has reserved and not spent

log = structlog.get_logger()


Headers = list[tuple[bytes, bytes]]
# Of a request that counts towards no limit: numbers, since clients read them as such; a large one, so that none of them
# holds back; and an instant that has passed, so that none waits for it.
NO_LIMIT_HEADERS: Headers = [
    (b"x-ratelimit-limit", b"2147483647"),
    (b"x-ratelimit-remaining", b"2147483647"),
    (b"x-ratelimit-reset", b"0"),
]
_Key = tuple[str, str, int]  # tenant, user, how many: a user may ask with two tiers, and each has its own


class _Reservation:
    """What this node holds of one user's requests."""

    __slots__ = ("full_at", "held", "left", "most", "quota", "reset", "since", "taking")

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        self.held = 0
        self.full_at = 0  # as the store had it last, with what is held taken
        self.since = 0
        self.taking: asyncio.Task[None] | None = None
        # For the answers' headers. A reservation is seldom older than a second, and so are these.
        self.most = b"%d" % quota.limit.most
        self.left = 0  # beside what is held
        self.reset = b"0"  # Unix time, in seconds

    def learn(self, full_at: int, now: int) -> None:
        """How the store has it."""
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
        """One request of the caller's; headers that say how they stand. Raises RateLimited."""
        limit = self._rules.requests.get(caller.tier)
        if limit is None:
            return NO_LIMIT_HEADERS
        key = caller.tenant, caller.user_id, limit.most
        reservation = self._reservations.get(key)
        if reservation is None:
            reservation = self._reservations[key] = _Reservation(Quota(caller.tenant, caller.user_id, limit))
        while not reservation.held:
            if reservation.taking is None:  # one asks for all who wait
                reservation.taking = asyncio.create_task(self._reserve(reservation))
            await asyncio.shield(reservation.taking)
        reservation.held -= 1
        return reservation.headers()

    def exhausted(self, caller: Caller) -> Headers:
        """How a caller stands who was refused."""
        limit = self._rules.requests.get(caller.tier)
        reservation = None if limit is None else self._reservations.get((caller.tenant, caller.user_id, limit.most))
        return NO_LIMIT_HEADERS if reservation is None else reservation.headers()

    async def _reserve(self, reservation: _Reservation) -> None:
        try:
            granted = await self._ask(reservation)
            if not granted and self._giving:  # what this node gives back just now may be the user's own
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
        """How many the store has granted."""
        now = self._clock.now()
        wanted = limits.share(reservation.quota.limit, reservation.full_at, now)
        (answer,) = await self._store.apply([TakeRequests(now, reservation.quota, wanted)])
        if isinstance(answer, DuetimeError):
            raise answer
        granted, full_at = answer
        reservation.learn(full_at, now)
        return int(granted)

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
        """What is held and not spent, to the store. What can't be given back comes back with time."""
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
