"""Time zones as spans of constant offset. Owns the safe look-up of a zone by name and where its clocks
change.

`zoneinfo` answers "which offset at this instant" but not "until when". So the answer is worked out for half
a year at a time, by asking once a day and halving the day in which the offset changed, and kept.
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
    ceiling: int  # ... up to here run in this span, under the overlap policy


def load_zone(key: str) -> ZoneInfo:
    """The zone of that exact name. Raises InvalidSchedule with the nearest known one; never opens a path."""
    if not is_zone(key):
        raise _unknown(key)
    return _load(key)


def is_zone(key: str) -> bool:
    """Whether there is a zone of that exact name."""
    return key in _known()


def span_at(zone: ZoneInfo, instant: int, overlap: str) -> Span:
    """The span that holds `instant`. `overlap` says which of two passes of the same local time counts."""
    for span in _spans(zone, instant >> _CHUNK_BITS, overlap):
        if instant < span.end:
            return span
    raise AssertionError("the spans of a chunk cover it")


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=1)
def _spellings() -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Zones by their names in lower case, by their cities alone, and those spellings by each pair of letters."""
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
    # difflib over all names takes milliseconds, and a batch may ask for every line of it: so only over those that
    # share most pairs of letters with what is wanted.
    shared = Counter(chain.from_iterable(by_pair.get(pair, ()) for pair in _pairs(wanted)))
    close = [spelling for spelling, _ in shared.most_common(_COMPARED)]
    for choices in (names, cities):
        if found := get_close_matches(wanted, [spelling for spelling in close if spelling in choices], 1, cutoff=0.7):
            return choices[found[0]]
    return None


@lru_cache(maxsize=4096)
def _spans(zone: ZoneInfo, chunk: int, overlap: str) -> tuple[Span, ...]:
    """The spans that touch a chunk. Looked for a margin beyond both of its ends, so that a clock change near
    an end is seen from either side; a span that goes on past the margin is cut at the chunk's end, where
    nothing changes.
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
    """The instants after `low`, up to `high`, at which the offset differs from the second before."""
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
