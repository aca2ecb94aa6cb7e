"""Durations as users write them in a job: a whole number and a unit, such as 90s, 30m, 25h, 7d or 2w."""

from __future__ import annotations

import re

from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND

_FORM = re.compile(r"([0-9]{1,9}) ?([smhdw])")
_UNITS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}


def parse_duration(text: str, least: int, most: int) -> int:
    """Returns the duration in ms. Raises ValueError with a sentence if it is none, or not within the bounds."""
    match = _FORM.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"'{text[:16]}' is no duration; write it like 90s, 30m, 25h or 7d")
    duration = int(match[1]) * _UNITS[match[2]]
    if not least <= duration <= most:
        raise ValueError(f"must lie between {format_duration(least)} and {format_duration(most)}")
    return duration


def format_duration(duration: int) -> str:
    """Returns the duration in the largest unit below a week that divides it."""
    size, unit = next(
        pair for pair in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")) if not duration % pair[0]
    )
    return f"{duration // size}{unit}"
