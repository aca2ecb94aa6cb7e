"""The dispatcher: holds what this node has claimed, and starts attempts in a fair order within the node's limits.

Limits: attempts at once in all, for an endpoint, and for a tenant; and how often an endpoint is called. `ClaimQueue`
says whose turn it is. Everything is bounded: the memory by `capacity` places of 4 kB, of which each tenant has its
share, and each endpoint of a tenant a part of that; what does not fit stays QUEUED in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from duetime.domain.endpoints import needs_worker
from duetime.domain.execution import Run
from duetime.domain.fairness import endpoint_share, memory_share
from duetime.domain.job import HttpJob
from duetime.engine.claim_queue import MOST_WOKEN, ClaimQueue, EndpointQueue
from duetime.engine.rate_limiter import RateLimiter
from duetime.ports.executor import NotSent, always

MOST_WAITS = 4  # for room to open, each as long as the caller says, while a good part of it has opened in the last

Attempt = Callable[[Run], Awaitable[None]]
Target = tuple[str, int]  # tenant, endpoint

ANYWHERE: Target = ("", -1)  # stands for all targets: there is no room for any


class Limits(msgspec.Struct, frozen=True):
    # Places for claims in memory, running or about to: one for each, and more for large ones (`domain.held_specs`).
    capacity: int = 32_768
    concurrency: int = 512
    endpoint: int = 64
    tenant: int = 512
    rate: float = 0.0  # requests a second to an endpoint; 0: as many as come
    special: Mapping[int, int] = msgspec.field(default_factory=dict)  # endpoints with a limit of their own


class Dispatcher:
    def __init__(self, limits: Limits, attempt: Attempt, drop: Callable[[Run], None]) -> None:
        self._limits = limits
        self._attempt = attempt
        self._drop = drop
        self._rate_limiter = RateLimiter(limits.rate) if limits.rate else None
        self._clocks: dict[int, asyncio.TimerHandle] = {}  # of endpoints that have used up their rate limit
        self._rate_limited: dict[int, list[EndpointQueue]] = {}  # what is blocked until the clock of its endpoint rings
        self._queue = ClaimQueue(
            limits.concurrency, limits.tenant, lambda endpoint: limits.special.get(endpoint, limits.endpoint),
            None if self._rate_limiter is None else self._may_call,
        )  # fmt: skip
        self._running: dict[str, asyncio.Task[None] | None] = {}  # None: its slot is about to begin
        self._slots: set[asyncio.Task[None]] = set()
        self._room_wanted: tuple[Mapping[Target, int], asyncio.Event] | None = None
        self._stuck: set[Target] = set()  # that were waited for in vain
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.is_held: Callable[[Run], bool] = lambda run: False  # it is about to end without a request
        self.cancelled: set[str] = set()  # running executions that were asked to stop
        # While the lease is in doubt nothing begins: what is claimed may be another node's by now (after a stop, say).
        self.is_trusted: Callable[[], bool] = always
        self.waiting_hint: Callable[[int], None] = lambda due_at: None  # somebody may claim at that instant

    # What comes in

    def room(self) -> int:
        """Places that are free; below 0 if the last ones were larger than what was free."""
        return 0 if self._closed else self._limits.capacity - self._queue.held

    async def admit(self, wanted: Mapping[Target, int], seconds: float) -> frozenset[Target]:
        """Returns the targets of which no run may be born claimed now: mostly none; all, if there is no room at all.

        `wanted`: how many places for each.
        Waits a little for room to open, and longer while it is about to: claiming what was written as QUEUED costs more
        than waiting. Who waits in vain once does not wait again until something has ended there: a target that hangs
        costs the others one short pause, not one at each page. What is for a worker is never born claimed by a node.
        """
        if any(needs_worker(endpoint) for _, endpoint in wanted):
            theirs = frozenset(target for target in wanted if needs_worker(target[1]))
            return theirs | await self.admit({one: wanted[one] for one in wanted if one not in theirs}, seconds)
        refused = self._without_room(wanted)
        # A tenant that has used up its share is not waited for while others have work: the page is theirs, too.
        if not refused or self._closed or not self._stuck.isdisjoint(refused) or self._is_shared(wanted):
            return refused
        for _ in range(MOST_WAITS):
            before = self._queue.held
            if await self._room_opens(wanted, seconds):
                return frozenset()
            if (before - self._queue.held) * MOST_WAITS < sum(wanted.values()):
                break  # at this pace it takes too long
        refused = self._without_room(wanted)
        self._stuck |= refused
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
        share = memory_share(self._limits.capacity, len(held | newcomers.keys()))
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
        return memory_share(self._limits.capacity, len(self._queue.tenants))

    def full_tenants(self) -> frozenset[str]:
        """Returns the tenants that hold their share of the memory already: nothing more is claimed for them."""
        share = self._share()
        return frozenset(tenant.tenant for tenant in self._queue.tenants.values() if tenant.held >= share)

    def full_endpoints(self) -> tuple[Target, ...]:
        """Returns (tenant, endpoint) for which nothing more is claimed: the tenant's other endpoints need room, too."""
        return tuple(self._queue.full_endpoints(self._share()))

    def offer(self, runs: Iterable[Run]) -> None:
        """Take claimed runs. They will be run, or given back by `drain`."""
        add = self._queue.add
        for run in runs:
            add(run)
        if self._queue.held:
            self._idle.clear()
        self._open_slots()

    def cancel(self, execution_id: str) -> bool:
        """Stop a running attempt, or let a claimed run end before it begins. False if this node has neither."""
        if execution_id in self._running:
            self.cancelled.add(execution_id)
            task = self._running[execution_id]
            if task is not None:  # else its slot has not begun, and will look before it sends anything
                task.cancel()
            return True
        run = self._queue.waiting.get(execution_id)
        if run is None:
            return False
        self._queue.remove(run)
        self._drop(run)
        return True

    def lacks(self, tenants: Iterable[str]) -> dict[str, int]:
        """Returns which of these tenants hold less than their share of the memory, and how much less."""
        held = self._queue.tenants
        asked = list(tenants)
        share = memory_share(self._limits.capacity, len(held.keys() | set(asked)))
        have = {tenant: held[tenant].held if tenant in held else 0 for tenant in asked}
        return {tenant: share - count for tenant, count in have.items() if count < share}

    def make_room(self, wanted: int, tenants: Iterable[str]) -> list[Run]:
        """Returns waiting claims to release, so that tenants that hold less than their share have room.

        They are of the tenant that holds most, those that would start last, and it keeps its own share. The caller
        releases them in the store, and then calls `recorded`: until then they are counted.
        """
        if not self._queue.tenants or self._closed:
            return []
        largest = max(self._queue.tenants.values(), key=lambda tenant: tenant.held)
        share = memory_share(self._limits.capacity, len(self._queue.tenants.keys() | set(tenants)))
        over = largest.held - share
        runs = self._queue.latest_of(largest.tenant, min(wanted, over)) if over > 0 else []
        for run in runs:
            self._queue.remove(run)
        return runs

    # What runs

    def resume(self) -> None:
        """Go on with what was left waiting while the lease was in doubt, and with whatever may have been overlooked."""
        if self._queue.waiting:
            self._queue.unblock_all()
            self._open_slots()

    def _open_slots(self) -> None:
        """A slot for each run that may begin now: slots opened for runs that only wait would cost a burst dearly."""
        while self.is_trusted() and (run := self._queue.take()) is not None:
            self._running[run.execution_id] = None
            self._slots.add(asyncio.create_task(self._slot(run)))

    async def _slot(self, run: Run | None) -> None:
        """Runs one after the other until nothing is ready: a task a run would cost more than the run."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while run is not None:
                self._running[run.execution_id] = task
                is_over = False
                try:
                    # A slot begins a turn of the loop after it was opened, as all that were opened with it: a process
                    # that is stopped in between would come back with them. (What was asked to stop sends nothing.)
                    if self.is_trusted() or run.execution_id in self.cancelled:
                        await self._attempt(run)
                        is_over = True
                except NotSent:
                    pass
                finally:
                    self._end(run, task)
                if not is_over:
                    self._queue.put_back(run)  # `resume` goes on with it, `drain` gives it back
                run = self._queue.take() if self.is_trusted() else None
                # One end may let several others begin. But not where all places are taken: it freed one.
                if run is not None and self._queue.queues > 1 and self._queue.running < self._limits.concurrency:
                    self._open_slots()
        finally:
            self._slots.discard(task)  # at once: an offer in the same turn of the loop must not count on this slot

    def _end(self, run: Run, task: asyncio.Task[None]) -> None:
        # (There may be two of one execution: a claim that was taken for lost, and the one that came after it.)
        if self._running.get(run.execution_id) is task:
            del self._running[run.execution_id]
            self.cancelled.discard(run.execution_id)
        self._queue.end(run)

    # How often an endpoint is called

    def _may_call(self, queue: EndpointQueue, run: Run) -> bool:
        """Whether its endpoint may be called now; if not, its queue waits behind those that wait already."""
        limiter, endpoint = self._rate_limiter, run.endpoint
        if limiter is None or not isinstance(run.spec, HttpJob) or self.is_held(run):
            return True
        loop = asyncio.get_running_loop()
        if endpoint not in self._clocks:
            if limiter.take(endpoint, loop.time()):
                return True
            self._clocks[endpoint] = loop.call_later(limiter.wait(endpoint, loop.time()), self._ring, endpoint)
        self._rate_limited.setdefault(endpoint, []).append(queue)
        return False

    def _ring(self, endpoint: int) -> None:
        """Let as many go on as the rate allows by now: tenants in turn."""
        del self._clocks[endpoint]
        waiting = self._rate_limited.pop(endpoint, [])
        self._rate_limited[endpoint] = waiting[MOST_WOKEN:]
        for queue in waiting[:MOST_WOKEN]:
            self._queue.unblock(queue)
        self._open_slots()
        if not self._rate_limited[endpoint]:
            del self._rate_limited[endpoint]
        elif endpoint not in self._clocks:  # of those that were woken none had anything to send
            self._clocks[endpoint] = asyncio.get_running_loop().call_later(0, self._ring, endpoint)

    def recorded(self, runs: Iterable[Run]) -> None:
        """Results are written: only now is the memory that these runs held free."""
        forget, stuck, tenants = self._queue.forget, self._stuck, len(self._queue.tenants)
        for run in runs:
            forget(run)
            if stuck:
                stuck.discard((run.tenant, run.endpoint))
        stuck.discard(ANYWHERE)
        if self._room_wanted is not None and not self._without_room(self._room_wanted[0]):
            self._room_wanted[1].set()
        if not self._queue.held:
            self._idle.set()
        elif len(self._queue.tenants) < tenants and self._queue.waiting:
            self._open_slots()  # the others' shares have grown

    def running(self) -> int:
        return self._queue.running

    def waiting(self) -> int:
        return len(self._queue.waiting)

    def holds(self, execution_id: str) -> bool:
        """Whether it waits or runs here. (What has ended is the recorder's.)"""
        return execution_id in self._running or execution_id in self._queue.waiting

    # How it ends

    def stop_waiting(self) -> None:
        """End a drain now."""
        self._idle.set()

    async def drain(self, seconds: float) -> tuple[list[Run], list[asyncio.Task[None]]]:
        """Take nothing more, and let what is held run out.

        Answers what was never started when time ran out, and the slots whose attempts are still under way.
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
