"""Instants: text at the edges, whole milliseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from duetime.domain.instants import DAY, LATEST, format_instant, from_datetime, parse_instant, to_datetime


def test_an_instant_is_written_as_utc_with_milliseconds():
    assert format_instant(0) == "1970-01-01T00:00:00.000Z"
    assert format_instant(1_767_225_600_007) == "2026-01-01T00:00:00.007Z"


@pytest.mark.parametrize("at", [0, 1, 999, 1_767_225_600_007, 253_402_300_799_999 // 1000, LATEST - 1])
def test_a_written_instant_is_read_back(at: int):
    assert parse_instant(format_instant(at)) == at


def test_a_datetime_is_rounded_down_to_the_millisecond():
    assert from_datetime(datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)) == 1
    assert from_datetime(datetime(1970, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))) == 0


def test_milliseconds_stay_exact_far_from_the_epoch():
    for at in range(LATEST - 1000, LATEST, 7):
        assert from_datetime(to_datetime(at)) == at


def test_a_time_without_an_offset_is_read_in_the_given_zone():
    berlin = ZoneInfo("Europe/Berlin")
    assert parse_instant("2026-07-01T12:00:00", berlin) == parse_instant("2026-07-01T10:00:00Z")
    assert parse_instant("2026-01-01T12:00:00", berlin) == parse_instant("2026-01-01T11:00:00Z")


def test_an_offset_in_the_text_takes_precedence_over_the_zone():
    assert parse_instant("2026-07-01T12:00:00+05:30", ZoneInfo("Europe/Berlin")) == parse_instant("2026-07-01T06:30Z")


@pytest.mark.parametrize("text", [" 2026-01-01T00:00:00Z ", "2026-01-01 00:00:00+00:00", "2026-01-01t00:00:00z"])
def test_surrounding_blanks_and_lower_case_are_accepted(text: str):
    assert parse_instant(text) == 1_767_225_600_000


@pytest.mark.parametrize("text", ["", "soon", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z"])
def test_an_invalid_instant_is_refused_with_an_example(text: str):
    with pytest.raises(ValueError, match="write it like 2026-11-18T09:00:00Z"):
        parse_instant(text)


def test_a_day_without_a_time_is_refused():
    with pytest.raises(ValueError, match="has no time of day"):
        parse_instant("2026-11-18")


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59Z", "9000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
     "9999-12-31T23:59:59-14:00"],
)  # fmt: skip
def test_an_instant_outside_1970_to_9000_is_refused(text: str):
    with pytest.raises(ValueError, match="between the years 1970 and 9000"):
        parse_instant(text)


def test_the_latest_instant_is_the_end_of_8999():
    assert parse_instant("8999-12-31T23:59:59.999Z") == LATEST - 1
    assert LATEST % DAY == 0


def test_a_long_text_is_not_repeated_whole():
    with pytest.raises(ValueError) as refused:
        parse_instant("x" * 10_000)
    assert len(str(refused.value)) < 200
