"""Measures how long claims wait for a place: of each page only the claim that was added last."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

MOST = 1024  # at once


class WaitSamples:
    """`note(seconds)` is called when a measured claim gets its place."""

    def __init__(self, note: Callable[[float], None]) -> None:
        self.timed: dict[str, float] = {}  # by execution id: since when
        self._note = note

    def begin(self, execution_id: str) -> None:
        if len(self.timed) < MOST:
            self.timed[execution_id] = monotonic()

    def end(self, execution_id: str) -> None:
        self._note(monotonic() - self.timed.pop(execution_id))

    def drop(self, execution_id: str) -> None:
        """The claim has left the queue without a place."""
        self.timed.pop(execution_id, None)
