"""Writes in flight: the ledger may show their claims as this node's before the node has the result.

A commit whose response is lost may stay in doubt for minutes, while reads and other writes go on.
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
        """Context of a write that claims or releases: the write is in flight until the context ends."""
        self._number += 1
        number = self._number
        self._began_at[number] = self._monotonic()
        try:
            yield
        finally:
            del self._began_at[number]

    def since(self, monotonic: float) -> bool:
        """Returns whether any write in flight began at or before `monotonic`."""
        return any(began_at <= monotonic for began_at in self._began_at.values())
