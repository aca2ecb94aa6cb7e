"""The steps of a stop: each runs, whatever became of the steps before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any

import structlog

from duetime.engine.stop_limit import StopLimit

LEAST_SECONDS = 0.25  # for the steps that write what this node ran and did not run, even if no time is left
STEP_SHARE = 0.5  # of `stop_seconds`: the most that one step of a stop may take

log = structlog.get_logger()


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
