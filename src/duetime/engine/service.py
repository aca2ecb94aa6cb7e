"""A loop with a start and a stop: what every part of the engine is.

A service says in `run_once` what one turn does and when the next is due; this file owns the turning. A turn that fails
is logged and tried again after a pause: no loop dies of an error.
"""

from __future__ import annotations

import asyncio

import structlog

from duetime.domain.instants import SECOND
from duetime.ports.clock import Clock

log = structlog.get_logger()


class Service:
    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.failure: str | None = None  # of the last turn, for the health page

    async def run_once(self) -> int:
        """One turn. Answers the instant at which the next is due, if nothing wakes it before."""
        raise NotImplementedError

    def wake(self) -> None:
        self._wake.set()

    async def start(self) -> None:
        if self._task is None:
            self._stopping = False  # here, not in the loop: a stop may come before its first turn
            self._task = asyncio.create_task(self._turn(), name=self.name)

    async def stop(self) -> None:
        """End after the turn under way. Stopping twice, or before the start, does nothing."""
        task, self._task = self._task, None
        if task is not None:
            self._stopping = True
            self._wake.set()
            await task

    async def _turn(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                until = await self.run_once()
                self.failure = None
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                log.error("a turn failed and will be tried again", service=self.name, error=self.failure, exc_info=True)
                until = self._clock.now() + SECOND
            if not self._stopping:
                await self._clock.wait(self._wake, until)
