"""How fast the node reads what scripts print beyond what anybody keeps: so much in all, shared by tenant.

Reading takes the event loop's time, and a script that prints without end would take as much of it as there is. A
stream that waits for its next part is not read meanwhile, and so its script waits, as for any slow reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.domain.shares import share_of

FREE_BYTES = 4 * 1024 * 1024  # of each stream, read as fast as they come: more than a log keeps
TICK_SECONDS = 0.01
TICK_BYTES = 640 * 1024  # of all streams beyond that

Resume = Callable[[int], None]


class Bandwidth:
    """Of all scripts of a node. For one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Resume]] = {}  # by tenant
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, tenant: str, resume: Resume) -> None:
        """`resume` is called with how many bytes may be read next, once."""
        self._waiting.setdefault(tenant, []).append(resume)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def forget(self, tenant: str, resume: Resume) -> None:
        """The stream has ended. One that does not wait is no error."""
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
