"""Log lines of what may happen twenty thousand times a second: a few a second of each kind, and a count of the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import structlog

MOST_LINES = 10  # of one kind in a second, before the rest is counted
SUMMARY_SECONDS = 1.0
SHOWN_TENANTS = 3
MOST_TENANTS = 1000  # counted apart in one second

log = structlog.get_logger()

R = TypeVar("R")


class _Kind:
    __slots__ = ("began", "count", "level", "tenants", "written")

    def __init__(self, level: str) -> None:
        self.level = level
        self.began = 0.0
        self.written = 0
        self.count = 0  # left out since `began`
        self.tenants = Counter[str]()


class LimitedLines:
    """`later(seconds, call)`: calls the function after that time. `monotonic()`: seconds."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._later = later
        self._monotonic = monotonic
        self._kinds: dict[str, _Kind] = {}

    def write(
        self, event: str, rows: Sequence[R], facts: Callable[[R], dict[str, object]],
        tenants: Callable[[Sequence[R]], Iterable[str]], level: str = "info",
    ) -> None:  # fmt: skip
        """Writes a line with its facts for each row, as long as there is room. The others are counted by tenant."""
        kind = self._kinds.get(event)
        if kind is None:
            kind = self._kinds[event] = _Kind(level)
        now = self._monotonic()
        if not kind.count and now - kind.began >= SUMMARY_SECONDS:
            kind.began, kind.written = now, 0
        room = MOST_LINES - kind.written
        if room > 0:
            for row in rows[:room]:
                getattr(log, level)(event, **facts(row))
            kind.written += min(room, len(rows))
            rows = rows[room:]
        if rows:
            self._count(event, kind, len(rows), tenants(rows), now)

    def _count(self, event: str, kind: _Kind, count: int, tenants: Iterable[str], now: float) -> None:
        if not kind.count:
            self._later(max(0.0, kind.began + SUMMARY_SECONDS - now), lambda: self._summarize(event))
        kind.count += count
        kind.tenants.update(tenants)
        if len(kind.tenants) > MOST_TENANTS:
            kind.tenants = Counter(dict(kind.tenants.most_common(MOST_TENANTS // 10)))

    def _summarize(self, event: str) -> None:
        kind = self._kinds[event]
        if kind.count:
            shown = ", ".join(f"{tenant} {number}" for tenant, number in kind.tenants.most_common(SHOWN_TENANTS))
            getattr(log, kind.level)(event, more=kind.count, tenants=shown)
            kind.began, kind.written, kind.count = self._monotonic(), 0, 0
            kind.tenants.clear()

    def close(self) -> None:
        """Writes the counts that are not written yet."""
        for event in self._kinds:
            self._summarize(event)
