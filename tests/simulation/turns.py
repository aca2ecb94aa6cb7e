"""Turns of the event loop, to find out whether anything is left to do at an instant of a clock set by hand."""

from __future__ import annotations

import asyncio


async def turn() -> bool:
    """Runs all tasks that can run. Returns False if all wait for the clock, a call or a thread."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)  # expired timeouts are queued before this continues
    return bool(loop._ready)  # type: ignore[attr-defined]
