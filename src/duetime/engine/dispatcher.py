"""The dispatcher: holds this node's claims, and starts attempts in a fair order within the node's limits.

Limits: concurrent attempts in total, per endpoint and per tenant; and the request rate per endpoint. `ClaimQueue`
decides which claim starts next. Memory is bounded by `capacity` places of 4 kB. Each tenant has a share of them, and
each endpoint of a tenant a part of that share. Executions that do not fit stay QUEUED in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from duetime.domain.endpoints import NOTICES, needs_worker
from duetime.domain.execution import Claim
from duetime.domain.fairness import endpoint_share, memory_share
from duetime.domain.job import HttpJob
from duetime.domain.troubles import PlaceUse
from duetime.engine.claim_counts import EndpointQueue
from duetime.engine.claim_queue import MOST_WOKEN, ClaimQueue
from duetime.engine.places import place_uses
from duetime.engine.rate_limiter import RateLimiter
from duetime.engine.wait_samples import WaitSamples
from duetime.ports.executor import NotSent, always
from duetime.settings.table import DEFAULTS

MOST_WAITS = 4  # for room, each as long as the caller says; another one only if the last freed a good part of it

RunAttempt = Callable[[Claim], Awaitable[None]]
Target = tuple[str, int]  # tenant, endpoint

ANYWHERE: Target = ("", -1)  # stands for all targets: no target has room


class Limits(msgspec.Struct, frozen=True):
    # Places of memory for running and waiting claims: one per claim, more for a large one (`domain.held_specs`).
    capacity: int = 32_768
    concurrency: int = DEFAULTS.dispatcher_workers
    endpoint: int = DEFAULTS.endpoint_concurrency
    tenant: int = DEFAULTS.dispatcher_workers
    rate: float = 0.0  # requests per second to an endpoint; 0: no limit
    special: Mapping[int, int] = msgspec.field(default_factory=dict)  # endpoints with their own limit
    notices: int = 8  # notices of alerts at once, besides the others: alerts matter most when nothing else has room
    notice_places: int = 256  # of memory for notices, besides `capacity`


class Dispatcher:
    """`drop(claim)` is called for a claim that was cancelled before it started.

    `cancelled`: running executions that were asked to stop. `is_held(claim)`: it will end without a request.
    `is_trusted()`: while the lease is in doubt no attempt starts. If the process was suspended, another node may hold
    the claims. `on_wait(seconds)`: how long the last claim of a page has waited for its place.
    """

    def __init__(
        self, limits: Limits, attempt: RunAttempt, drop: Callable[[Claim], None], cancelled: set[str], *,
        is_held: Callable[[Claim], bool], is_trusted: Callable[[], bool] = always,
        on_wait: Callable[[float], None] = lambda seconds: None,
    ) -> None:  # fmt: skip
        self.limits = limits
        self._attempt = attempt
        self._drop = drop
        self.cancelled = cancelled
        self._is_held = is_held
        self._is_trusted = is_trusted
        self._rate_limiter = RateLimiter(limits.rate) if limits.rate else None
        self._clocks: dict[int, asyncio.TimerHandle] = {}  # wake-ups for endpoints that have used up their rate limit
        self._rate_limited: dict[int, list[EndpointQueue]] = {}  # queues that wait for the rate limit of their endpoint
        special = {NOTICES: limits.notices, **limits.special}
        self._queue = ClaimQueue(
            limits.concurrency, limits.tenant, lambda endpoint: special.get(endpoint, limits.endpoint),
            None if self._rate_limiter is None else self._may_call, NOTICES,
        )  # fmt: skip
        self._running: dict[str, asyncio.Task[None] | None] = {}  # None: the slot has not started yet
        self._slots: set[asyncio.Task[None]] = set()
        self._room_wanted: tuple[Mapping[Target, int], asyncio.Event] | None = None
        self._stuck: set[Target] = set()  # targets for which a wait for room failed
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._waits = WaitSamples(on_wait)

    # Claims and room for them

    def room(self) -> int:
        """Returns the number of free places. It is below 0 if the last claims were larger than the free room."""
        return 0 if self._closed else self.limits.capacity - self._queue.held

    def notice_room(self) -> int:
        """Returns the number of places that are free for notices."""
        if self._closed or not self.limits.capacity:
            return 0
        return max(0, self.limits.notice_places - self._queue.reserved_held)

    async def admit(self, wanted: Mapping[Target, int], seconds: float) -> frozenset[Target]:
        """Returns the targets without room, whose new executions must not be written as claimed. Mostly there are none.

        If there is no room at all, it returns all targets. `wanted`: the number of places for each target.
        Waits a little for room, and longer while room is opening up: claiming a QUEUED execution later costs more than
        waiting. After a wait that failed, a target is not waited for again until one of its executions has ended: a
        target that hangs costs the others one short pause, not one per page. An execution for a worker is never
        written as claimed by a node.
        """
        if any(needs_worker(endpoint) for _, endpoint in wanted):
            theirs = frozenset(target for target in wanted if needs_worker(target[1]))
            return theirs | await self.admit({one: wanted[one] for one in wanted if one not in theirs}, seconds)
        if any(endpoint == NOTICES for _, endpoint in wanted):
            return await self._admit_notices(wanted, seconds)
        refused = self._without_room(wanted)
        # Do not wait for a tenant that has used up its share while other tenants have work: the page is theirs, too.
        if not refused or self._closed or not self._stuck.isdisjoint(refused) or self._is_shared(wanted):
            return refused
        for _ in range(MOST_WAITS):
            before = self._queue.held
            if await self._room_opens(wanted, seconds):
                return frozenset()
            if (before - self._queue.held) * MOST_WAITS < sum(wanted.values()):
                break  # room opens too slowly
        refused = self._without_room(wanted)
        self._stuck |= refused
        return refused

    async def _admit_notices(self, wanted: Mapping[Target, int], seconds: float) -> frozenset[Target]:
        """As `admit`. Notices have room of their own, and don't wait for the others."""
        notices = {target: count for target, count in wanted.items() if target[1] == NOTICES}
        others = {target: count for target, count in wanted.items() if target[1] != NOTICES}
        refused = frozenset(notices) if sum(notices.values()) > self.notice_room() else frozenset[Target]()
        if others:
            refused |= await self.admit(others, seconds if notices.keys() <= refused else 0.0)
        return refused

    async def _room_opens(self, wanted: Mapping[Target, int], seconds: float) -> bool:
        self._room_wanted = (wanted, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await self._room_wanted[1].wait()
        except TimeoutError:
            return not self._without_room(wanted)
        finally:
            self._room_wanted = None
        return True

    def _is_shared(self, wanted: Mapping[Target, int]) -> bool:
        return len({*self._queue.tenants, *(tenant for tenant, _ in wanted)}) > 1

    def _without_room(self, wanted: Mapping[Target, int]) -> frozenset[Target]:
        if sum(wanted.values()) > self.room():
            return frozenset({*wanted, ANYWHERE})
        held = self._queue.tenants
        newcomers: dict[str, int] = {}
        for (tenant, _), count in wanted.items():
            newcomers[tenant] = newcomers.get(tenant, 0) + count
        share = memory_share(self.limits.capacity, len(held | newcomers.keys()))
        most = endpoint_share(share)
        refused: list[Target] = []
        for target, count in wanted.items():
            tenant, endpoint = target
            has = held.get(tenant)
            if has is None:
                is_over = newcomers[tenant] > share or count > most
            else:
                at = has.queues.get(endpoint)
                is_over = has.held + newcomers[tenant] > share or (0 if at is None else at.held) + count > most
            if is_over:
                refused.append(target)
        return frozenset(refused)

    def _share(self) -> int:
        return memory_share(self.limits.capacity, len(self._queue.tenants))

    def full_tenants(self) -> frozenset[str]:
        """Returns the tenants that have used up their share of the memory: nothing more is claimed for them."""
        share = self._share()
        return frozenset(tenant.tenant for tenant in self._queue.tenants.values() if tenant.held >= share)

    def full_endpoints(self) -> tuple[Target, ...]:
        """Returns (tenant, endpoint) for which nothing more is claimed: the tenant's other endpoints need room, too."""
        return tuple(self._queue.full_endpoints(self._share()))

    def offer(self, claims: Iterable[Claim]) -> None:
        """Adds claims. Each of them will be run, or returned by `drain`."""
        add = self._queue.add
        claim: Claim | None = None
        for claim in claims:
            add(claim)
        if claim is not None:
            self._waits.begin(claim.execution_id)
        if self._queue.held:
            self._idle.clear()
        self._open_slots()

    def cancel(self, execution_id: str) -> bool:
        """Cancels a running attempt or a waiting claim. Returns False if this node holds neither."""
        if execution_id in self._running:
            self.cancelled.add(execution_id)
            task = self._running[execution_id]
            if task is not None:  # else its slot has not started, and checks `cancelled` before it sends
                task.cancel()
            return True
        claim = self._queue.waiting.get(execution_id)
        if claim is None:
            return False
        self._queue.remove(claim)
        self._waits.drop(execution_id)
        self._drop(claim)
        return True

    def lacks(self, tenants: Iterable[str]) -> dict[str, int]:
        """Returns which of these tenants hold less than their share of the memory, and how much less."""
        held = self._queue.tenants
        asked = list(tenants)
        share = memory_share(self.limits.capacity, len(held.keys() | set(asked)))
        have = {tenant: held[tenant].held if tenant in held else 0 for tenant in asked}
        return {tenant: share - count for tenant, count in have.items() if count < share}

    def make_room(self, wanted: int, tenants: Iterable[str]) -> list[Claim]:
        """Returns waiting claims to release, so that tenants that hold less than their share have room.

        They belong to the tenant that holds most, which keeps its own share, and are those that would start last. The
        caller releases them in the store and then calls `recorded`. Until then they count as held.
        """
        if not self._queue.tenants or self._closed:
            return []
        largest = max(self._queue.tenants.values(), key=lambda tenant: tenant.held)
        share = memory_share(self.limits.capacity, len(self._queue.tenants.keys() | set(tenants)))
        over = largest.held - share
        claims = self._queue.latest_of(largest.tenant, min(wanted, over)) if over > 0 else []
        for claim in claims:
            self._queue.remove(claim)
            self._waits.drop(claim.execution_id)
        return claims

    # Attempts

    def resume(self) -> None:
        """Starts claims that waited while the lease was in doubt, and any claim that may have been overlooked."""
        if self._queue.waiting:
            self._queue.unblock_all()
            self._open_slots()

    def _open_slots(self) -> None:
        """Opens a slot for each claim that may start now. Slots for claims that only wait would slow down a burst."""
        while self._is_trusted() and (claim := self._queue.take()) is not None:
            self._running[claim.execution_id] = None
            self._slots.add(asyncio.create_task(self._slot(claim)))

    async def _slot(self, claim: Claim | None) -> None:
        """Runs claims one after the other until none is ready: one task per claim would cost more than the attempt."""
        task = asyncio.current_task()
        assert task is not None
        timed = self._waits.timed
        try:
            while claim is not None:
                self._running[claim.execution_id] = task
                if claim.execution_id in timed:
                    self._waits.end(claim.execution_id)
                is_over = False
                try:
                    # All slots that were opened together start one turn of the event loop later. If the process was
                    # suspended in between, the lease may be lost: check again. (A cancelled execution sends nothing.)
                    if self._is_trusted() or claim.execution_id in self.cancelled:
                        await self._attempt(claim)
                        is_over = True
                except NotSent:
                    pass
                finally:
                    self._end(claim, task)
                if not is_over:
                    self._queue.put_back(claim)  # `resume` starts it, or `drain` returns it
                claim = self._queue.take() if self._is_trusted() else None
                # One end may let several claims start. But not if all other places are taken: it freed only one.
                if claim is not None and self._queue.queues > 1 and self._queue.running < self.limits.concurrency:
                    self._open_slots()
        finally:
            self._slots.discard(task)  # at once: an `offer` in the same turn of the loop must not rely on this slot

    def _end(self, claim: Claim, task: asyncio.Task[None]) -> None:
        # (One execution may have two claims here: one that was considered lost, and the one after it.)
        if self._running.get(claim.execution_id) is task:
            del self._running[claim.execution_id]
            if self.cancelled:
                self.cancelled.discard(claim.execution_id)
        self._queue.end(claim)

    # The rate limit of an endpoint

    def _may_call(self, queue: EndpointQueue, claim: Claim) -> bool:
        """Returns whether the endpoint may be called now. If not, the queue waits behind those already waiting."""
        limiter, endpoint = self._rate_limiter, claim.endpoint
        if limiter is None or not isinstance(claim.spec, HttpJob) or self._is_held(claim):
            return True
        loop = asyncio.get_running_loop()
        if endpoint not in self._clocks:
            if limiter.take(endpoint, loop.time()):
                return True
            self._clocks[endpoint] = loop.call_later(limiter.wait(endpoint, loop.time()), self._ring, endpoint)
        self._rate_limited.setdefault(endpoint, []).append(queue)
        return False

    def _ring(self, endpoint: int) -> None:
        """Wakes waiting queues, and starts as many claims as the rate limit allows: tenants in turn."""
        del self._clocks[endpoint]
        waiting = self._rate_limited.pop(endpoint, [])
        self._rate_limited[endpoint] = waiting[MOST_WOKEN:]
        for queue in waiting[:MOST_WOKEN]:
            self._queue.unblock(queue)
        self._open_slots()
        if not self._rate_limited[endpoint]:
            del self._rate_limited[endpoint]
        elif endpoint not in self._clocks:  # no woken queue had a request to send
            self._clocks[endpoint] = asyncio.get_running_loop().call_later(0, self._ring, endpoint)

    def recorded(self, claims: Iterable[Claim]) -> None:
        """Frees the memory of claims whose results are written: not before that."""
        forget, stuck, tenants = self._queue.forget, self._stuck, len(self._queue.tenants)
        for claim in claims:
            forget(claim)
            if stuck:
                stuck.discard((claim.tenant, claim.endpoint))
        stuck.discard(ANYWHERE)
        if self._room_wanted is not None and not self._without_room(self._room_wanted[0]):
            self._room_wanted[1].set()
        if not self._queue.held:
            self._idle.set()
        elif len(self._queue.tenants) < tenants and self._queue.waiting:
            self._open_slots()  # the shares of the remaining tenants have grown

    @property
    def queue(self) -> ClaimQueue:
        """Returns the claims held, for readings."""
        return self._queue

    def running(self) -> int:
        return self._queue.running

    def waiting(self) -> int:
        return len(self._queue.waiting)

    def place_uses(self) -> tuple[PlaceUse, ...]:
        """Returns the tenants and targets with most executions here."""
        return place_uses(self._queue)

    def holds(self, execution_id: str) -> bool:
        """Returns whether the execution waits or runs here. (The recorder holds those that have ended.)"""
        return execution_id in self._running or execution_id in self._queue.waiting

    # Shutdown

    def stop_waiting(self) -> None:
        """Ends a drain now."""
        self._idle.set()

    async def drain(self, seconds: float) -> tuple[list[Claim], list[asyncio.Task[None]]]:
        """Accepts no more claims, and waits up to `seconds` for the held ones to end.

        Returns the claims that never started, and the slots whose attempts are still running.
        """
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        never_started = self._queue.clear()
        self._rate_limited.clear()
        for clock in self._clocks.values():
            clock.cancel()
        self._clocks.clear()
        return never_started, list(self._slots)
