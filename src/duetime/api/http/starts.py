"""Starts work in rounds of the event loop, as `domain.rounds` decides: requests by address, large bodies by tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from duetime.domain.rounds import Rounds

REQUESTS_PER_ROUND = 32  # a few milliseconds of work

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
