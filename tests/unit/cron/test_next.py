"""Examples of due instants of expressions: calendars, clock changes, and the number of steps of a search."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duetime.domain.cron import next_after, parse, search, zone
from duetime.domain.job import Dst


def instants(text: str, zone: str, after: str, count: int, dst: Dst | None = None) -> list[str]:
    """Returns the next instants as local times with their offsets; `after` is a local time or has an offset."""
    start = datetime.fromisoformat(after)
    at = round((start if start.tzinfo else start.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)
    found = []
    for _ in range(count):
        following = next_after(parse(text), zone, at, dst or Dst())
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).isoformat())
    return found


def dates(text: str, after: str, count: int) -> list[str]:
    return [at[:10] for at in instants(text, "UTC", after, count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 L * *", ["2024-01-31", "2024-02-29", "2024-03-31"]),
        ("0 0 LW * *", ["2024-01-31", "2024-02-29", "2024-03-29"]),
        ("0 0 L-3 * *", ["2024-01-28", "2024-02-26", "2024-03-28"]),
        ("0 0 15W * *", ["2024-01-15", "2024-02-15", "2024-03-15"]),
        ("0 0 1W * *", ["2024-02-01", "2024-03-01", "2024-04-01"]),
        ("0 0 1W 6 *", ["2024-06-03", "2025-06-02", "2026-06-01"]),
        ("0 0 30W 6 *", ["2024-06-28", "2025-06-30", "2026-06-30"]),
        ("0 0 31W * *", ["2024-01-31", "2024-03-29", "2024-05-31"]),
        ("0 0 * * FRIL", ["2024-01-26", "2024-02-23", "2024-03-29"]),
        ("0 0 * * 7L", ["2024-01-28", "2024-02-25", "2024-03-31"]),
        ("0 0 * * FRI#3", ["2024-01-19", "2024-02-16", "2024-03-15"]),
        ("0 0 * * FRI#5", ["2024-03-29", "2024-05-31", "2024-08-30"]),
        ("0 0 29 2 *", ["2024-02-29", "2028-02-29", "2032-02-29"]),
        ("0 0 * 2 MON#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("0 0 13 * FRI", ["2024-01-05", "2024-01-12", "2024-01-13"]),
        ("0 0 */13 * FRI", ["2024-03-01", "2024-06-14", "2024-09-27"]),
        ("0 0 13 * */5", ["2024-09-13", "2024-10-13", "2024-12-13"]),
        ("0 0 ? 3 MON", ["2024-03-04", "2024-03-11", "2024-03-18"]),
    ],
)
def test_matching_days_are_found(text: str, expected: list[str]) -> None:
    assert dates(text, "2024-01-01T12:00", 3) == expected


def test_next_is_strictly_later_to_the_millisecond() -> None:
    every_second = parse("* * * * * *")
    assert next_after(every_second, "UTC", 1_000) == 2_000
    assert next_after(every_second, "UTC", 999) == 1_000
    assert next_after(every_second, "UTC", 1_001) == 2_000
    assert next_after(every_second, "UTC", -1) == 0


NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"


@pytest.mark.parametrize("text", ["30 2 * * *", "0 30 2 * * *"])
def test_by_default_a_fixed_time_runs_once_on_either_day(text: str) -> None:
    assert instants(text, NEW_YORK, "2024-03-09T12:00", 2) == [
        "2024-03-10T03:00:00-04:00",
        "2024-03-11T02:30:00-04:00",
    ]
    assert instants(text.replace("2", "1", 1), NEW_YORK, "2024-11-02T12:00", 2) == [
        "2024-11-03T01:30:00-04:00",
        "2024-11-04T01:30:00-05:00",
    ]


def test_all_times_in_one_gap_make_one_run() -> None:
    assert instants("0,15,30 2,3 * * *", NEW_YORK, "2024-03-10T00:00", 3) == [
        "2024-03-10T03:00:00-04:00",
        "2024-03-10T03:15:00-04:00",
        "2024-03-10T03:30:00-04:00",
    ]


def test_gap_skip_leaves_the_day_out() -> None:
    assert instants("30 2 * * *", NEW_YORK, "2024-03-09T12:00", 1, Dst(gap="skip")) == ["2024-03-11T02:30:00-04:00"]


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("first", ["2024-10-27T02:10:00+02:00", "2024-10-27T02:50:00+02:00", "2024-10-28T02:10:00+01:00"]),
        ("last", ["2024-10-27T02:10:00+01:00", "2024-10-27T02:50:00+01:00", "2024-10-28T02:10:00+01:00"]),
        (
            "both",
            [
                "2024-10-27T02:10:00+02:00",
                "2024-10-27T02:50:00+02:00",
                "2024-10-27T02:10:00+01:00",
                "2024-10-27T02:50:00+01:00",
                "2024-10-28T02:10:00+01:00",
            ],
        ),
    ],
)
def test_the_overlap_choice_decides_which_pass_counts(overlap: str, expected: list[str]) -> None:
    dst = Dst(overlap=overlap)  # type: ignore[arg-type]
    assert instants("10,50 2 * * *", BERLIN, "2024-10-27T00:00", len(expected), dst) == expected


def test_a_search_from_the_second_pass_does_not_return_the_first() -> None:
    assert instants("50 2 * * *", BERLIN, "2024-10-27T02:10:00+01:00", 1) == ["2024-10-28T02:50:00+01:00"]


def test_the_second_pass_counts_though_the_next_match_after_it_is_a_year_away() -> None:
    assert instants("*/30 2 27 10 *", BERLIN, "2024-10-27T02:45:00+02:00", 3) == [
        "2024-10-27T02:00:00+01:00",
        "2024-10-27T02:30:00+01:00",
        "2025-10-27T02:00:00+01:00",
    ]


def test_an_overlap_is_seen_whole_where_the_search_cuts_time_into_chunks() -> None:
    # 87 * 2^24 s is in the second pass at Adelaide in 2016, 6 * 2^24 s in the first at Santiago in 1973.
    assert instants("55 2 * * *", "Australia/Adelaide", "2016-04-02T12:00", 2) == [
        "2016-04-03T02:55:00+10:30",
        "2016-04-04T02:55:00+09:30",
    ]
    assert instants("1 23 * * *", "America/Santiago", "1973-03-10T12:00", 1, Dst(overlap="last")) == [
        "1973-03-10T23:01:00-04:00"
    ]


@pytest.mark.parametrize("dst", [Dst(), Dst(gap="skip", overlap="last"), Dst(overlap="both")])
@pytest.mark.parametrize("day", ["2024-03-31T00:00", "2024-10-27T00:00"])
def test_every_five_minutes_is_every_five_real_minutes_under_any_policy(day: str, dst: Dst) -> None:
    found = [datetime.fromisoformat(at) for at in instants("*/5 * * * *", BERLIN, day, 70, dst)]
    assert {(b - a).total_seconds() for a, b in pairwise(found)} == {300}


def test_a_wildcard_minute_in_the_missing_hour_is_not_due() -> None:
    assert instants("*/30 2 * * *", BERLIN, "2024-03-30T12:00", 1) == ["2024-04-01T02:00:00+02:00"]


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T12:00", "2024-10-06T02:30:00+11:00"),
        ("30 1 * * *", "Antarctica/Troll", "2024-03-31T00:00", "2024-03-31T03:00:00+02:00"),
        ("0 3 * * *", "Pacific/Chatham", "2024-09-29T00:00", "2024-09-29T03:45:00+13:45"),
        ("0 0 * * *", "America/Santiago", "2024-09-07T12:00", "2024-09-08T01:00:00-03:00"),
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00", "2011-12-31T00:00:00+14:00"),
        ("30 2 * * *", "Africa/Casablanca", "2024-04-13T12:00", "2024-04-14T03:00:00+01:00"),
        ("30 22 * * *", "America/Nuuk", "2024-03-30T12:00", "2024-03-30T22:30:00-02:00"),
        ("30 0 * * *", "Africa/Monrovia", "1972-01-06T12:00", "1972-01-07T00:45:00+00:00"),
        ("0 0 * * *", "Europe/Amsterdam", "1936-01-01T12:00", "1936-01-02T00:00:00+00:20"),
    ],
)
def test_unusual_zones_are_supported(text: str, zone: str, after: str, expected: str) -> None:
    found = instants(text, zone, after, 1)[0]
    assert found[:19] == expected[:19]


def test_a_search_without_a_match_ends() -> None:
    year_9000 = int(datetime(9000, 1, 1, tzinfo=UTC).timestamp()) * 1000
    assert next_after(parse("0 0 30 2 *"), BERLIN, 0) is None
    assert next_after(parse("* * * * *"), BERLIN, year_9000) is None
    assert next_after(parse("* * * * *"), BERLIN, 10**30) is None
    assert next_after(parse("0 0 * * *"), "UTC", year_9000 - 1) is None
    assert next_after(parse("0 0 * * *"), "UTC", -(10**30)) is not None


@pytest.mark.parametrize("where", ["UTC", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "America/Nuuk"])
@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", "0 0 * 2 MON#5", "59 59 23 29 2 *", "* * * 29 2 *", "0 0 LW 2 *", "0 0 */29 2 SUN"]
)
def test_the_worst_search_takes_a_step_a_month(text: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Counter[str] = Counter()
    for module, name in ((search, "month_length"), (search, "span_at"), (zone, "_offset")):
        count_calls(monkeypatch, steps, module, name)
    expr = parse(text)
    for after in (0, 946_684_800_000, 4_000_000_000_000):
        steps.clear()
        next_after(expr, where, after)
        assert steps["month_length"] <= 51 * 12, "fifty years, and the months at their ends"
        assert steps["span_at"] <= 2
        assert steps["_offset"] <= 2 * 250, "once a day of the half year around, and halving where clocks change"


def count_calls(monkeypatch: pytest.MonkeyPatch, steps: Counter[str], module: ModuleType, name: str) -> None:
    whole = getattr(module, name)

    def counted(*arguments: Any) -> Any:
        steps[name] += 1
        return whole(*arguments)

    monkeypatch.setattr(module, name, counted)
