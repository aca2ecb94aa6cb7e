"""Open polls: workers that wait for executions, and the queries and claims that this node makes for them.

A hint does not say which workers it concerns, and thousands may be waiting. So polls for the same functions form a
group, and one query serves the group. Groups are served round-robin by tenant, a few at a time, and the gateway makes
one read at a time. So a tenant with many polling workers delays neither the functions of other tenants nor the node
itself, which reads through the same few connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

import structlog

from duetime.domain.commands import ClaimExecutions, Release
from duetime.domain.commands.executions import CLAIM_BYTES
from duetime.domain.errors import DuetimeError, Overloaded, RateLimited
from duetime.domain.execution import Claim
from duetime.domain.round_robin import RoundRobin
from duetime.engine.turn_gate import TurnGate
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.store import Store, result_of

LOOK_SECONDS = 1.0  # how often an open poll queries the store without a hint: a hint may be lost
HINT_PAUSE_SECONDS = 0.005  # hints closer together than this are merged
TURNS_AT_ONCE = 4  # groups of polls that are served at the same time
MOST_POLLS_A_TURN = 8  # polls that claim together, in one commit
MOST_CLAIMED_A_TURN = 2048  # executions
MOST_POLLS_OF_A_TENANT = 2000  # open at this node
FULL_SECONDS = 5  # after which a refused worker may poll again, if its tenant has too many open polls
CLOSED_SECONDS = 2  # the same, if this node is stopping

log = structlog.get_logger()


class _Poll:
    __slots__ = ("claims", "error", "free", "is_claiming", "is_gone", "was_looked_for", "woken", "worker_id")

    def __init__(self, worker_id: int, free: int) -> None:
        self.worker_id = worker_id
        self.free = free
        self.woken = asyncio.Event()
        self.was_looked_for = False  # the store was queried at least once since the poll began
        self.is_claiming = False  # a claim for it is being written, so it waits for the result
        self.is_gone = False  # its caller no longer waits
        self.claims: list[Claim] = []
        self.error: Exception | None = None


class _Group:
    """Open polls of one tenant for the same functions."""

    __slots__ = (
        "asked_again", "batch", "endpoints", "fresh", "has_more", "is_queued", "is_served", "looked_at", "polls",
        "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, endpoints: tuple[int, ...]) -> None:
        self.tenant = tenant
        self.endpoints = endpoints
        self.polls: dict[_Poll, None] = {}  # longest waiting first
        self.fresh: list[_Poll] = []  # began since the last turn started
        self.is_queued = False
        self.is_served = False
        self.asked_again = False  # while it was being served
        self.has_more = False  # the last claims all got as many executions as they asked for
        self.batch = 1  # polls that claim together: doubles while there are enough executions
        self.looked_at = 0.0


class Polls:
    """`reads`: the gate that every read passes. `is_clock_right`: while it returns False, nothing is claimed."""

    def __init__(
        self, store: Store, clock: Clock, reads: TurnGate, is_clock_right: Callable[[], bool] = always
    ) -> None:
        self._store = store
        self._clock = clock
        self._reads = reads
        self._is_clock_right = is_clock_right
        self._groups: dict[tuple[str, tuple[int, ...]], _Group] = {}
        self._places = Counter[str]()  # open polls by tenant
        self._robin = RoundRobin[_Group]()
        self._turns: set[asyncio.Task[None] | None] = set()
        self._hint: asyncio.TimerHandle | None = None
        self._hinted_at = 0.0
        self._closed = False

    def waiting(self) -> int:
        """Returns the number of open polls for which the store was queried at least once, without result."""
        return sum(poll.was_looked_for for group in self._groups.values() for poll in group.polls)

    def count(self) -> int:
        """Returns the number of open polls."""
        return self._places.total()

    def hint(self) -> None:
        """Queries the store for all groups soon: an execution may be waiting for a worker."""
        if self._hint is None and self._groups:
            loop = asyncio.get_running_loop()
            wait = self._hinted_at + HINT_PAUSE_SECONDS - loop.time()
            self._hint = loop.call_later(max(0.0, wait), self._pass_on_hint)

    def _pass_on_hint(self) -> None:
        self._hint = None
        self._hinted_at = asyncio.get_running_loop().time()
        for group in list(self._groups.values()):
            self._ask(group)

    def close(self) -> None:
        """Ends open polls now. Later ones raise Overloaded: the worker retries here or at another node."""
        self._closed = True
        for group in self._groups.values():
            for poll in group.polls:
                poll.woken.set()

    def check_open(self) -> None:
        """Raises Overloaded if this node is about to stop or to rejoin."""
        if self._closed:
            raise Overloaded("this node is stopping; ask another one, or again in a moment", CLOSED_SECONDS)

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Reserves a place for one open poll. Raises Overloaded if closed, RateLimited if the tenant has too many."""
        self.check_open()
        if self._places[tenant] >= MOST_POLLS_OF_A_TENANT:
            raise RateLimited(
                f"{MOST_POLLS_OF_A_TENANT:,} workers of this tenant poll here already, which is the most; "
                "start fewer workers with more slots each, or spread them over several nodes",
                FULL_SECONDS,
            )
        self._places[tenant] += 1
        try:
            yield
        finally:
            self._places[tenant] -= 1
            if not self._places[tenant]:
                del self._places[tenant]

    async def wait(
        self, tenant: str, endpoints: Sequence[int], worker_id: int, free: int, wait_seconds: float
    ) -> list[Claim]:
        """Returns up to `free` executions, claimed for that worker; an empty list if there were none in time.

        Raises StaleWrite if the worker has ended. If this call is cancelled during a claim, the claim is released.
        """
        until = self._clock.monotonic() + wait_seconds
        key = (tenant, tuple(sorted(endpoints)))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(*key)
        poll = _Poll(worker_id, free)
        group.polls[poll] = None
        group.fresh.append(poll)
        self._ask(group)
        try:
            return await self._wait(group, poll, until)
        finally:
            poll.is_gone = True
            group.polls.pop(poll, None)
            self._forget_if_empty(group)

    async def _wait(self, group: _Group, poll: _Poll, until: float) -> list[Claim]:
        while True:
            if poll.error is not None:
                raise poll.error.with_traceback(None)
            if poll.claims:
                return poll.claims
            left = until - self._clock.monotonic()
            is_idle = poll.was_looked_for and not poll.is_claiming
            if (self._closed and not poll.is_claiming) or (is_idle and left <= 0):
                return []
            poll.woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS) if is_idle else None):
                    await poll.woken.wait()
                    continue
            if asyncio.get_running_loop().time() - group.looked_at >= LOOK_SECONDS / 2:
                self._ask(group)  # otherwise another poll of the group has just asked

    # Turns

    def _ask(self, group: _Group) -> None:
        """Queues the group for a turn, or for another turn if it is being served."""
        if group.is_served:
            group.asked_again = True
        elif not group.is_queued:
            group.is_queued = True
            self._robin.add(group.tenant, group)
            self._begin_turns()

    def _begin_turns(self) -> None:
        while len(self._turns) < TURNS_AT_ONCE and (group := self._robin.take()) is not None:
            group.is_queued, group.is_served = False, True
            self._turns.add(asyncio.create_task(self._turn(group)))

    async def _turn(self, group: _Group) -> None:
        group.asked_again = False
        group.looked_at = asyncio.get_running_loop().time()
        fresh, group.fresh = group.fresh, []
        goes_on = False
        try:
            goes_on = bool(group.polls) and await self._serve(group)
        except Exception as error:  # noqa: BLE001 (each waiting poll gets the error)
            for poll in group.polls:
                poll.error = error
                poll.woken.set()
        finally:
            group.is_served = False
            self._turns.discard(asyncio.current_task())
            if goes_on:
                group.fresh = fresh + group.fresh
            else:
                for poll in fresh:
                    poll.was_looked_for = True
                    poll.woken.set()
            if goes_on or group.asked_again or group.fresh:
                self._ask(group)
            self._forget_if_empty(group)
            self._begin_turns()

    async def _serve(self, group: _Group) -> bool:
        """Claims for the group's longest-waiting polls. Returns True if more executions and more polls are waiting."""
        if not group.has_more:
            async with self._reads.turn(group.tenant):
                waiting_at = await self._store.next_waiting_at(group.tenant, group.endpoints)
            if waiting_at is None or waiting_at > self._clock.now():
                return False
        polls = _first(group)
        now = self._clock.now()
        if not self._is_clock_right():
            return False
        for poll in polls:
            poll.is_claiming = True
        try:
            tenants, most = (group.tenant,), CLAIM_BYTES // len(polls)
            commands = [
                ClaimExecutions(poll.worker_id, now, poll.free, tenants, only=group.endpoints, bytes=most)
                for poll in polls
            ]
            answers = await self._store.apply(commands)
        finally:
            for poll in polls:
                poll.is_claiming = False
                poll.woken.set()
        group.has_more = True
        unwanted: list[Release] = []
        for poll, command, answer in zip(polls, commands, answers, strict=True):
            if isinstance(answer, DuetimeError):
                poll.error = answer
                continue
            claims = result_of(command, answer)
            group.has_more = group.has_more and len(claims) == poll.free
            if claims and poll.is_gone:
                unwanted.append(Release(poll.worker_id, now, tuple(claims)))
            elif claims:
                poll.claims = claims
                del group.polls[poll]
        group.batch = min(2 * group.batch, MOST_POLLS_A_TURN) if group.has_more else 1
        if unwanted:
            await self._release(unwanted)
        return group.has_more and bool(group.polls)

    async def _release(self, unwanted: Sequence[Release]) -> None:
        """Releases claims of polls whose callers left during the claim. None of these executions has started."""
        try:
            await self._store.apply(unwanted)
        except DuetimeError as error:
            log.warning("claims of cancelled polls are released only after a lease", error=error.message)
        self.hint()

    def _forget_if_empty(self, group: _Group) -> None:
        if not group.polls and not group.is_served and not group.is_queued:
            self._groups.pop((group.tenant, group.endpoints), None)


def _first(group: _Group) -> list[_Poll]:
    """Returns the polls that claim together next: up to `batch` polls and MOST_CLAIMED_A_TURN executions."""
    polls: list[_Poll] = []
    asked = 0
    for poll in islice(group.polls, group.batch):
        asked += poll.free
        if polls and asked > MOST_CLAIMED_A_TURN:
            break
        polls.append(poll)
    return polls
