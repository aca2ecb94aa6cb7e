"""Reads logs like the API: page by page, or following."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.ports.logs import Line, LogStore
from patience import PATIENCE_SECONDS


async def read_all(logs: LogStore, execution_id: str, after: int = 0, limit: int = 1000) -> list[Line]:
    found: list[Line] = []
    while page := await logs.read(execution_id, found[-1].number if found else after, limit):
        found += page
    return found


async def follow(logs: LogStore, execution_id: str, count: int, after: int = 0) -> list[Line]:
    """Waits and reads until there are this many lines."""
    found: list[Line] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < count:
            last = found[-1].number if found else after
            if await logs.wait(execution_id, last, 10):
                found += await logs.read(execution_id, last, 1000)
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that another thread or server fulfils without a signal."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.01)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]
