"""A zone that nobody knows: the nearest name is offered, and soon."""

from __future__ import annotations

import time

import pytest

from duetime.domain.cron import load_zone
from duetime.domain.errors import InvalidSchedule


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("America/NewYork", "America/New_York"),
        ("Amerca/Los_Angelos", "America/Los_Angeles"),
        ("Asia/Kolkatta", "Asia/Kolkata"),
        ("Tokio", "Asia/Tokyo"),
        ("utc", "UTC"),
        ("Australia/Sidney", "Australia/Sydney"),
    ],
)
def test_the_nearest_name_is_offered(typed: str, meant: str) -> None:
    with pytest.raises(InvalidSchedule, match=f"did you mean {meant}\\?"):
        load_zone(typed)


@pytest.mark.parametrize("typed", ["x", "", "日本", "qqqqqq", "🕰" * 64])
def test_what_resembles_none_is_told_where_names_are(typed: str) -> None:
    with pytest.raises(InvalidSchedule, match="IANA"):
        load_zone(typed)


def test_a_batch_full_of_unknown_zones_does_not_take_minutes() -> None:
    began = time.perf_counter()
    for number in range(300):
        with pytest.raises(InvalidSchedule):
            load_zone(f"America/North_Dakota/Center{number}")
    assert (time.perf_counter() - began) / 300 < 0.0015
