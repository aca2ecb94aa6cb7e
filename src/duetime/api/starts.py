"""Begins requests in rounds of the event loop, as `domain.rounds` decides."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from duetime.domain.rounds import Rounds

REQUESTS_PER_ROUND = 32  # some milliseconds of work, and as many as one commit takes in well


class Starter(Protocol):
    def begin(self, cycle: Any, app: Any) -> None:
        """Begin a request that had to wait."""


class Starts:
    """Those of one server, that is of one event loop."""

    def __init__(self, most: int = REQUESTS_PER_ROUND) -> None:
        self._rounds = Rounds[tuple[Starter, Any, Any]](most)
        self._has_round = False  # ahead of it

    def may_begin(self, loop: asyncio.AbstractEventLoop, address: str, starter: Starter, cycle: Any, app: Any) -> bool:
        """Returns whether a request begins now. If not, `starter` is told when it does."""
        if not self._has_round:
            self._has_round = True
            loop.call_soon(self._next_round, loop)
        return self._rounds.offer(address, (starter, cycle, app))

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        for starter, cycle, app in self._rounds.begin():
            starter.begin(cycle, app)
        self._has_round = not self._rounds.is_idle
        if self._has_round:
            loop.call_soon(self._next_round, loop)
