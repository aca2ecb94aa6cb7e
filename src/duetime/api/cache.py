"""Remembers answers for a moment, so that many callers cost the database one read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MOST = 1_000  # answers


class Moments:
    """`get(key, seconds, read)` reads at most once in `seconds` for a key; callers at the same time share one read."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: Hashable, seconds: float, read: Callable[[], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time()
        until, reading = self._found.get(key, (0.0, None))
        if reading is None or until <= now or (reading.done() and (reading.cancelled() or reading.exception())):
            if len(self._found) >= MOST:
                self._found.clear()
            reading = asyncio.ensure_future(read())
            self._found[key] = now + seconds, reading
        return cast(T, await asyncio.shield(reading))
