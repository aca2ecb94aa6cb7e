"""Logs by the day that their executions were scheduled for: what is too old goes by the day, what is too much oldest
first.

What a day holds is known without looking at each of its logs every time: our own writes are added as they happen, those
of other nodes are found by looking again now and then.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY, format_instant
from duetime.ports.clock import Clock

LOOK_SECONDS = 600.0  # at days that are still written to
LOOK_SELDOM_SECONDS = 6 * 3600.0  # at days that are over

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def day_at(at: int) -> str:
    return format_instant(at)[:10]


def day_of(execution_id: str) -> str:
    return day_at(instant_of(execution_id))


def is_day(name: str) -> bool:
    return _DAY.fullmatch(name) is not None


class Removed(NamedTuple):
    logs: int
    bytes: int


class Shelf(Protocol):
    """Where the days lie."""

    async def list_days(self) -> list[str]:
        """Of all that is there; what is not named like a day is not ours."""

    async def measure(self, day: str) -> int:
        """The bytes that it takes there."""

    async def remove_oldest(self, day: str, at_least: int | None) -> Removed:
        """Logs of this day, oldest first, until so many bytes are gone; all if None."""


class Totals:
    """Bytes by day, as far as they are known."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}  # bytes, and when they were measured

    def add(self, day: str, count: int) -> None:
        if day in self._known:
            held, measured_at = self._known[day]
            self._known[day] = (max(0, held + count), measured_at)

    async def of(self, day: str, shelf: Shelf) -> int:
        now = self._clock.monotonic()
        held, measured_at = self._known.get(day, (0, -LOOK_SELDOM_SECONDS - 1))
        recent = day >= day_at(max(0, self._clock.now() - DAY))
        if day not in self._known or now - measured_at > (LOOK_SECONDS if recent else LOOK_SELDOM_SECONDS):
            held = await shelf.measure(day)
            self._known[day] = (held, now)
        return held

    def forget(self, day: str) -> None:
        self._known.pop(day, None)


async def prune_days(shelf: Shelf, totals: Totals, before: int, most_bytes: int) -> int:
    """Remove what lies before the day of that instant, then the oldest of what is too much. Answers how many went."""
    days = sorted(await shelf.list_days())
    first_kept = day_at(max(0, before))
    gone = 0
    for day in [day for day in days if day < first_kept]:
        gone += (await shelf.remove_oldest(day, None)).logs
        totals.forget(day)
    days = [day for day in days if day >= first_kept]
    total = 0
    for day in days:
        total += await totals.of(day, shelf)
    for day in days:
        if total <= most_bytes:
            break
        removed = await shelf.remove_oldest(day, total - most_bytes)
        totals.add(day, -removed.bytes)
        gone, total = gone + removed.logs, total - removed.bytes
    return gone
