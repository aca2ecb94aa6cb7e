"""Limits how fast the node reads script output that is too long to be kept. The limit is shared by tenant.

Reading takes time of the event loop, and a script that prints without end would take all of it. While a stream waits
for its next share it is not read, so its script blocks on the full pipe, as with any slow reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.domain.shares import share_of

FREE_BYTES = 4 * 1024 * 1024  # of each stream, read without a limit: more than a log keeps
TICK_SECONDS = 0.01
TICK_BYTES = 640 * 1024  # per tick, of all streams together that have read their free bytes

Resume = Callable[[int], None]


class Bandwidth:
    """The read bandwidth of all scripts of a node. For one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Resume]] = {}  # by tenant
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, tenant: str, resume: Resume) -> None:
        """Calls `resume` once, at the next tick, with the number of bytes that may be read."""
        self._waiting.setdefault(tenant, []).append(resume)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def forget(self, tenant: str, resume: Resume) -> None:
        """Removes a stream that has ended. Does nothing if the stream does not wait."""
        streams = self._waiting.get(tenant, [])
        if resume in streams:
            streams.remove(resume)
        if not streams:
            self._waiting.pop(tenant, None)

    def _tick(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        share = share_of(TICK_BYTES, len(waiting))
        for streams in waiting.values():
            for resume in streams:
                resume(share_of(share, len(streams)))
