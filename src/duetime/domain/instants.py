"""Instants: whole milliseconds since 1970-01-01T00:00Z, as plain ints. Only the API, the CLI and the files use text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = int((datetime(9000, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) * SECOND
_MILLISECOND = timedelta(milliseconds=1)


def to_datetime(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def from_datetime(moment: datetime) -> int:
    """Returns the instant, rounded down to the millisecond. Exact: it uses no floats."""
    return (moment - EPOCH) // _MILLISECOND


def format_instant(at: int) -> str:
    """Returns RFC 3339 text in UTC with milliseconds: `2026-11-18T09:00:00.000Z`."""
    return f"{_format_second(at // SECOND)}.{at % SECOND:03}Z"


@lru_cache(256)  # most instants that are formatted lie in the same few seconds: now, and those that share a schedule
def _format_second(second: int) -> str:
    return to_datetime(second * SECOND).isoformat()[:-6]


def parse_instant(text: str, zone: tzinfo = UTC) -> int:
    """Returns the instant of RFC 3339 text. `zone`: of a time without an offset. Raises ValueError with a sentence."""
    try:
        moment = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        raise ValueError(f"'{text[:64]}' is not an instant; write it like 2026-11-18T09:00:00Z") from None
    if "T" not in text.upper() and ":" not in text:
        raise ValueError(f"'{text[:64]}' has no time of day; write it like 2026-11-18T09:00:00Z")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        at = from_datetime(moment)
    except OverflowError:
        at = -1
    if not 0 <= at < LATEST:
        raise ValueError(f"'{text[:64]}' is out of range; instants lie between the years 1970 and 9000")
    return at
