from __future__ import annotations

import json
from typing import Any

import pytest


def test_the_next_instants_need_no_server(alone: Any) -> None:
    answer = alone.json(
        "cron", "next", "0 9 * * MON-FRI", "-z", "Europe/Berlin", "--after", "2027-03-26T12:00:00Z", "-n", "2"
    )
    assert answer["next"] == ["2027-03-29T07:00:00.000Z", "2027-03-30T07:00:00.000Z"]


def test_the_table_shows_the_local_time_beside_utc(alone: Any) -> None:
    shown = alone.ok("cron", "next", "0 9 * * *", "--timezone", "Asia/Tokyo", "--after", "2027-01-01T00:00:00Z")
    assert "2027-01-02T00:00:00.000Z" in shown
    assert "Sat 2027-01-02 09:00:00 +0900" in shown


def test_gap_and_overlap_decide_about_clock_changes(alone: Any) -> None:
    args = ("cron", "next", "30 2 * * *", "-z", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z", "-n", "1")
    assert alone.json(*args)["next"] == ["2027-03-28T01:00:00.000Z"]
    assert alone.json(*args, "--gap", "skip")["next"] == ["2027-03-29T00:30:00.000Z"]


def test_a_schedule_is_explained_with_its_surprises(alone: Any) -> None:
    explained = alone.ok("cron", "explain", "30 2 * * *", "--timezone", "Europe/Berlin")
    assert "at 02:30 every day (Europe/Berlin)" in explained
    assert "go forward" in explained
    assert alone.json("cron", "explain", "every 5m")["description"] == "every 5 minutes"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["61 * * * *"], 1, "the minute field has '61'"),
        (["0 0 30 2 *"], 1, "never fires"),
        (["0 0 * * *", "-z", "Europe/Berln"], 1, "--timezone: 'Europe/Berln' is not a time zone; did you mean"),
        (["0 0 * * *", "--after", "soon"], 2, "--after: 'soon' is not an instant"),
        (["0 0 * * *", "--count", "0"], 2, "--count"),
        ([], 2, "Missing argument"),
    ],
)
def test_an_invalid_argument_is_named(alone: Any, args: list[str], code: int, says: str) -> None:
    result = alone("cron", "next", *args)
    assert result.exit_code == code
    assert says in result.stderr
    assert result.stdout == ""


def test_stdout_holds_only_json(alone: Any) -> None:
    assert set(json.loads(alone.ok("cron", "explain", "@daily", "--json"))) == {"description", "next", "warnings"}
