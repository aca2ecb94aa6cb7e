"""A service: a loop with a start and a stop. Every part of the engine with its own loop is one.

A subclass implements `run_once`: it does one turn and returns when the next is due. This file owns the loop. A turn
that fails is logged and retried after a pause: no error ends the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from duetime.domain.errors import StaleEpoch, StaleWrite
from duetime.domain.instants import SECOND
from duetime.ports.clock import Clock

LONGEST_PAUSE = 5 * SECOND  # after consecutive failed turns

log = structlog.get_logger()


class Service:
    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.failure: str | None = None  # of the last turn, for the health page

    async def run_once(self) -> int:
        """Does one turn. Returns the instant at which the next is due, unless `wake` is called before."""
        raise NotImplementedError

    def wake(self) -> None:
        self._wake.set()

    async def start(
        self, on_fenced: Callable[[StaleWrite], None] | None = None,
        on_failed: Callable[[str, str], None] = lambda name, error: None,
    ) -> None:  # fmt: skip
        """Starts the loop. `on_fenced` is called when a turn fails because the store has fenced this node.

        `on_failed(name, error)` is called for each turn that fails.
        """
        if self._task is None:
            self._stop.clear()  # here, not in the loop: `stop` may be called before the first turn
            self._task = asyncio.create_task(self._turn(on_fenced, on_failed), name=self.name)

    async def stop(self) -> None:
        """Ends the loop after the current turn. Stopping twice, or before the start, does nothing."""
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            self._wake.set()
            await task

    async def _turn(
        self, on_fenced: Callable[[StaleWrite], None] | None, on_failed: Callable[[str, str], None]
    ) -> None:
        pause = SECOND
        while not self._stop.is_set():
            self._wake.clear()
            began_at = self._clock.now()
            try:
                until, waker = await self.run_once(), self._wake
                self.failure, pause = None, SECOND
                if self._clock.now() < began_at:
                    until = 0  # the clock was set back: the turn may have computed `until` before that
            except Exception as error:
                again, self.failure = self.failure is not None, f"{type(error).__name__}: {error}"
                log.error(
                    "a turn failed and will be retried", service=self.name, error=self.failure, exc_info=not again
                )
                on_failed(self.name, self.failure)
                # Only a stop ends this pause: wake-ups would only make the service fail more often.
                until, waker = self._clock.now() + pause, self._stop
                pause = min(2 * pause, LONGEST_PAUSE)
                if on_fenced is not None and isinstance(error, StaleWrite) and not isinstance(error, StaleEpoch):
                    on_fenced(error)
            await asyncio.sleep(0)  # a turn that never awaits, and is due again at once, must not block the loop
            if not self._stop.is_set():
                await self._clock.wait(waker, until)
