"""Measures what stalls the process: how late the event loop wakes up, and the pauses for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable

BEAT_SECONDS = 0.2
MOST_PAUSES = 1024  # between two beats


class Stalls:
    """`note_lag(seconds)` is called after each short sleep of the loop, with how much longer it was than asked for.

    `note_pause(generation, seconds)` is called for each collection, at the next beat: a collection may run on any
    thread, and at any allocation, so the interpreter's callback only takes a note.
    """

    def __init__(self, note_lag: Callable[[float], None], note_pause: Callable[[int, float], None]) -> None:
        self._note_lag = note_lag
        self._note_pause = note_pause
        self._began = 0.0
        self._pauses = deque[tuple[int, float]](maxlen=MOST_PAUSES)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        gc.callbacks.append(self._collecting)
        try:
            while True:
                await self.beat()
        finally:
            gc.callbacks.remove(self._collecting)

    async def beat(self) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time() + BEAT_SECONDS
        await asyncio.sleep(BEAT_SECONDS)
        self._note_lag(max(0.0, loop.time() - asked))
        while self._pauses:
            self._note_pause(*self._pauses.popleft())

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._pauses.append((info["generation"], time.perf_counter() - self._began))
