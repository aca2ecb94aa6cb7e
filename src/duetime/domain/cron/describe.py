"""Describes an expression in plain English. It reads the parsed masks, never the text, so the description matches
what runs. Two expressions get the same description only if they match the same local times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .days import EVERY_DATE, EVERY_WEEKDAY, DayRule, bits
from .expression import EVERY_MONTH, CronExpression

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_COUNTS = ("first", "second", "third", "fourth", "fifth")
_EVERY_SIXTY = (1 << 60) - 1
_EVERY_HOUR = (1 << 24) - 1
_FEW = 6  # up to this number, clock times are listed one by one


def describe(expr: CronExpression) -> str:
    """Returns a text such as "at 09:00, Monday to Friday" or "every 5 minutes on the last day of the month"."""
    time = _time(expr)
    days = _days(expr.days)
    if not days and time.startswith("at ") and expr.hours != _EVERY_HOUR:
        days = " every day"
    return time + days + _months(expr.months)


def _time(expr: CronExpression) -> str:
    seconds, minutes, hours = expr.seconds, expr.minutes, expr.hours
    if times := _few_times(seconds, minutes, hours):
        return f"at {times}"
    if hours == _EVERY_HOUR:
        return _within_hour(seconds, minutes)
    if seconds == 1 and minutes == 1 and (step := _step(hours, 24)):
        return f"every {step} hours"
    if seconds == 1 and (run := _run(hours)):
        first, last = run
        if step := _step(minutes, 60):
            return f"{_every(step, 'minute')} from {first:02}:00 to {last:02}:{60 - step:02}"
        if minutes.bit_count() == 1:
            minute = minutes.bit_length() - 1
            return f"every hour from {first:02}:{minute:02} to {last:02}:{minute:02}"
    return f"{_within_hour(seconds, minutes, '')} of {_numbers('hour', hours)}"


def _few_times(seconds: int, minutes: int, hours: int) -> str:
    """Returns the clock times one by one, if there are only a few a day; else an empty text."""
    if seconds.bit_count() * minutes.bit_count() * hours.bit_count() > _FEW:
        return ""
    ending = [""] if seconds == 1 else [f":{second:02}" for second in bits(seconds)]
    return _and(
        [f"{hour:02}:{minute:02}{second}" for hour in bits(hours) for minute in bits(minutes) for second in ending]
    )


def _within_hour(seconds: int, minutes: int, tail: str = " of every hour") -> str:
    """Describes the times inside an hour. `tail` names the hours; it is left out if the text means every hour."""
    every_minute = minutes == _EVERY_SIXTY
    if seconds == 1:
        step = _step(minutes, 60)
        if tail and step:
            return _every(step, "minute")
        if tail and minutes == 1:
            return "every hour"
        return (_every(step, "minute") if step else f"at {_numbers('minute', minutes)}") + tail
    step = _step(seconds, 60)
    words = _every(step, "second") if step else f"at {_numbers('second', seconds)}"
    if every_minute:
        return words if step and tail else f"{words} of every minute"
    return f"{words} of {_numbers('minute', minutes)}{tail}"


def _days(rule: DayRule) -> str:
    dates, weekdays = _date_words(rule), _weekday_words(rule)
    if rule.both:
        if not dates:
            return _weekday_tail(rule, weekdays)
        if not weekdays:
            return f" {_or(dates)}"
        return f" {_or(dates)}, but only {_or(weekdays)}"
    if not dates or not weekdays:  # OR with every day is every day
        return ""
    return f" {_or([*dates, *weekdays])}"


def _weekday_tail(rule: DayRule, words: list[str]) -> str:
    if not words:
        return ""
    plain = not rule.nth and not rule.last and _weekday_run(rule.weekdays)
    return f", {plain}" if plain else f" {_or(words)}"


def _date_words(rule: DayRule) -> list[str]:
    """Returns the ways in which a date may match; none if every date matches."""
    if rule.dates == EVERY_DATE:
        return []
    words = [f"on {_numbers('day', rule.dates)} of the month"] if rule.dates else []
    for back in bits(rule.before_last):
        days = "" if back == 0 else f"{back} day{'s' if back > 1 else ''} before "
        words.append(f"{days or 'on '}the last day of the month")
    words += [f"on the weekday (Monday to Friday) nearest day {day} of the month" for day in bits(rule.nearest)]
    if rule.last_weekday:
        words.append("on the last weekday (Monday to Friday) of the month")
    return words


def _weekday_words(rule: DayRule) -> list[str]:
    """Returns the ways in which a weekday may match; none if every weekday matches."""
    if rule.weekdays == EVERY_WEEKDAY:
        return []
    words = []
    if rule.weekdays:
        run = _weekday_run(rule.weekdays)
        words.append(f"on {run or _and([_WEEKDAYS[day] for day in _from_monday(rule.weekdays)])}")
    words += [f"on the {_COUNTS[at // 7]} {_WEEKDAYS[at % 7]} of the month" for at in bits(rule.nth)]
    words += [f"on the last {_WEEKDAYS[day]} of the month" for day in bits(rule.last)]
    return words


def _weekday_run(mask: int) -> str:
    """Returns a text such as "Friday to Monday" for three or more days in a row, also over a Sunday; else ''."""
    count = mask.bit_count()
    if not 3 <= count <= 6:
        return ""
    for first in range(7):
        if all(mask >> (first + day) % 7 & 1 for day in range(count)):
            return f"{_WEEKDAYS[first]} to {_WEEKDAYS[(first + count - 1) % 7]}"
    return ""


def _from_monday(mask: int) -> list[int]:
    return sorted(bits(mask), key=lambda day: (day - 1) % 7)


def _months(mask: int) -> str:
    if mask == EVERY_MONTH:
        return ""
    return f", in {_runs(mask, _MONTHS.__getitem__)}"


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _numbers(unit: str, mask: int) -> str:
    return f"{unit}{'s' if mask.bit_count() > 1 else ''} {_runs(mask, str)}"


def _runs(mask: int, name: Callable[[int], str]) -> str:
    """Returns a text such as "1, 5 to 9 and 12": three or more in a row become a range."""
    words: list[str] = []
    values = list(bits(mask))
    while values:
        run = 1
        while run < len(values) and values[run] == values[0] + run:
            run += 1
        if run >= 3:
            words.append(f"{name(values[0])} to {name(values[run - 1])}")
        else:
            words += [name(value) for value in values[:run]]
        values = values[run:]
    return _and(words)


def _step(mask: int, size: int) -> int:
    """Returns the n of `*/n` if the field is exactly that and n divides it evenly; else 0."""
    step = (mask & ~1 & -(mask & ~1)).bit_length() - 1
    if step < 1 or size % step:
        return 0
    return step if mask == sum(1 << value for value in range(0, size, step)) else 0


def _run(mask: int) -> tuple[int, int] | None:
    values = list(bits(mask))
    return (values[0], values[-1]) if values[-1] - values[0] == len(values) - 1 else None


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _or(words: Sequence[str]) -> str:
    return " or ".join(words)
