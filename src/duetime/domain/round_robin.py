"""Round robin over keys: a key with many items waits until every other key with an item was served."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Items in one line for each key, such as a tenant. Each key with items is served once before any is served again;
    the items of a line are served in their order. A key that is alone is served without a pause."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}  # in the order in which they are served

    def add(self, key: str, item: T) -> None:
        self._lines.setdefault(key, deque()).append(item)

    def take(self) -> T | None:
        """Removes and returns the next item; None if no item waits."""
        if not self._lines:
            return None
        key = next(iter(self._lines))
        line = self._lines.pop(key)
        item = line.popleft()
        if line:
            self._lines[key] = line  # behind all others
        return item
