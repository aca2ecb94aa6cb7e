"""Measures how late the event loop runs what is due: everything that this process does shares it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

CHECK_SECONDS = 0.1
KEPT_SECONDS = 10.0


class LoopLag:
    """`seconds`: the longest delay of the last ten seconds or so. `on_beat(seconds)` is called with each delay."""

    def __init__(self, on_beat: Callable[[float], None] = lambda seconds: None) -> None:
        self._on_beat = on_beat
        self._latest = self._before = 0.0
        self._began = 0.0

    @property
    def seconds(self) -> float:
        return max(self._latest, self._before)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        self._began = perf_counter()
        while True:
            asleep = perf_counter()
            await asyncio.sleep(CHECK_SECONDS)
            now = perf_counter()
            self.note(now, now - asleep - CHECK_SECONDS)
            self._on_beat(max(0.0, now - asleep - CHECK_SECONDS))

    def note(self, now: float, delay: float) -> None:
        if now - self._began >= KEPT_SECONDS:
            self._before, self._latest, self._began = self._latest, 0.0, now
        self._latest = max(self._latest, delay)
