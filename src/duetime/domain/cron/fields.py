"""Parses one field of an expression into bits. Owns the grammar of numbers, names, ranges, steps, lists and H;
`dayfields.py` has the letters of the day fields (L, W, #). Raises only InvalidSchedule.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from duetime.domain.errors import InvalidRequest, InvalidSchedule

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_NUMBER = re.compile(r"[0-9]{1,4}\Z")
_HASHED = re.compile(r"H(?:\(([^()]*)\))?\Z")


class Field(NamedTuple):
    """The values of one position. `hash_high` bounds a bare H: a date beyond 28 would skip February."""

    name: str
    low: int
    high: int
    hash_high: int
    names: dict[str, int]
    wraps: bool = False

    def wrong(self, text: str, problem: str) -> InvalidRequest:
        return wrong(f"the {self.name} field has {quoted(text)}: {problem}")


SECOND = Field("second", 0, 59, 59, {})
MINUTE = Field("minute", 0, 59, 59, {})
HOUR = Field("hour", 0, 23, 23, {})
DATE = Field("day-of-month", 1, 31, 28, {})
MONTH = Field("month", 1, 12, 12, {name: at for at, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY = Field("day-of-week", 0, 7, 6, {name: at for at, name in enumerate(DAY_NAMES)}, wraps=True)


def wrong(message: str) -> InvalidRequest:
    return InvalidSchedule.at("/schedule", message)


def quoted(text: str) -> str:
    """Returns the user's text, shortened and in ASCII, so that it is safe to print on a terminal."""
    return ascii(text if len(text) <= 40 else text[:37] + "...")


def parse_list(field: Field, text: str, seed: str) -> int:
    """Returns the bit mask of a field without letters of the day fields: a comma-separated list of terms."""
    mask = 0
    for term in split_list(field, text):
        mask |= parse_term(field, term, seed)
    return mask


def split_list(field: Field, text: str) -> list[str]:
    terms = text.split(",")
    if "" in terms:
        raise field.wrong(text, "an item of the list is empty; remove the extra comma.")
    return terms


def parse_term(field: Field, text: str, seed: str) -> int:
    """Parses `*`, `5`, `5-9`, `H` or `H(0-29)`, with or without `/step`. `5/15` runs from 5 to the end."""
    base, slash, step_text = text.partition("/")
    step = _step(field, text, step_text) if slash else 1
    if base == "*":
        low, high = field.low, field.high
    elif base.startswith("H"):
        return _hashed(field, text, base, step if slash else 0, seed)
    elif "-" in base:
        low, high = _bounds(field, text, base)
    else:
        low = number(field, base, text)
        high = field.high if slash else low
    return _mask(field, low, high, step)


def number(field: Field, text: str, term: str) -> int:
    """Returns a number or name as a value of the field. `term`: the text around it, for the message."""
    if text in field.names:
        return field.names[text]
    value = int(text) if _NUMBER.match(text) else -1
    if not field.low <= value <= field.high:
        raise field.wrong(term, f"{quoted(text)} is no value of it; use {_allowed(field)}.")
    return value


def _bounds(field: Field, text: str, base: str) -> tuple[int, int]:
    left, _, right = base.partition("-")
    low, high = number(field, left, text), number(field, right, text)
    if high >= low:
        return low, high
    if field.wraps:
        return low, high + 7
    first, last = ("JAN", "DEC") if left in field.names else (field.low, field.high)
    raise field.wrong(text, f"it runs backwards; write {left}-{last},{first}-{right} or swap its ends.")


def _step(field: Field, text: str, step_text: str) -> int:
    if not _NUMBER.match(step_text):
        raise field.wrong(text, "after the slash there must be a whole number such as */5.")
    step = int(step_text)
    if step == 0:
        raise field.wrong(text, "a step of 0 never moves on; use 1 or more.")
    return step


def _hashed(field: Field, text: str, base: str, step: int, seed: str) -> int:
    """Returns the mask of H: one value for each seed; of H/15: steps of 15 that begin at such a value."""
    match = _HASHED.match(base)
    if match is None:
        raise field.wrong(text, "H is written H, H/15, H(0-29) or H(0-29)/10.")
    low, high = field.low, field.hash_high
    if match[1] is not None:
        if "-" not in match[1]:
            raise field.wrong(text, "the brackets after H hold a range such as H(0-29).")
        low, high = _bounds(field, text, match[1])
    span = high - low + 1
    place = int.from_bytes(blake2b(f"{field.name}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest())
    if not step:
        return _mask(field, low + place % span, low + place % span, 1)
    return _mask(field, low + place % min(step, span), high, step)


def _mask(field: Field, low: int, high: int, step: int) -> int:
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << (value % 7 if field.wraps else value)
    return mask


def _allowed(field: Field) -> str:
    if field is WEEKDAY:
        return "0 to 7 (0 and 7 are Sunday) or SUN to SAT"
    numbers = f"{field.low} to {field.high}"
    return f"{numbers} or JAN to DEC" if field is MONTH else numbers
