"""The machine's clock. (The clock that tests set by hand is in `duetime.testing`.)"""

from __future__ import annotations

import asyncio
import time

LONGEST_WAIT_SECONDS = 1.0  # the wall clock may jump while we sleep: never trust it for longer


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        # Measured by both clocks: setting the wall clock back must not turn a wait of a second into one of an hour.
        deadline = time.monotonic() + (until / 1000 - time.time())
        while not event.is_set():
            left = min(until / 1000 - time.time(), deadline - time.monotonic())
            if left <= 0:
                return False
            try:
                async with asyncio.timeout(min(left, LONGEST_WAIT_SECONDS)):
                    await event.wait()
            except TimeoutError:
                continue
        return True
