"""An unknown zone: the error names the most similar zone, and compares only a few names."""

from __future__ import annotations

import pytest

from duetime.domain.cron import load_zone, zone
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
def test_for_an_unlike_name_the_error_names_the_list(typed: str) -> None:
    with pytest.raises(InvalidSchedule, match="IANA"):
        load_zone(typed)


def test_an_unknown_zone_is_compared_with_few_names_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may be full of them, and a comparison letter by letter with all names takes milliseconds."""
    compared: list[str] = []
    whole = zone.get_close_matches

    def counted(wanted: str, names: list[str], *rest: int, cutoff: float) -> list[str]:
        compared.extend(names)
        return whole(wanted, names, *rest, cutoff=cutoff)

    monkeypatch.setattr(zone, "get_close_matches", counted)
    for _ in range(2):
        with pytest.raises(InvalidSchedule):
            load_zone("America/North_Dakota/Center-of-it")
    assert 0 < len(compared) <= 24
