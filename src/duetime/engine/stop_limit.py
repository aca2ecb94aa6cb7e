"""The time limit of a stop as a whole, whatever its steps wait for.

A step that has not ended by then is cancelled, and the next step begins. Work that the step could not write is
recovered by another node or at the next start, as after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

HURRY_SECONDS = 1.0  # time left for a stop after `hurry`
CANCEL_SECONDS = 0.5  # for a cancelled step to end; a step that does not is abandoned


class StopLimit:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: float | None = None
        self._hurried = asyncio.Event()

    def begin(self) -> None:
        """Starts the time limit. Only the first call counts."""
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self.seconds

    def hurry(self) -> None:
        """Shortens the time left to HURRY_SECONDS: the stop was requested a second time."""
        self.begin()
        if not self._hurried.is_set():
            self._until = min(self._until or 0.0, asyncio.get_running_loop().time() + HURRY_SECONDS)
            self._hurried.set()

    def left(self) -> float:
        self.begin()
        return max(0.0, (self._until or 0.0) - asyncio.get_running_loop().time())

    async def within(self, step: Coroutine[Any, Any, T], at_most: float, at_least: float = 0.0) -> T:
        """Runs a step within the time left, for `at_most` seconds. Cancels it and raises TimeoutError if it is slower.

        `at_least`: seconds that the step gets even if no time is left.
        """
        task = asyncio.ensure_future(step)
        began_at = asyncio.get_running_loop().time()
        try:
            if not await self._wait(task, at_most, at_least):
                seconds = asyncio.get_running_loop().time() - began_at
                raise TimeoutError(f"it had not ended after {seconds:.1f} s, and the stop goes on without it")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_SECONDS)

    async def _wait(self, task: asyncio.Future[T], at_most: float, at_least: float) -> bool:
        time = asyncio.get_running_loop().time
        began_at = time()
        while not task.done():
            seconds = max(at_least, min(at_most, self.left() + time() - began_at)) - (time() - began_at)
            if seconds <= 0:
                return False
            if self._hurried.is_set():
                await asyncio.wait({task}, timeout=seconds)
                continue
            hurried = asyncio.ensure_future(self._hurried.wait())
            both: set[asyncio.Future[Any]] = {task, hurried}
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
        return True
