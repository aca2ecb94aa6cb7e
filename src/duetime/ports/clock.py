"""The clock port: where the engine gets its time from, so that a test can turn it by hand."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """The wall clock: ms since 1970-01-01T00:00Z. It may jump."""

    def monotonic(self) -> float:
        """Seconds that never jump, from an arbitrary start."""

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        """Wait for `event`, or until the wall clock reads `until`. True if the event was set.

        If the wall clock is set back meanwhile, no longer than it was to take.
        """
