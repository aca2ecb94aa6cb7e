"""Measures the pauses for Python's garbage collector."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from time import perf_counter

MOST_KEPT = 1024  # pauses; later ones replace the oldest


class CollectorPauses:
    """`note(generation, seconds)` is called for each pause, when `drain` is.

    A collection may run on any thread and at any allocation. So the interpreter's callback only takes a note.
    """

    def __init__(self, note: Callable[[int, float], None]) -> None:
        self._note = note
        self._began = 0.0
        self._pauses = deque[tuple[int, float]](maxlen=MOST_KEPT)

    def start(self) -> None:
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        gc.callbacks.remove(self._collecting)

    def drain(self) -> None:
        while self._pauses:
            self._note(*self._pauses.popleft())

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = perf_counter()
        else:
            self._pauses.append((info["generation"], perf_counter() - self._began))
