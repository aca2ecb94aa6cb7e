"""Computes the days of a month that an expression matches. Owns the calendar rules (L, W, #, and how the two day
fields combine); it does not deal with hours or time zones.

A month has only 28 shapes: the weekday of its first day and its length. So the days of all months are 28 bit masks
for each rule, and each is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

EVERY_DATE = (1 << 32) - 2  # bits 1 to 31
EVERY_WEEKDAY = (1 << 7) - 1  # bit 0 is Sunday, bit 6 Saturday
SATURDAY = 6


class DayRule(NamedTuple):
    """The day-of-month and day-of-week fields, as bit masks. A tuple of integers: it hashes fast."""

    dates: int = 0  # bits 1 to 31
    before_last: int = 0  # bit n: n days before the last day (L is bit 0)
    nearest: int = 0  # bits 1 to 31: the weekday nearest that date (15W)
    last_weekday: bool = False  # LW
    weekdays: int = 0  # bits 0 (Sunday) to 6
    nth: int = 0  # bit 7 * (k - 1) + weekday: the k-th such weekday of the month (5#3)
    last: int = 0  # bits 0 to 6: the last such weekday of the month (5L)
    both: bool = True  # both fields must match; else one is enough


def bits(mask: int) -> Iterator[int]:
    """Yields the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@lru_cache(maxsize=4096)
def days_of_month(rule: DayRule, first: int, length: int) -> int:
    """Returns the days that match, as bits 1 to `length`, of a month whose day 1 is the weekday `first`."""
    by_date = _by_date(rule, first, length)
    by_weekday = _by_weekday(rule, first, length)
    return by_date & by_weekday if rule.both else by_date | by_weekday


def ever_matches(rule: DayRule, months: int) -> bool:
    """Returns whether some year has such a day. Exact: within 400 years each month begins on each weekday."""
    return any(
        days_of_month(rule, first, length)
        for month in bits(months)
        for length in {month_length(2000, month), month_length(2001, month)}
        for first in range(7)
    )


def _by_date(rule: DayRule, first: int, length: int) -> int:
    mask = rule.dates & ((2 << length) - 1)
    for back in bits(rule.before_last):
        if back < length:
            mask |= 1 << (length - back)
    for day in bits(rule.nearest):
        if day <= length:
            mask |= 1 << _nearest_weekday(day, first, length)
    if rule.last_weekday:
        mask |= 1 << _nearest_weekday_before(length, first)
    return mask


def _by_weekday(rule: DayRule, first: int, length: int) -> int:
    mask = 0
    for day in range(1, length + 1):
        weekday = (first + day - 1) % 7
        week = (day - 1) // 7
        last = rule.last if day + 7 > length else 0
        if (rule.weekdays | last) >> weekday & 1 or rule.nth >> (7 * week + weekday) & 1:
            mask |= 1 << day
    return mask


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """Returns Friday for a Saturday and Monday for a Sunday, unless that is in another month."""
    weekday = (first + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _nearest_weekday_before(day: int, first: int) -> int:
    weekday = (first + day - 1) % 7
    return day - 1 if weekday == SATURDAY else day - 2 if weekday == 0 else day
