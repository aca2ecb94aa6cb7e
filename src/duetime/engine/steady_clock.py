"""The clock whose instants the engine and the API store: the machine's, unless it contradicts the registry's clock.

A node whose clock is wrong makes no decisions by it. But the attempts that it holds must end, and their ends carry
instants: a retry must not wait for forty days because the clock was set during the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.ports.clock import Clock


class SteadyClock:
    """A `ports.clock.Clock`. `correct(now, monotonic)` returns the right time when the machine's clock reads `now`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.correct: Callable[[int, float], int] = lambda now, monotonic: now

    def now(self) -> int:
        return self.correct(self._clock.now(), self.monotonic())

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        return await self._clock.wait(event, until + self._clock.now() - self.now())
