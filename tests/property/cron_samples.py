"""The inputs of the cron properties: expressions, zones, and instants around clock changes.

No engine code is used here: clock changes are found by a daily check with zoneinfo.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import strategies as st

ZONES = sorted(available_timezones())
ODD_ZONES = [
    "Africa/Casablanca",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
]
zones = st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES)
years = st.integers(1990, 2060)


@cache
def clock_changes(key: str, year: int) -> tuple[int, ...]:
    """The UTC seconds at which the zone's offset changes in that year, found from zoneinfo alone."""
    zone = ZoneInfo(key)
    low = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    high = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    found = []
    for day in range(low, high, 86_400):
        left, right = day, day + 86_400
        if _offset(zone, left) == _offset(zone, right):
            continue
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if _offset(zone, middle) == _offset(zone, left) else (left, middle)
        found.append(right)
    return tuple(found)


def _offset(zone: ZoneInfo, instant: int) -> timedelta | None:
    return datetime.fromtimestamp(instant, zone).utcoffset()


@st.composite
def places_and_times(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and an instant in ms: half of the time within two days of a clock change, if there is one."""
    key, year = draw(zones), draw(years)
    changes = clock_changes(key, year)
    if changes and draw(st.booleans()):
        seconds = draw(st.sampled_from(changes)) + draw(st.integers(-172_800, 7_200))
    else:
        seconds = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) + draw(st.integers(0, 31_536_000))
    return key, seconds * 1000 + draw(st.sampled_from([0, 1, 999]))


@st.composite
def numbers(draw: st.DrawFn, low: int, high: int, near: tuple[int, ...] = ()) -> str:
    """A field of plain numbers: stars, steps, ranges and lists."""
    value = st.integers(low, high)
    if near:
        value = st.sampled_from(near) | value

    def term() -> str:
        kind = draw(st.sampled_from(["one", "one", "range", "step", "from"]))
        step = draw(st.integers(1, high + 3))
        if kind == "one":
            return str(draw(value))
        if kind == "from":
            return f"{draw(value)}/{step}"
        first = draw(st.integers(low, high - 1))
        last = draw(st.integers(first + 1, high))
        return f"{first}-{last}" if kind == "range" else f"{first}-{last}/{step}"

    shape = draw(st.sampled_from(["*", "*", "*/n", "list", "list", "list"]))
    if shape == "*":
        return "*"
    if shape == "*/n":
        return f"*/{draw(st.integers(1, high + 3))}"
    return ",".join(term() for _ in range(draw(st.integers(1, 3))))


minutes = numbers(0, 59, (0, 1, 29, 30, 59))
hours = numbers(0, 23, (0, 1, 2, 3, 23))
months = st.just("*") | st.just("*") | numbers(1, 12) | st.sampled_from(["JAN", "mar-apr", "SEP-NOV", "2"])
seconds = numbers(0, 59)
dates = st.just("*") | numbers(1, 31) | st.sampled_from(["L", "LW", "1,L", "LW,15", "29", "31"])
weekdays = (
    st.just("*")
    | numbers(0, 7)
    | st.sampled_from(["MON-FRI", "sun", "5L", "0L,3", "7L", "1#1", "5#3,2", "SUN#5", "7#2", "SAT,SUN"])
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Five fields that cronsim supports."""
    return " ".join(draw(field) for field in (minutes, hours, dates, months, weekdays))
