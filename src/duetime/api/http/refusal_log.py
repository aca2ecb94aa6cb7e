"""Logs refused requests and connections: at most a few lines a second, then only the number of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from duetime.domain.line_rate import SECOND, LineRateLimiter

LINES_PER_SECOND = 20

log = structlog.get_logger()


class RefusalLog:
    def __init__(self, lines_per_second: int = LINES_PER_SECOND) -> None:
        self._rate = LineRateLimiter(lines_per_second)
        self._sum_at: float | None = None  # when the count of unlogged refusals is written

    def note(self, write: Callable[..., Any], event: str, **fields: Any) -> None:
        """Writes a line with a logger's method, or only counts it. Call it inside the event loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._sum_at is not None and now >= self._sum_at:
            self._write_sum()
        if self._rate.admit(now):
            write(event, **fields)
        elif self._sum_at is None:
            self._sum_at = now + SECOND
            loop.call_at(self._sum_at, self._write_sum)

    def _write_sum(self) -> None:
        self._sum_at = None
        if left_out := self._rate.take_left_out():
            log.info("more requests were refused than are logged one by one", left_out=left_out)


refusal_log = RefusalLog()
