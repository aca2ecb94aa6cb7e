"""The dispatcher: holds what this node has claimed, and lets it run in order of priority within its limits.

Limits: runs at once in all, for an endpoint, and for a tenant; and how often an endpoint is called. A run whose
endpoint or tenant is full, or has been called often enough for now, is parked with others of its kind, so that it holds
up nobody else. Everything is bounded: the memory by `capacity`, an endpoint's
share of it by three quarters of that; what does not fit stays QUEUED in the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from duetime.domain.endpoints import needs_worker
from duetime.domain.execution import Run
from duetime.domain.job import HttpJob
from duetime.engine.pace import Pace
from duetime.ports.executor import NotSent, always

PRIORITIES = 10
MOST_WAITS = 4  # for room to open, each as long as the caller says, while a good part of it has opened in the last
ANYWHERE = -1  # stands for all endpoints: there is no room for any

Attempt = Callable[[Run], Awaitable[None]]
Key = TypeVar("Key", int, str)


class Limits(msgspec.Struct, frozen=True):
    capacity: int = 32_768  # claimed runs in memory, running or about to
    concurrency: int = 512  # eight endpoints that hang leave the ninth its place
    endpoint: int = 64
    tenant: int = 512
    rate: float = 0.0  # requests a second to an endpoint; 0: as many as come
    special: Mapping[int, int] = msgspec.field(default_factory=dict)  # endpoints with a limit of their own


class Dispatcher:
    def __init__(self, limits: Limits, attempt: Attempt, drop: Callable[[Run], None]) -> None:
        self._limits = limits
        self._special = limits.special
        self._attempt = attempt
        self._drop = drop
        self._share = limits.capacity * 3 // 4  # of the memory, for one endpoint
        self._waiting: dict[str, Run] = {}  # claimed, not begun: in `_ready` or parked
        self._ready: list[deque[Run]] = [deque() for _ in range(PRIORITIES)]
        self._parked: dict[tuple[str, object], deque[Run]] = {}
        self._running: dict[str, asyncio.Task[None] | None] = {}  # None: its lane is about to begin
        self._running_at: dict[int, int] = {}
        self._running_of: dict[str, int] = {}
        self._held_at: dict[int, int] = {}  # all claimed runs of an endpoint
        self._held = 0
        self._lanes: set[asyncio.Task[None]] = set()
        self._room_wanted: tuple[Mapping[int, int], asyncio.Event] | None = None
        self._stuck: set[int] = set()  # endpoints that were waited for in vain
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._pace = Pace(limits.rate) if limits.rate else None
        self._paid: set[str] = set()  # waiting runs that have had theirs of their endpoint's rate
        self._clocks: dict[int, asyncio.TimerHandle] = {}  # of endpoints for whose rate runs are parked
        self.is_held: Callable[[Run], bool] = lambda run: False  # it is about to end without a request
        self.cancelled: set[str] = set()  # running executions that were asked to stop
        # While the lease is in doubt nothing begins: what is claimed may be another node's by now (after a stop, say).
        self.is_trusted: Callable[[], bool] = always
        self.waiting_hint: Callable[[int], None] = lambda due_at: None  # somebody may claim at that instant

    # What comes in

    def room(self) -> int:
        return 0 if self._closed else self._limits.capacity - self._held

    async def admit(self, wanted: Mapping[int, int], seconds: float) -> frozenset[int]:
        """The endpoints of which no run may be born claimed now: none, as a rule; all, if there is no room at all.

        Waits a little for room to open, and longer while it is about to: claiming what was written as QUEUED costs more
        than waiting. Who waits in vain once does not wait again until something has ended there: a target that hangs
        costs the others one short pause, not one at each page. What is for a worker is never born claimed by a node.
        """
        if any(map(needs_worker, wanted)):
            theirs = frozenset(filter(needs_worker, wanted))
            return theirs | await self.admit({end: wanted[end] for end in wanted if end not in theirs}, seconds)
        refused = self._without_room(wanted)
        if not refused or self._closed or not self._stuck.isdisjoint(refused):
            return refused
        for _ in range(MOST_WAITS):
            before = self._held
            if await self._room_opens(wanted, seconds):
                return frozenset()
            if (before - self._held) * MOST_WAITS < sum(wanted.values()):
                break  # at this pace it takes too long
        refused = self._without_room(wanted)
        self._stuck |= refused
        return refused

    async def _room_opens(self, wanted: Mapping[int, int], seconds: float) -> bool:
        self._room_wanted = (wanted, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await self._room_wanted[1].wait()
        except TimeoutError:
            return not self._without_room(wanted)
        finally:
            self._room_wanted = None
        return True

    def _without_room(self, wanted: Mapping[int, int]) -> frozenset[int]:
        if sum(wanted.values()) > self.room():
            return frozenset({*wanted, ANYWHERE})
        return frozenset(
            endpoint for endpoint, count in wanted.items() if self._held_at.get(endpoint, 0) + count > self._share
        )

    def full_endpoints(self) -> tuple[int, ...]:
        """Endpoints that hold their share of the memory already: nothing more is claimed for them."""
        return tuple(endpoint for endpoint, held in self._held_at.items() if held >= self._share)

    def offer(self, runs: Iterable[Run]) -> None:
        """Take claimed runs. They will be run, or given back by `drain`."""
        for run in runs:
            self._held += 1
            self._held_at[run.endpoint] = self._held_at.get(run.endpoint, 0) + 1
            self._waiting[run.execution_id] = run
            self._ready[PRIORITIES - 1 - run.priority].append(run)
        if self._held:
            self._idle.clear()
        self._open_lanes()

    def cancel(self, execution_id: str) -> bool:
        """Stop a running attempt, or let a claimed run end before it begins. False if this node has neither."""
        if execution_id in self._running:
            self.cancelled.add(execution_id)
            task = self._running[execution_id]
            if task is not None:  # else its lane has not begun, and will look before it sends anything
                task.cancel()
            return True
        run = self._waiting.pop(execution_id, None)  # its place in a queue is passed over
        if run is not None:
            self._drop(run)
        return run is not None

    # What runs

    def resume(self) -> None:
        """Go on with what was left waiting while the lease was in doubt."""
        if self._waiting:
            self._open_lanes()

    def _open_lanes(self) -> None:
        """A lane for each run that may begin now: lanes opened for runs that only park would cost a burst dearly."""
        while len(self._lanes) < self._limits.concurrency and (run := self._take()) is not None:
            self._running[run.execution_id] = None
            self._lanes.add(asyncio.create_task(self._lane(run)))

    async def _lane(self, run: Run | None) -> None:
        """Runs one after the other until nothing is ready: a task a run would cost more than the run."""
        task = asyncio.current_task()
        assert task is not None
        try:
            while run is not None:
                self._running[run.execution_id] = task
                is_over = False
                try:
                    # A lane begins a turn of the loop after it was opened, as all that were opened with it: a process
                    # that is stopped in between would come back with them. (What was asked to stop sends nothing.)
                    if self.is_trusted() or run.execution_id in self.cancelled:
                        await self._attempt(run)
                        is_over = True
                except NotSent:
                    pass
                finally:
                    self._end(run)
                if not is_over:
                    self._wait_again(run)
                run = self._take()
        finally:
            self._lanes.discard(task)  # at once: an offer in the same turn of the loop must not count on this lane

    def _take(self) -> Run | None:
        """The next run that its endpoint and tenant have a place for; parks the others. None while in doubt."""
        if not self.is_trusted():
            return None
        level = 0
        while level < PRIORITIES:
            if not self._ready[level]:
                level += 1
                continue
            run = self._ready[level].popleft()
            if run.execution_id not in self._waiting:
                self._paid.discard(run.execution_id)
                continue  # cancelled before it began
            at, of = self._running_at.get(run.endpoint, 0), self._running_of.get(run.tenant, 0)
            most_at = self._special.get(run.endpoint, self._limits.endpoint) if self._special else self._limits.endpoint
            if at < most_at and of < self._limits.tenant:
                if self._pace is not None and not self._has_paid(run, self._pace):
                    # Its places are free still, and nobody's end will say so.
                    if self._unpark(("endpoint", run.endpoint)) + self._unpark(("tenant", run.tenant)):
                        level = 0
                    continue
                self._running_at[run.endpoint] = at + 1
                self._running_of[run.tenant] = of + 1
                del self._waiting[run.execution_id]
                return run
            # The place that this one can't take may be just what another was parked for.
            if at >= most_at:
                self._parked.setdefault(("endpoint", run.endpoint), deque()).append(run)
                left_free = of < self._limits.tenant and self._unpark(("tenant", run.tenant))
            else:
                self._parked.setdefault(("tenant", run.tenant), deque()).append(run)
                left_free = self._unpark(("endpoint", run.endpoint))
            if left_free:
                level = 0
        return None

    def _has_paid(self, run: Run, pace: Pace) -> bool:
        """Whether its endpoint may be called now; parks it if not, behind those that wait already."""
        if run.execution_id in self._paid:
            self._paid.discard(run.execution_id)
            return True
        endpoint = run.endpoint
        if not isinstance(run.spec, HttpJob) or self.is_held(run):
            return True
        if endpoint not in self._clocks and pace.take(endpoint, asyncio.get_running_loop().time()):
            return True
        self._parked.setdefault(("rate", endpoint), deque()).append(run)
        if endpoint not in self._clocks:
            self._set_clock(endpoint, pace)
        return False

    def _set_clock(self, endpoint: int, pace: Pace) -> None:
        loop = asyncio.get_running_loop()
        wait = pace.wait(endpoint, loop.time())
        self._clocks[endpoint] = loop.call_later(wait, self._pay, endpoint, pace)

    def _pay(self, endpoint: int, pace: Pace) -> None:
        """Let as many go on as the rate has become enough for."""
        del self._clocks[endpoint]
        kind = ("rate", endpoint)
        paid: list[Run] = []
        while kind in self._parked:
            run = self._parked[kind][0]
            if run.execution_id in self._waiting and not self.is_held(run):
                if not pace.take(endpoint, asyncio.get_running_loop().time()):
                    self._set_clock(endpoint, pace)
                    break
                self._paid.add(run.execution_id)
            paid.append(run)
            self._parked[kind].popleft()
            if not self._parked[kind]:
                del self._parked[kind]
        for run in reversed(paid):
            self._ready[PRIORITIES - 1 - run.priority].appendleft(run)
        self._open_lanes()

    def _end(self, run: Run) -> None:
        del self._running[run.execution_id]
        self.cancelled.discard(run.execution_id)
        _decrease(self._running_at, run.endpoint)
        _decrease(self._running_of, run.tenant)
        if self._parked:
            unparked = self._unpark(("endpoint", run.endpoint)) + self._unpark(("tenant", run.tenant))
            if unparked > 1:  # this lane goes on with one of them
                self._open_lanes()

    def _wait_again(self, run: Run) -> None:
        """Taken, but not sent while the lease was in doubt: `resume` goes on with it, `drain` gives it back."""
        self._waiting[run.execution_id] = run
        self._ready[PRIORITIES - 1 - run.priority].appendleft(run)

    def _unpark(self, kind: tuple[str, object]) -> int:
        queue = self._parked.get(kind)
        if queue is None:
            return 0
        run = queue.popleft()
        self._ready[PRIORITIES - 1 - run.priority].appendleft(run)
        if not queue:
            del self._parked[kind]
        return 1

    def recorded(self, runs: Iterable[Run]) -> None:
        """Results are written: only now is the memory that these runs held free."""
        for run in runs:
            self._held -= 1
            _decrease(self._held_at, run.endpoint)
            self._stuck.discard(run.endpoint)
        self._stuck.discard(ANYWHERE)
        if self._room_wanted is not None and not self._without_room(self._room_wanted[0]):
            self._room_wanted[1].set()
        if not self._held:
            self._idle.set()

    def running(self) -> int:
        return len(self._running)

    def waiting(self) -> int:
        return len(self._waiting)

    # How it ends

    def stop_waiting(self) -> None:
        """End a drain now."""
        self._idle.set()

    async def drain(self, seconds: float) -> tuple[list[Run], list[asyncio.Task[None]]]:
        """Take nothing more, and let what is held run out.

        Answers what was never started when time ran out, and the lanes whose attempts are still under way.
        """
        self._closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        never_started = list(self._waiting.values())
        self._waiting.clear()
        for queue in self._ready:
            queue.clear()
        self._parked.clear()
        self._paid.clear()
        for clock in self._clocks.values():
            clock.cancel()
        self._clocks.clear()
        return never_started, list(self._lanes)


def _decrease(counts: dict[Key, int], key: Key) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
