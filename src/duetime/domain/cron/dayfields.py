"""The two day fields, from text to a DayRule. Owns L, LW, L-3, 15W, 5L, 5#3, `?`, and their AND or OR."""

from __future__ import annotations

import re

from .days import EVERY_DATE, EVERY_WEEKDAY, DayRule
from .fields import DATE, WEEKDAY, number, parse_term, split_list

_BEFORE_LAST = re.compile(r"L-([0-9]{1,2})\Z")
_NEAREST = re.compile(r"([0-9]{1,4})W\Z")


def parse_days(dates: str, weekdays: str, seed: str) -> DayRule:
    """Returns the rule: a day matches either field, or both if one begins with a star, as in Debian's cron."""
    rule = DayRule(both=_starred(dates) or _starred(weekdays))
    return _parse_weekdays(weekdays, seed, _parse_dates(dates, seed, rule))


def _starred(text: str) -> bool:
    return text.startswith("*") or text == "?"


def _parse_dates(text: str, seed: str, rule: DayRule) -> DayRule:
    if text == "?":
        return rule._replace(dates=EVERY_DATE)
    dates, before_last, nearest, last_weekday = 0, 0, 0, False
    for term in split_list(DATE, text):
        if term == "L":
            before_last |= 1
        elif term in ("LW", "WL"):
            last_weekday = True
        elif match := _BEFORE_LAST.match(term):
            back = int(match[1])
            if not 1 <= back <= 30:
                raise DATE.wrong(term, "L-n counts from L-1 to L-30, in days before the last day.")
            before_last |= 1 << back
        elif match := _NEAREST.match(term):
            nearest |= 1 << number(DATE, match[1], term)
        elif "L" in term or "W" in term:
            problem = "write L (last day), LW (last weekday), L-3 (third before last) or 15W, with no step."
            raise DATE.wrong(term, problem)
        elif "?" in term or "#" in term:
            raise DATE.wrong(term, "? stands alone, and # belongs to the day-of-week field.")
        else:
            dates |= parse_term(DATE, term, seed)
    return rule._replace(dates=dates, before_last=before_last, nearest=nearest, last_weekday=last_weekday)


def _parse_weekdays(text: str, seed: str, rule: DayRule) -> DayRule:
    if text == "?":
        return rule._replace(weekdays=EVERY_WEEKDAY)
    weekdays, nth, last = 0, 0, 0
    for term in split_list(WEEKDAY, text):
        if term == "L":
            problem = "name the day, such as 5L or FRIL; the month's last day is L in day-of-month."
            raise WEEKDAY.wrong(term, problem)
        if "#" in term:
            nth |= _parse_nth(term)
        elif term.endswith("L"):
            last |= 1 << number(WEEKDAY, term[:-1], term) % 7
        elif "?" in term or "W" in term.replace("WED", ""):
            problem = "? stands alone, and W belongs to the day-of-month field; for weekdays write MON-FRI."
            raise WEEKDAY.wrong(term, problem)
        else:
            weekdays |= parse_term(WEEKDAY, term, seed)
    return rule._replace(weekdays=weekdays, nth=nth, last=last)


def _parse_nth(term: str) -> int:
    day, _, count = term.partition("#")
    if count not in ("1", "2", "3", "4", "5"):
        raise WEEKDAY.wrong(term, "after # comes 1 to 5, so that FRI#3 is the month's third Friday.")
    return 1 << 7 * (int(count) - 1) + number(WEEKDAY, day, term) % 7
