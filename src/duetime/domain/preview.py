"""Previews of schedules: a description, the next instants, and warnings. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta, tzinfo
from typing import NamedTuple

from duetime.domain import cron
from duetime.domain.instants import DAY, LATEST, MINUTE, from_datetime, to_datetime
from duetime.domain.job import Dst
from duetime.domain.schedule import Cron, Once, OnDemand, Timetable, parse_schedule

NO_TIMES = "it has no times of its own: it runs on request, or when the jobs that it runs after have ended"


class SchedulePreview(NamedTuple):
    """`instants` are computed one by one: each takes a third of a millisecond if the schedule is rare."""

    description: str
    instants: Iterator[int]
    warnings: list[str]


def preview(text: str, timezone: str, dst: Dst, after: int, count: int) -> SchedulePreview:
    """Returns the preview. Raises InvalidSchedule, as the creation of a job does."""
    schedule = parse_schedule(text, timezone=timezone, dst=dst, seed="", anchor=after)
    if isinstance(schedule, Once):
        warnings = [f"{text.strip()} has passed: a job with this schedule is refused"] if schedule.at < after else []
        description = "once, now" if text.strip().lower() == "immediate" else schedule.describe()
        return SchedulePreview(description, iter(() if warnings else (schedule.at,)), warnings)
    if isinstance(schedule, OnDemand):
        return SchedulePreview(schedule.describe(), iter(()), [NO_TIMES])
    first = schedule.next_after(after)
    description = schedule.describe()
    warnings = []
    if isinstance(schedule, Cron):
        description += f" ({timezone})"
        warnings = _dst_warnings(schedule, after)
        if "H" in text.upper().split("@")[0] and any(part[:1].upper() == "H" for part in text.split()):
            warnings.append("H stands for a value from the job's id: each job has other instants than these")
    if first is None:
        warnings.append("it does not fire within the next decades")
    return SchedulePreview(description, coming(Timetable(schedule), first, count), warnings)


def coming(table: Timetable, first: int | None, count: int) -> Iterator[int]:
    """Yields `first` and the instants after it, up to `count` in all."""
    at = first
    for number in range(count):
        if number and at is not None:
            at = table.next_after(at)
        if at is None or at >= LATEST:
            return
        yield at


def _dst_warnings(schedule: Cron, after: int) -> list[str]:
    """Returns warnings about clock changes of the next year that affect this schedule."""
    zone = cron.load_zone(schedule.zone)
    warnings = []
    at, end = after, after + 366 * DAY
    while at < end:
        here = to_datetime(at).astimezone(zone).utcoffset()
        there = to_datetime(at + DAY).astimezone(zone).utcoffset()
        if here is not None and there is not None and here != there:
            kind = "forward" if there > here else "back"
            day = to_datetime(_change_at(zone, at, at + DAY)).astimezone(zone).date()
            if _is_touched(schedule, at, there - here):
                fate = f"gap: {schedule.dst.gap}" if kind == "forward" else f"overlap: {schedule.dst.overlap}"
                warnings.append(
                    f"around {day} clocks in {schedule.zone} go {kind}, and it is due in that hour ({fate})"
                )
        at += DAY
    return warnings


def _change_at(zone: tzinfo, begin: int, end: int) -> int:
    """Returns the first instant in (begin, end] with another offset than `begin`, up to a minute late."""
    before = to_datetime(begin).astimezone(zone).utcoffset()
    while end - begin > MINUTE:
        middle = (begin + end) // 2
        if to_datetime(middle).astimezone(zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return end


def _is_touched(schedule: Cron, at: int, change: timedelta) -> bool:
    """Returns whether the policy makes a difference on the day that begins at `at`."""
    flipped = Dst(gap="skip" if schedule.dst.gap == "shift" else "shift",
                  overlap="both" if schedule.dst.overlap != "both" else "first")  # fmt: skip
    other = Cron(schedule.expression, schedule.zone, flipped)
    end = from_datetime(to_datetime(at + DAY) + abs(change))
    return _between(schedule, at, end) != _between(other, at, end)


def _between(schedule: Cron, begin: int, end: int) -> list[int]:
    instants: list[int] = []
    at = schedule.next_after(begin)
    while at is not None and at <= end and len(instants) < 200:
        instants.append(at)
        at = schedule.next_after(at)
    return instants
