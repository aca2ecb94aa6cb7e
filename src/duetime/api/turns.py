"""Cooperative yielding: a request with much work gives the event loop to others every few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

TURN_SECONDS = 0.005

T = TypeVar("T")


class Turn:
    """Begins when it is created. Call `if turn.over(): await turn.end()` between two pieces of work.

    With `next_turn`, every turn waits for `next_turn` first. So the first turn is over when it is created.
    """

    __slots__ = ("_ends_at", "_next_turn")

    def __init__(self, next_turn: Callable[[], Awaitable[None]] | None = None) -> None:
        self._next_turn = next_turn
        self._ends_at = 0.0 if next_turn else perf_counter() + TURN_SECONDS

    def over(self) -> bool:
        return perf_counter() >= self._ends_at

    async def end(self) -> None:
        """Lets all other tasks run, then begins the next turn."""
        await asyncio.sleep(0)
        if self._next_turn is not None:
            await self._next_turn()
        self._ends_at = perf_counter() + TURN_SECONDS


async def collect(items: Iterable[T]) -> list[T]:
    """Returns the items as a list, and yields to the event loop between them when a turn is over."""
    turn, found = Turn(), []
    for item in items:
        found.append(item)
        if turn.over():
            await turn.end()
    return found
