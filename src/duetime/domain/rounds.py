"""Which requests begin in one round of an event loop: a few of them, round-robin by address.

An event loop runs everything that is ready before it reads from sockets again. So a thousand requests that arrive
together would delay the next one until all of them are done. Therefore only some begin in a round, and the others wait:
each address that waits begins one request before any begins its next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from duetime.domain.round_robin import RoundRobin

T = TypeVar("T")


class Rounds(Generic[T]):
    """`most`: how many items begin in a round. `is_idle`: no round has to follow."""

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
        """Returns whether the item begins now. If not, `begin` yields it later."""
        if self._begun < self._most and not self._waiting:
            self._begun += 1
            return True
        self._waiting += 1
        self._robin.add(address, item)
        return False

    def begin(self) -> Iterator[T]:
        """Begins a new round: yields the items that begin in it."""
        self._begun = min(self._most, self._waiting)
        self._waiting -= self._begun
        for _ in range(self._begun):
            item = self._robin.take()
            assert item is not None
            yield item
