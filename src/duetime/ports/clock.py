"""The clock port: the engine gets its time from it, so that a test can set the time by hand."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Returns the wall clock's time: ms since 1970-01-01T00:00Z. It may jump."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary start. They never jump."""

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        """Waits for `event`, or until the wall clock reads `until`. Returns True if the event was set.

        If the wall clock is set back meanwhile, the wait does not become longer.
        """
