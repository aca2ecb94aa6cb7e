"""Time zones as spans of constant offset. Owns the safe lookup of a zone by name, and finds its clock changes.

`zoneinfo` returns the offset at an instant, but not how long it lasts. So the changes of half a year at a time are
searched, by a test of each day and by bisection of a day in which the offset changed. They are cached.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from duetime.domain.errors import InvalidRequest, InvalidSchedule

from .fields import quoted

_DAY = 86_400
_MARGIN = 3 * _DAY  # longer than any clock change, the lost or doubled days at the date line included
_COMPARED = 12  # names that an unknown one is compared with letter by letter
_CHUNK_BITS = 24  # 2^24 seconds are 194 days


class Span(NamedTuple):
    """A stretch of time with one offset. All but `end` and `offset` are local seconds since 1970."""

    end: int  # UTC seconds: the span's last second is the one before
    offset: int  # local minus UTC
    opens: int  # local time of its first second
    gap_from: int  # local times from here up to `opens` do not exist; equal to `opens` if none is missing
    floor: int  # local times from here ...
    ceiling: int  # ... up to here belong to this span, under the overlap policy


def load_zone(key: str) -> ZoneInfo:
    """Returns the zone of that exact name. Raises InvalidSchedule with the most similar name; opens no path."""
    if not is_zone(key):
        raise _unknown(key)
    return _load(key)


def is_zone(key: str) -> bool:
    """Returns whether there is a zone of that exact name."""
    return key in _known()


def span_at(zone: ZoneInfo, instant: int, overlap: str) -> Span:
    """Returns the span that contains `instant`. `overlap`: which of two passes of the same local time counts."""
    for span in _spans(zone, instant >> _CHUNK_BITS, overlap):
        if instant < span.end:
            return span
    raise AssertionError("the spans of a chunk cover it")


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=1)
def _spellings() -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Returns zones by lower-case name, zones by city, and those spellings by each pair of letters in them."""
    names = {name.lower(): name for name in sorted(_known())}
    cities = {lower.rpartition("/")[2]: name for lower, name in names.items()}
    by_pair: dict[str, set[str]] = {}
    for spelling in (*names, *cities):
        for pair in _pairs(spelling):
            by_pair.setdefault(pair, set()).add(spelling)
    return names, cities, by_pair


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)}


@lru_cache(maxsize=1024)
def _load(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise _unknown(key) from error


def _unknown(key: str) -> InvalidRequest:
    hint = "use a name from the IANA list, such as Europe/Berlin or UTC."
    if nearest := _nearest(key[:64].replace(" ", "_")):
        hint = f"did you mean {nearest}?"
    return InvalidSchedule.at("/timezone", f"{quoted(key)} is not a time zone; {hint}")


@lru_cache(maxsize=1024)
def _nearest(key: str) -> str | None:
    names, cities, by_pair = _spellings()
    wanted = key.lower()
    if wanted in names:
        return names[wanted]
    # difflib takes milliseconds for all names, and every line of a batch may need it. So it compares only the names
    # that share most pairs of letters with the wanted one.
    shared = Counter(chain.from_iterable(by_pair.get(pair, ()) for pair in _pairs(wanted)))
    close = [spelling for spelling, _ in shared.most_common(_COMPARED)]
    for choices in (names, cities):
        if found := get_close_matches(wanted, [spelling for spelling in close if spelling in choices], 1, cutoff=0.7):
            return choices[found[0]]
    return None


@lru_cache(maxsize=4096)
def _spans(zone: ZoneInfo, chunk: int, overlap: str) -> tuple[Span, ...]:
    """Returns the spans of a chunk. The search covers a margin beyond both ends, so that a clock change near an end is
    found from either side. A span that continues beyond the margin is cut at the chunk's end.
    """
    low, high = chunk << _CHUNK_BITS, (chunk + 1) << _CHUNK_BITS
    changes = _changes(zone, low - _MARGIN, high + _MARGIN)
    offsets = [_offset(zone, low - _MARGIN), *(_offset(zone, change) for change in changes)]
    starts = [low - _MARGIN, *changes]
    spans = []
    for at, (start, offset) in enumerate(zip(starts, offsets, strict=True)):
        before = offsets[at - 1] if at else offset
        after = offsets[at + 1] if at + 1 < len(offsets) else offset
        end = starts[at + 1] if at + 1 < len(starts) else high
        opens = start + offset
        floor = start + max(offset, before) if overlap == "first" else opens
        ceiling = end + min(offset, after) if overlap == "last" else end + offset
        spans.append(Span(end, offset, opens, min(opens, start + before), floor, ceiling))
    return tuple(spans)


def _changes(zone: ZoneInfo, low: int, high: int) -> list[int]:
    """Returns the instants after `low`, up to `high`, at which the offset differs from the second before."""
    changes = []
    before = _offset(zone, low)
    for right in range(low + _DAY, high + _DAY, _DAY):
        after = _offset(zone, right)
        if after != before:
            changes.append(_change(zone, right - _DAY, right))
        before = after
    return changes


def _change(zone: ZoneInfo, left: int, right: int) -> int:
    before = _offset(zone, left)
    while right - left > 1:
        middle = (left + right) // 2
        if _offset(zone, middle) == before:
            left = middle
        else:
            right = middle
    return right


def _offset(zone: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None  # a ZoneInfo always has one
    return offset.days * _DAY + offset.seconds
