"""Turns on the event loop: a request with much work lets the others have theirs every few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

TURN_SECONDS = 0.005

T = TypeVar("T")


class Turn:
    """Begins when it is made. `if turn.over(): await turn.end()` between two pieces of work.

    With `next_turn`, every turn waits for that, the first one too: it is over before it begins.
    """

    __slots__ = ("_ends_at", "_next_turn")

    def __init__(self, next_turn: Callable[[], Awaitable[None]] | None = None) -> None:
        self._next_turn = next_turn
        self._ends_at = 0.0 if next_turn else perf_counter() + TURN_SECONDS

    def over(self) -> bool:
        return perf_counter() >= self._ends_at

    async def end(self) -> None:
        """Everyone else first; then the next turn begins."""
        await asyncio.sleep(0)
        if self._next_turn is not None:
            await self._next_turn()
        self._ends_at = perf_counter() + TURN_SECONDS


async def collect(items: Iterable[T]) -> list[T]:
    """All of what is worked out item by item, in turns."""
    turn, found = Turn(), []
    for item in items:
        found.append(item)
        if turn.over():
            await turn.end()
    return found
