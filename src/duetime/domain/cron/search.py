"""Finds the next instant of an expression, through days and clock changes.

The search goes from one span of constant offset to the next. Inside a span local time runs evenly, so bit masks find a
match. The DST policy only decides which local times belong to a span.
"""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

from duetime.domain.job import Dst

from .days import days_of_month, month_length
from .expression import CronExpression, lowest
from .zone import load_zone, span_at

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_EARLIEST = (date(2, 1, 1).toordinal() - _EPOCH) * _DAY
_LATEST = (date(9000, 1, 1).toordinal() - _EPOCH) * _DAY
_HORIZON = 18_300 * _DAY  # 50 years; the rarest day there is, February 29 on one weekday, comes within 40
_CLOCK_CHANGE = 3 * _DAY  # longer than any
_AS_IN_CRON = Dst()


def next_after(expr: CronExpression, zone: ZoneInfo | str, after_ms: int, dst: Dst = _AS_IN_CRON) -> int | None:
    """Returns the first instant strictly later than `after_ms`, both in milliseconds since 1970 UTC.

    None if there is none within 50 years or before the year 9000. The instants of an expression are one fixed set, and
    do not depend on `after_ms`.
    """
    if isinstance(zone, str):
        zone = load_zone(zone)
    instant = max(after_ms // 1000 + 1, _EARLIEST)
    limit = min(instant + _HORIZON, _LATEST)
    overlap = dst.overlap if expr.fixed else "both"
    shift = expr.fixed and dst.gap == "shift"
    while instant < limit:
        end, offset, opens, gap_from, floor, ceiling = span_at(zone, instant, overlap)
        local = instant + offset
        if shift and gap_from < opens and local - 60 < opens:
            shifted = -(-opens // 60) * 60  # the first whole minute after the gap
            missed = _match(expr, gap_from, opens)
            if missed is not None and missed < opens and local <= shifted:
                return (shifted - offset) * 1000
        match = _match(expr, max(local, floor), limit + offset)
        if match is None or match - offset >= limit:
            return None
        if match < ceiling:
            return (match - offset) * 1000
        # Nothing matches before `match`: only clock changes near this instant and near that one can matter.
        instant = end if end < instant + _CLOCK_CHANGE else max(end, match - offset - _CLOCK_CHANGE)
    return None


def _match(expr: CronExpression, local: int, limit: int) -> int | None:
    """Returns the first matching local second from `local` on; None if its day is after `limit`."""
    day, second = divmod(local, _DAY)
    found = day if expr.every_day else _matching_day(expr, day, limit)
    if found is None:
        return None
    if found == day:
        within = _matching_second(expr, second)
        if within >= 0:
            return day * _DAY + within
        found = day + 1 if expr.every_day else _matching_day(expr, day + 1, limit)
        if found is None:
            return None
    return found * _DAY + expr.first_in_day


def _matching_second(expr: CronExpression, second: int) -> int:
    """Returns the first matching second of the day from `second` on; -1 if there is none."""
    hour, rest = divmod(second, 3600)
    minute, rest = divmod(rest, 60)
    if expr.hours >> hour & 1:
        if expr.minutes >> minute & 1 and (later := expr.seconds >> rest):
            return second + lowest(later)
        if later := expr.minutes >> minute + 1:
            return hour * 3600 + (minute + 1 + lowest(later)) * 60 + lowest(expr.seconds)
    if later := expr.hours >> hour + 1:
        return (hour + 1 + lowest(later)) * 3600 + expr.first_in_hour
    return -1


def _matching_day(expr: CronExpression, day: int, limit: int) -> int | None:
    """Returns the first matching day (counted from 1970) from `day` on. It takes one step a month."""
    start = date.fromordinal(day + _EPOCH)
    year, month, today = start.year, start.month, start.day
    first = (start.weekday() + 2 - today) % 7  # of day 1, with Sunday as 0
    while day * _DAY <= limit:
        length = month_length(year, month)
        if expr.months >> month & 1:
            later = days_of_month(expr.days, first, length) >> today
            if later:
                return day + lowest(later)
        day += length + 1 - today
        first = (first + length) % 7
        today = 1
        month += 1
        if month > 12:
            year, month = year + 1, 1
    return None
