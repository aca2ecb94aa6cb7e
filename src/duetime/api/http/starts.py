"""Cooperative work: it starts in rounds of the event loop (`domain.rounds`), and gives way every few milliseconds.

Requests take turns by address, large bodies by tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Generic, TypeVar

from duetime.domain.rounds import Rounds

REQUESTS_PER_ROUND = 32  # a few milliseconds of work
SLICE_SECONDS = 0.005

T = TypeVar("T")


class Starts(Generic[T]):
    """The starts of one event loop. When the turn of a waiting item comes, `begin` is called with it."""

    def __init__(self, most: int, begin: Callable[[T], None]) -> None:
        self._rounds = Rounds[T](most)
        self._begin = begin
        self._has_round = False  # a round is scheduled

    def may_begin(self, loop: asyncio.AbstractEventLoop, key: str, item: T) -> bool:
        """Returns whether an item of this address or tenant begins now. If not, `begin` is called with it later."""
        if not self._has_round:
            self._has_round = True
            loop.call_soon(self._next_round, loop)
        return self._rounds.offer(key, item)

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        for item in self._rounds.begin():
            self._begin(item)
        self._has_round = not self._rounds.is_idle
        if self._has_round:
            loop.call_soon(self._next_round, loop)


class TenantTurns:
    """Allows one large piece of work per round of the event loop, with tenants taking turns."""

    def __init__(self) -> None:
        self._starts = Starts[asyncio.Future[None]](1, _wake)

    async def wait(self, tenant: str) -> None:
        """Returns when it is this tenant's turn to do a few milliseconds of work."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        if not self._starts.may_begin(loop, tenant, turn):
            await turn


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # otherwise the wait was cancelled
        turn.set_result(None)


class Slices:
    """Divides work into slices. Call `if slices.is_over(): await slices.give_way()` between two pieces of work.

    With `admit`, every slice waits for `admit` first. So the first slice is over when it is created.
    """

    __slots__ = ("_admit", "_ends_at")

    def __init__(self, admit: Callable[[], Awaitable[None]] | None = None) -> None:
        self._admit = admit
        self._ends_at = 0.0 if admit else perf_counter() + SLICE_SECONDS

    def is_over(self) -> bool:
        return perf_counter() >= self._ends_at

    async def give_way(self) -> None:
        """Lets all other tasks run, then begins the next slice."""
        await asyncio.sleep(0)
        if self._admit is not None:
            await self._admit()
        self._ends_at = perf_counter() + SLICE_SECONDS


async def collect(items: Iterable[T]) -> list[T]:
    """Returns the items as a list, and yields to the event loop between them when a slice is over."""
    slices, found = Slices(), []
    for item in items:
        found.append(item)
        if slices.is_over():
            await slices.give_way()
    return found
