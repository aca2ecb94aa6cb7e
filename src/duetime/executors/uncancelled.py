"""Work that a cancelled caller must still complete, such as ending a process or a statement."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Completes `work` even if the caller is cancelled meanwhile, then raises the last of these CancelledErrors."""
    running = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        running.exception()  # read here, so that asyncio does not log it
        raise cancelled
    return running.result()
