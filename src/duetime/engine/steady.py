"""The time that the engine and the API write down: that of the machine, unless it contradicts the registry's clock.

A node whose clock is wrong decides nothing by it. But what it holds has to end, and ends carry instants: the retry of a
run must not wait for forty days because of a clock that was set while the run was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.ports.clock import Clock


class SteadyClock:
    """A `ports.clock.Clock`. `correct(now, monotonic)` says what the time is where the machine's clock reads `now`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.correct: Callable[[int, float], int] = lambda now, monotonic: now

    def now(self) -> int:
        return self.correct(self._clock.now(), self.monotonic())

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        return await self._clock.wait(event, until + self._clock.now() - self.now())
