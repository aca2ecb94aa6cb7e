"""Writes that are under way: what they claim is this node's in the ledger before anybody here knows of it.

A commit whose answer is lost may stay in doubt for minutes, while reads and other writes go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Unanswered:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began_at: dict[int, float] = {}
        self._number = 0

    @contextmanager
    def write(self) -> Iterator[None]:
        """A write that claims or releases is under way until this ends."""
        self._number += 1
        number = self._number
        self._began_at[number] = self._monotonic()
        try:
            yield
        finally:
            del self._began_at[number]

    def since(self, monotonic: float) -> bool:
        """Whether one has been under way since then, or for longer."""
        return any(began_at <= monotonic for began_at in self._began_at.values())
