"""A loop with a start and a stop: what every part of the engine is.

A service says in `run_once` what one turn does and when the next is due; this file owns the turning. A turn that fails
is logged and tried again after a pause: no loop dies of an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from duetime.domain.errors import StaleEpoch, StaleWrite
from duetime.domain.instants import SECOND
from duetime.ports.clock import Clock

LONGEST_PAUSE = 5 * SECOND  # after turns that fail one after the other

log = structlog.get_logger()


class Service:
    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.failure: str | None = None  # of the last turn, for the health page
        self.on_void: Callable[[StaleWrite], None] = lambda error: None  # the store takes no more writes of this node

    async def run_once(self) -> int:
        """One turn. Answers the instant at which the next is due, if nothing wakes it before."""
        raise NotImplementedError

    def wake(self) -> None:
        self._wake.set()

    async def start(self) -> None:
        if self._task is None:
            self._stop.clear()  # here, not in the loop: a stop may come before its first turn
            self._task = asyncio.create_task(self._turn(), name=self.name)

    async def stop(self) -> None:
        """End after the turn under way. Stopping twice, or before the start, does nothing."""
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            self._wake.set()
            await task

    async def _turn(self) -> None:
        pause = SECOND
        while not self._stop.is_set():
            self._wake.clear()
            began_at = self._clock.now()
            try:
                until, waker = await self.run_once(), self._wake
                self.failure, pause = None, SECOND
                if self._clock.now() < began_at:
                    until = 0  # the clock was set back meanwhile: the turn may have named an instant of the old one
            except Exception as error:
                again, self.failure = self.failure is not None, f"{type(error).__name__}: {error}"
                log.error(
                    "a turn failed and will be tried again", service=self.name, error=self.failure, exc_info=not again
                )
                # Nothing but a stop ends this pause: what wakes a service would only make it fail faster.
                until, waker = self._clock.now() + pause, self._stop
                pause = min(2 * pause, LONGEST_PAUSE)
                if isinstance(error, StaleWrite) and not isinstance(error, StaleEpoch):
                    self.on_void(error)
            await asyncio.sleep(0)  # a turn that waited for nothing, and is due again at once, must not hold the loop
            if not self._stop.is_set():
                await self._clock.wait(waker, until)
