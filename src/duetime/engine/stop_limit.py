"""The steps of a stop, each of which runs whatever became of the steps before it, and their time limit as a whole.

A step that has not ended by then is cancelled, and the next step begins. Work that the step could not write is
recovered by another node or at the next start, as after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

HURRY_SECONDS = 1.0  # time left for a stop after `hurry`
CANCEL_SECONDS = 0.5  # for a cancelled step to end; a step that does not is abandoned
LEAST_SECONDS = 0.25  # for the steps that write what this node ran and did not run, even if no time is left
STEP_SHARE = 0.5  # of `stop_seconds`: the most that one step of a stop may take

log = structlog.get_logger()


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


class StopSteps:
    """`limit`: None while the node rejoins. That has no limit: a node can't go on without its database."""

    def __init__(self, stop_seconds: float, limit: StopLimit | None) -> None:
        self._step_seconds = stop_seconds * STEP_SHARE
        self._limit = limit

    async def run(self, step: Coroutine[Any, Any, object], at_least: float = 0.0) -> bool:
        """Runs a step within the limit. Returns False, and logs why, if it fails or takes too long."""
        name = getattr(step, "__qualname__", "")
        try:
            await (step if self._limit is None else self._limit.within(step, self._step_seconds, at_least))
        except Exception as error:  # noqa: BLE001 (the steps that follow matter more)
            log.error("a step failed", step=name, error=f"{type(error).__name__}: {error}")
            return False
        return True

    def time_to_drain(self, wanted: float) -> float:
        """Returns the time left for the drain. One step's time is kept back to release claims that were not drained."""
        return wanted if self._limit is None else max(0.0, min(wanted, self._limit.left() - self._step_seconds))


async def settled(parts: Collection[Awaitable[object]]) -> None:
    """Waits until all have ended, then raises the first failure, if any."""
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
