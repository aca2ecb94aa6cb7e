"""Which requests begin in one round of an event loop: a few of them, in turns by address.

An event loop carries out everything that is ready before it looks for what has come. A thousand requests that arrive
together would therefore hold up the next one for as long as all of them take. So only some begin in a round; the others
wait, and each address that waits has one before any has its next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from duetime.domain.round_robin import RoundRobin

T = TypeVar("T")


class Rounds(Generic[T]):
    """`most`: how many begin in a round. `is_idle`: no round has to follow."""

    __slots__ = ("_begun", "_most", "_robin", "_waiting")

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun = 0
        self._waiting = 0
        self._robin = RoundRobin[T]()

    @property
    def is_idle(self) -> bool:
        return not (self._begun or self._waiting)

    def offer(self, address: str, item: T) -> bool:
        """Returns whether it begins now. If not, it is one of those that `begin` yields later."""
        if self._begun < self._most and not self._waiting:
            self._begun += 1
            return True
        self._waiting += 1
        self._robin.add(address, item)
        return False

    def begin(self) -> Iterator[T]:
        """A new round: yields those that begin in it."""
        self._begun = min(self._most, self._waiting)
        self._waiting -= self._begun
        for _ in range(self._begun):
            item = self._robin.take()
            assert item is not None
            yield item
