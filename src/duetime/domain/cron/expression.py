"""Parses a cron expression into bit masks. Owns the form of the whole line; `fields.py` and `dayfields.py` parse the
fields.

Parsing is bounded (512 characters) and raises only InvalidSchedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from .dayfields import parse_days
from .days import EVERY_DATE, DayRule, ever_matches
from .fields import HOUR, MINUTE, MONTH, SECOND, parse_list, quoted, wrong

MAX_LENGTH = 512
EVERY_MONTH = (1 << 13) - 2

_ALIASES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_SHAPE = "minute hour day-of-month month day-of-week, with seconds in front if you need them"


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression. `text` is the expression as it was written; two texts may mean the same."""

    text: str
    seconds: int  # bits 0 to 59
    minutes: int  # bits 0 to 59
    hours: int  # bits 0 to 23
    months: int = field(hash=False)  # bits 1 to 12; text and H tell expressions apart well enough
    days: DayRule
    fixed: bool = field(hash=False)  # neither hour nor minute begins with a star: the DST policy applies
    every_day: bool = field(hash=False)  # each day of each month matches
    first_in_hour: int = field(hash=False)  # seconds from the hour to its first match
    first_in_day: int = field(hash=False)  # seconds from midnight to the first match


def parse(text: str, *, seed: str = "") -> CronExpression:
    """Returns the parsed expression. `seed` determines H. Raises InvalidSchedule, which names the field."""
    if len(text) > MAX_LENGTH:
        raise wrong(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are read.")
    # Only H uses the seed: all jobs with the same text and no H share one value.
    return _parse(text, seed if "H" in text.upper() else "")


@lru_cache(maxsize=4096)
def _parse(text: str, seed: str) -> CronExpression:
    line = text.strip()
    if not line.isascii() or not line.replace("\t", " ").isprintable():
        raise wrong(f"{quoted(line)} holds characters that no expression has; type it again in plain ASCII.")
    fields = _fields(line)
    second, minute, hour, dates, month, weekdays = fields if len(fields) == 6 else ["0", *fields]
    seconds = parse_list(SECOND, second, seed)
    minutes = parse_list(MINUTE, minute, seed)
    hours = parse_list(HOUR, hour, seed)
    days = parse_days(dates, weekdays, seed)
    months = parse_list(MONTH, month, seed)
    first_in_hour = lowest(minutes) * 60 + lowest(seconds)
    return CronExpression(
        line, seconds, minutes, hours, months, days, fixed=not minute.startswith("*") and not hour.startswith("*"),
        every_day=months == EVERY_MONTH and _each_day(days), first_in_hour=first_in_hour,
        first_in_day=lowest(hours) * 3600 + first_in_hour,
    )  # fmt: skip


def never_fires(expr: CronExpression) -> bool:
    """Returns whether no day of any year matches, such as February 30, whatever the time zone is."""
    return not expr.every_day and not ever_matches(expr.days, expr.months)


def check_fires(expr: CronExpression) -> None:
    """Raises InvalidSchedule for an expression that can never fire."""
    if never_fires(expr):
        raise wrong(
            f"{quoted(expr.text)} never fires: no month it names has such a day. Name another day or month, "
            "or use L for the last day of a month."
        )


def lowest(mask: int) -> int:
    """Returns the position of the lowest bit that is set."""
    return (mask & -mask).bit_length() - 1


def _each_day(days: DayRule) -> bool:
    all_dates, all_weekdays = days.dates == EVERY_DATE, days.weekdays == 0b1111111
    return (all_dates and all_weekdays) if days.both else (all_dates or all_weekdays)


def _fields(line: str) -> list[str]:
    fields = line.upper().split()
    if not fields:
        raise wrong(f"the expression is empty; write {_SHAPE}, such as 0 9 * * MON-FRI.")
    if fields[0].startswith("@"):
        return _alias(line, fields)
    if fields[0].startswith(("TZ=", "CRON_TZ=")):
        raise wrong('a zone does not belong in the expression; put it in the "timezone" field of the job.')
    if len(fields) == 7:
        raise wrong("the expression has 7 fields: Quartz's year field is not supported; leave it out and use end_at.")
    if len(fields) not in (5, 6):
        raise wrong(f"the expression has {len(fields)} of 5 or 6 fields; write {_SHAPE}.")
    return fields


def _alias(line: str, fields: list[str]) -> list[str]:
    if fields[0].startswith("@EVERY"):
        raise wrong('@every is not cron; for a fixed interval write the schedule as "every 5m".')
    if fields[0] == "@REBOOT":
        raise wrong('@reboot is refused: a job belongs to no machine that boots; use "immediate" to run it once.')
    if len(fields) > 1 or fields[0] not in _ALIASES:
        names = ", ".join(name.lower() for name in _ALIASES)
        raise wrong(f"{quoted(line)} is not known; an @name stands alone and is one of {names}.")
    return _ALIASES[fields[0]].split()
