"""Valid expressions, and the errors for invalid ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from duetime.domain.cron import check_fires, load_zone, never_fires, parse
from duetime.domain.cron.days import bits
from duetime.domain.errors import InvalidSchedule


def values(mask: int) -> list[int]:
    return list(bits(mask))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("5", [5]),
        ("05", [5]),
        ("1,3,5", [1, 3, 5]),
        ("10-12", [10, 11, 12]),
        ("*/20", [0, 20, 40]),
        ("10-50/20", [10, 30, 50]),
        ("5/25", [5, 30, 55]),
        ("5-5/2", [5]),
        ("*/90", [0]),
    ],
)
def test_minutes_are_read(field: str, expected: list[int]) -> None:
    assert values(parse(f"{field} * * * *").minutes) == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("0", [0]),
        ("7", [0]),
        ("sun", [0]),
        ("MON-FRI", [1, 2, 3, 4, 5]),
        ("FRI-MON", [0, 1, 5, 6]),
        ("5-1", [0, 1, 5, 6]),
        ("5-7", [0, 5, 6]),
        ("7-2", [0, 1, 2]),
        ("SAT-SUN", [0, 6]),
        ("FRI-MON/2", [0, 5]),
        ("*/2", [0, 2, 4, 6]),
        ("1/2", [0, 1, 3, 5]),
        ("0-7", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_days_of_the_week_are_read_and_may_pass_sunday(field: str, expected: list[int]) -> None:
    assert values(parse(f"0 0 * * {field}").days.weekdays) == expected


def test_months_have_names() -> None:
    assert values(parse("0 0 1 jan,MAR-May *").months) == [1, 3, 4, 5]


def test_six_fields_begin_with_seconds_and_five_mean_second_zero() -> None:
    assert values(parse("*/30 * * * * *").seconds) == [0, 30]
    assert values(parse("* * * * *").seconds) == [0]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
    ],
)
def test_names_stand_for_expressions(name: str, same: str) -> None:
    a, b = parse(name), parse(same)
    assert (a.seconds, a.minutes, a.hours, a.months, a.days) == (b.seconds, b.minutes, b.hours, b.months, b.days)
    assert a.fixed == b.fixed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("* * * *", "has 4 of 5 or 6 fields"),
        ("0 0 12 * * ? 2030", "Quartz's year field is not supported"),
        ("* * * * * * * *", "has 8 of 5 or 6 fields"),
        ("@every 5m", 'write the schedule as "every 5m"'),
        ("@reboot", "belongs to no machine that boots"),
        ("@fortnightly", "one of @yearly"),
        ("@daily 5", "stands alone"),
        ("CRON_TZ=UTC 0 0 * * *", '"timezone" field'),
        ("60 * * * *", "minute field has '60': '60' is no value of it; use 0 to 59"),
        ("* 24 * * *", "hour field"),
        ("* * 0 * *", "day-of-month field"),
        ("* * 32 * *", "use 1 to 31"),
        ("* * * 13 *", "use 1 to 12 or JAN to DEC"),
        ("* * * * 8", "0 and 7 are Sunday"),
        ("* * * * MONDAY", "SUN to SAT"),
        ("*/0 * * * *", "step of 0"),
        ("*/ * * * *", "after the slash"),
        ("*/-5 * * * *", "after the slash"),
        ("1,,2 * * * *", "empty"),
        ("1, * * * *", "empty"),
        ("1-2-3 * * * *", "minute field has '1-2-3'"),
        ("-5 * * * *", "minute field has '-5'"),
        ("* 22-2 * * *", "write 22-23,0-2"),
        ("* * * NOV-FEB *", "write NOV-DEC,JAN-FEB"),
        ("30-10 * * * *", "runs backwards"),
        ("? * * * *", "minute field"),
        ("* * ?/2 * *", "? stands alone"),
        ("* * L/2 * *", "no step"),
        ("* * L-0 * *", "L-1 to L-30"),
        ("* * L-31 * *", "L-1 to L-30"),
        ("* * 1-5W * *", "15W"),
        ("* * 0W * *", "use 1 to 31"),
        ("* * 1#2 * *", "day-of-week"),
        ("* * * * L", "FRIL"),
        ("* * * * FRI#6", "1 to 5"),
        ("* * * * FRI#0", "1 to 5"),
        ("* * * * 1W", "MON-FRI"),
        ("* * * * 1-5L", "day-of-week"),
        ("H(5) * * * *", "H(0-29)"),
        ("H(0-60) * * * *", "use 0 to 59"),
        ("HH * * * *", "H is written"),
        ("H/0 * * * *", "step of 0"),
        ("٣ * * * *", "plain ASCII"),
        ("５ * * * *", "plain ASCII"),
        ("* * * *\n* *", "plain ASCII"),
        ("\x00 * * * *", "plain ASCII"),
        ("*" * 10_000, "10000 characters"),
        ("9" * 500 + " * * * *", "minute field"),
    ],
)
def test_an_error_names_the_mistake_and_has_advice(text: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        parse(text)
    assert says in raised.value.message
    assert raised.value.errors[0].pointer == "/schedule"


def test_h_is_stable_for_a_seed_and_differs_between_seeds_and_fields() -> None:
    assert parse("H H * * *", seed="a") == parse("H H * * *", seed="a")
    minutes = {parse("H * * * *", seed=str(n)).minutes for n in range(600)}
    assert len(minutes) == 60
    both = [parse("H H * * *", seed=str(n)) for n in range(240)]
    same = [expr for expr in both if expr.minutes == expr.hours]
    assert len(same) < 24


def test_h_means_the_same_with_and_without_a_seconds_field() -> None:
    five, six = parse("H H H * *", seed="x"), parse("0 H H H * *", seed="x")
    assert (five.minutes, five.hours, five.days) == (six.minutes, six.hours, six.days)


@pytest.mark.parametrize("seed", [f"job-{n}" for n in range(40)])
def test_h_stays_within_its_bounds(seed: str) -> None:
    quarter = values(parse("H/15 * * * *", seed=seed).minutes)
    assert len(quarter) == 4
    assert quarter[0] < 15
    assert {b - a for a, b in pairwise(quarter)} == {15}
    assert max(values(parse("H(0-29) * * * *", seed=seed).minutes)) <= 29
    thirds = values(parse("H(0-29)/10 * * * *", seed=seed).minutes)
    assert len(thirds) == 3
    assert thirds[0] < 10
    assert max(values(parse("0 0 H * *", seed=seed).days.dates)) <= 28
    assert len(values(parse("0 0 * * H", seed=seed).days.weekdays)) == 1


def test_a_seed_may_have_any_characters() -> None:
    assert parse("H * * * *", seed="\ud800\0ß").minutes.bit_count() == 1


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 2 ?",
        "0 0 30W 2 *",
        "0 0 L-30 4 *",
        "0 0 */31 2 MON#2",
        "0 0 */30 2 1#2",
    ],
)
def test_a_day_that_never_comes_is_refused(text: str) -> None:
    assert never_fires(parse(text))
    with pytest.raises(InvalidSchedule, match="never fires"):
        check_fires(parse(text))


@pytest.mark.parametrize(
    "text",
    ["0 0 29 2 *", "0 0 * 2 MON#5", "0 0 31 4,5 *", "0 0 30 2 MON", "* * * * *", "0 0 L-30 1 *", "0 0 */29 2 SUN"],
)
def test_a_rare_day_is_not_refused(text: str) -> None:
    check_fires(parse(text))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("../../etc/passwd", "is not a time zone"),
        ("/etc/localtime", "is not a time zone"),
        ("", "is not a time zone"),
        ("a\0b", "is not a time zone"),
        ("right/UTC", "is not a time zone"),
        ("x" * 100_000, "is not a time zone"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berlim", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
    ],
)
def test_a_zone_is_found_only_by_its_exact_name(key: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        load_zone(key)
    assert says in raised.value.message
    assert raised.value.errors[0].pointer == "/timezone"
