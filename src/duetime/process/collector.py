"""Runs Python's garbage collector while nothing is due.

Left alone, the collector runs after so many allocations. Most allocations happen when jobs are due, so most collections
did, too: under load, one of them made all executions of a second 50 to 100 ms late.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

CHECK_SECONDS = 0.1
YOUNG = 5_000  # objects; fewer are not worth a collection, more take milliseconds
YOUNG_NEEDS = 50  # ms without a due job that a collection of young objects needs
MIDDLE = 20  # collections of young objects, before those that survived them are looked at, too
MIDDLE_NEEDS = 200


class Collector:
    """`quiet_for()` returns for how many ms nothing will be due. The interpreter's own collections go on as a limit."""

    def __init__(self, quiet_for: Callable[[], int]) -> None:
        self._quiet_for = quiet_for

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.collect(*gc.get_count())

    def collect(self, young: int, middle: int, _: int = 0) -> int | None:
        """Collects if there is enough to collect and time to do it. Returns the collected generation."""
        if young < YOUNG:
            return None
        quiet_for = self._quiet_for()
        if quiet_for < YOUNG_NEEDS:
            return None
        generation = 1 if middle >= MIDDLE and quiet_for >= MIDDLE_NEEDS else 0
        gc.collect(generation)
        return generation
