"""Our instants against a slow search that shares no code with the engine: it lists every local time of a few days,
finds the instants that show it with zoneinfo, and applies the policy by its definition.
"""

from __future__ import annotations

import calendar
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import TypeVar
from zoneinfo import ZoneInfo

from hypothesis import assume, given
from hypothesis import strategies as st

from duetime.domain.cron import describe, load_zone, never_fires, next_after, parse
from duetime.domain.cron.days import days_of_month
from duetime.domain.errors import InvalidSchedule
from duetime.domain.job import Dst
from property import cron_samples as samples
from property.examples import examples

MINUTE = timedelta(minutes=1)

Test = Callable[[date], bool]


def last_of(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


def is_work(day: date) -> bool:
    return day.weekday() < 5


def nearest(day: date, wanted: int) -> bool:
    """The closest working day to `wanted` within the month; of two, Friday for a Saturday and Monday for a Sunday."""
    if wanted > last_of(day).day:
        return False
    days = [day.replace(day=n) for n in range(1, last_of(day).day + 1)]
    work = [at for at in days if is_work(at)]
    return day == min(work, key=lambda at: abs(at.day - wanted))


@st.composite
def date_terms(draw: st.DrawFn) -> tuple[str, Test]:
    n = draw(st.integers(1, 31))
    back = draw(st.integers(1, 30))
    return draw(
        st.sampled_from(
            [
                ("L", lambda day: day == last_of(day)),
                ("LW", lambda day: day == max(work_days(day))),
                (f"L-{back}", lambda day: day == last_of(day) - timedelta(days=back)),
                (f"{n}W", lambda day: nearest(day, n)),
                (str(n), lambda day: day.day == n),
            ]
        )
    )


def work_days(day: date) -> list[date]:
    return [at for n in range(1, last_of(day).day + 1) if is_work(at := day.replace(day=n))]


@st.composite
def weekday_terms(draw: st.DrawFn) -> tuple[str, Test]:
    n, k = draw(st.integers(0, 7)), draw(st.integers(1, 5))
    last = draw(st.integers(0, 6))
    name = draw(st.sampled_from([str(n), (["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"])[n]]))

    def is_day(day: date) -> bool:
        return day.isoweekday() % 7 == n % 7

    def in_range(day: date) -> bool:
        return (day.isoweekday() - n) % 7 <= (last - n) % 7

    return draw(
        st.sampled_from(
            [
                (f"{name}L", lambda day: is_day(day) and (day + timedelta(days=7)).month != day.month),
                (f"{name}#{k}", lambda day: is_day(day) and (day.day + 6) // 7 == k),
                (name, is_day),
                (f"{name}-{last}", in_range),
            ]
        )
    )


def any_of(terms: list[tuple[str, Test]]) -> tuple[str, Test]:
    return ",".join(text for text, _ in terms), lambda day: any(test(day) for _, test in terms)


def days_after(text: str, day: date, count: int) -> list[date]:
    expr, found = parse(text), []
    after = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000 - 1
    while len(found) < count and (at := next_after(expr, "UTC", after)) is not None:
        found.append(datetime.fromtimestamp(at // 1000, UTC).date())
        after = at
    return found


@examples(60, 150)
@given(
    st.lists(date_terms(), min_size=1, max_size=2),
    st.lists(weekday_terms(), max_size=2),
    st.dates(date(1970, 1, 1), date(2100, 1, 1)),
)
def test_days_agree_with_a_walk_over_the_calendar(
    dates: list[tuple[str, Test]], weekdays: list[tuple[str, Test]], start: date
) -> None:
    date_text, date_test = any_of(dates)
    weekday_text, weekday_test = any_of(weekdays) if weekdays else ("*", lambda day: False)
    walk = (start + timedelta(days=n) for n in range(500))
    expected = [day for day in walk if date_test(day) or weekday_test(day)][:12]
    assert days_after(f"0 0 {date_text} * {weekday_text}", start, len(expected)) == expected


@examples(40, 120)
@given(weekday_terms(), st.sampled_from([2, 3, 7]), st.dates(date(1970, 1, 1), date(2100, 1, 1)))
def test_with_a_star_in_a_day_field_both_day_fields_must_match(
    weekday: tuple[str, Test], step: int, start: date
) -> None:
    text, test = weekday
    walk = (start + timedelta(days=n) for n in range(500))
    expected = [day for day in walk if (day.day - 1) % step == 0 and test(day)][:6]
    assert days_after(f"0 0 */{step} * {text}", start, len(expected)) == expected


@examples(60, 150)
@given(date_terms(), weekday_terms(), samples.months, st.booleans())
def test_refused_schedules_are_those_without_a_day_in_four_hundred_years(
    dates: tuple[str, Test], weekday: tuple[str, Test], month: str, starred: bool
) -> None:
    expr = parse(f"0 0 {'*/31' if starred else dates[0]} {month} {weekday[0] if starred else '*'}")
    shapes = {
        (month, date(year, month, 1).weekday(), calendar.monthrange(year, month)[1]): date(year, month, 1)
        for year in range(2000, 2400)
        for month in range(1, 13)
        if expr.months >> month & 1
    }
    days = (first.replace(day=n) for first in shapes.values() for n in range(1, last_of(first).day + 1))
    fires = any((day.day == 1 and weekday[1](day)) if starred else dates[1](day) for day in days)
    assert never_fires(expr) is not fires


def instants_showing(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """The instants at which the clock on the wall shows `local`: none in a gap, two in an overlap."""
    both = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone(zone).replace(tzinfo=None, fold=0) == local)


def due(local: datetime, zone: ZoneInfo, dst: Dst, fixed: bool) -> list[datetime]:
    found = instants_showing(local, zone)
    if not fixed:
        return found
    if not found and dst.gap == "shift":
        local = local.replace(second=0)
        while not found:
            local += MINUTE
            found = instants_showing(local, zone)[:1]
    if len(found) == 2:
        return {"first": found[:1], "last": found[1:], "both": found}[dst.overlap]
    return found


policies = st.builds(Dst, gap=st.sampled_from(["shift", "skip"]), overlap=st.sampled_from(["first", "last", "both"]))
hour_lists = st.lists(st.sampled_from([0, 1, 2, 3, 4, 22, 23]), min_size=1, max_size=4, unique=True)
minute_lists = st.lists(st.sampled_from([0, 1, 15, 29, 30, 31, 45, 59]), min_size=1, max_size=3, unique=True)
second_lists = st.none() | st.lists(st.integers(0, 59), min_size=1, max_size=2, unique=True)


@examples(150, 500)
@given(samples.zones, samples.years, hour_lists, minute_lists, second_lists, policies, st.booleans(), st.data())
def test_clock_changes_agree_with_a_walk_over_local_times(
    key: str,
    year: int,
    hours: list[int],
    minutes: list[int],
    seconds: list[int] | None,
    dst: Dst,
    fixed: bool,
    data: st.DataObject,
) -> None:
    changes = samples.clock_changes(key, year)
    assume(changes)
    zone, change = ZoneInfo(key), data.draw(st.sampled_from(changes))
    if data.draw(st.booleans()):  # the hour that is shown twice, and the one that is skipped
        before = datetime.fromtimestamp(change - 1, zone).hour
        hours = sorted({*hours, before, (before + 1) % 24})
    # A field that begins with a star is a wildcard, even in a list: a star is added where it changes no match.
    head = [] if seconds is None else [",".join(map(str, seconds))]
    minute_field = ",".join(map(str, minutes)) if fixed else "*/15"
    text = " ".join([*head, minute_field, ",".join(map(str, hours)), "* * *"])
    low, high = (datetime.fromtimestamp(change + shift, UTC) for shift in (-129_600, 129_600))
    first = low.astimezone(zone).date() - timedelta(days=2)
    walked = set()
    for day, hour, minute, second in product(range(7), hours, minutes if fixed else (0, 15, 30, 45), seconds or [0]):
        local = datetime(first.year, first.month, first.day, hour, minute, second) + timedelta(days=day)  # noqa: DTZ001  a time on the wall
        walked.update(due(local, zone, dst, fixed))
    expected = sorted(round(at.timestamp() * 1000) for at in walked if low < at < high)

    expr, found, after = parse(text), [], int(low.timestamp()) * 1000
    while (at := next_after(expr, key, after, dst)) is not None and at < high.timestamp() * 1000:
        assert at > after
        found.append(at)
        after = at
    assert found == expected


@examples(80, 300)
@given(samples.expressions(), samples.places_and_times(), policies)
def test_instants_ascend_and_do_not_depend_on_the_start_of_the_search(
    text: str, place: tuple[str, int], dst: Dst
) -> None:
    key, after = place
    expr = parse(text)
    first = next_after(expr, key, after, dst)
    if first is None:
        assert never_fires(expr)
        return
    second = next_after(expr, key, first, dst)
    assert after < first
    assert second is not None
    assert first < second
    assert next_after(expr, key, first - 1, dst) == first
    assert next_after(expr, key, (first + second) // 2, dst) == second


Answer = TypeVar("Answer")


def outcome(ask: Callable[[], Answer]) -> Answer | InvalidSchedule:
    """Returns the result, or the one error that is allowed. Any other error fails the test."""
    try:
        return ask()
    except InvalidSchedule as error:
        return error


cron_like = st.text("0123456789*/-,?LWH#@() JANMONFRISUNtz=\t", max_size=40) | st.lists(
    st.sampled_from(["*", "H", "L", "LW", "15W", "5#3", "1-5", "*/0", "", "9" * 50, "H(1-2)/3", "-", "/", ","]),
    min_size=4,
    max_size=7,
).map(" ".join)


@examples(200, 800)
@given(st.text() | cron_like, st.text(max_size=5))
def test_any_text_is_an_expression_or_an_invalid_schedule(text: str, seed: str) -> None:
    expr = outcome(lambda: parse(text, seed=seed))
    if isinstance(expr, InvalidSchedule):
        assert expr.errors[0].pointer == "/schedule"
        assert expr.message.isprintable()
        return
    assert parse(text, seed=seed) == expr
    assert describe(expr).isprintable()
    assert (next_after(expr, "UTC", 0) is None) == never_fires(expr)


@examples(30, 60)
@given(st.text())
def test_any_text_is_a_zone_or_an_invalid_schedule(key: str) -> None:
    zone = outcome(lambda: load_zone(key))
    if isinstance(zone, InvalidSchedule):
        assert zone.errors[0].pointer == "/timezone"
    else:
        assert zone.key == key


TIME_FIELDS = [
    "*",
    "0",
    "5",
    "*/5",
    "*/7",
    "0-22/2",
    "1,2,3",
    "1-3,9",
    "0,12",
    "9-17",
    "*/20",
    "3/8",
    "0,5,10",
    "23",
    "*/6",
]
DATE_FIELDS = ["*", "?", "1", "1-31", "*/2", "L", "LW", "15W", "L-1", "1W,L-3", "1,LW", "1,15", "1-7", "L,L-1"]
MONTH_FIELDS = ["*", "1", "*/3", "1-6", "JAN,MAR", "1-12", "2"]
WEEKDAY_FIELDS = [
    "*",
    "?",
    "0-6",
    "MON",
    "1-5",
    "FRI-MON",
    "5L",
    "5#3",
    "1#1,3",
    "6,0",
    "*/2",
    "2,4",
    "0L,1L",
    "SUN-SAT",
]


def test_schedules_with_the_same_description_have_the_same_instants() -> None:
    by_words: dict[str, tuple[object, ...]] = {}
    rng = random.Random(7)
    sixty = [*TIME_FIELDS, "0,30", "45-59", "*/15"]
    fields = [sixty, sixty, TIME_FIELDS, DATE_FIELDS, MONTH_FIELDS, WEEKDAY_FIELDS]
    for at in range(1500):
        parts = [rng.choice(field) for field in fields]
        if at % 2:  # half of them without seconds, whose descriptions vary most
            parts[0] = "0"
        expr = parse(" ".join(parts))
        days = tuple(
            days_of_month(expr.days, first, length) if expr.months >> month & 1 else 0
            for month in range(1, 13)
            for length in {calendar.monthrange(year, month)[1] for year in (2023, 2024)}
            for first in range(7)
        )
        meaning = (expr.seconds, expr.minutes, expr.hours, days)
        assert by_words.setdefault(describe(expr), meaning) == meaning
    assert len(by_words) > 1200
