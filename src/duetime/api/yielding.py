"""Cooperative yielding: a request with much work gives the event loop to others every few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import TypeVar

SLICE_SECONDS = 0.005

T = TypeVar("T")


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
