"""Schedules: user input becomes due instants, or an error that names the field."""

from __future__ import annotations

import pytest

from duetime.domain.errors import InvalidSchedule
from duetime.domain.instants import DAY, HOUR, LATEST, MINUTE, SECOND, format_instant, parse_instant
from duetime.domain.job import Dst, JobSpec
from duetime.domain.schedule import Cron, Every, Once, Timetable, first_due, jitter_of, parse_schedule, timetable
from samples import NOW, new_id, spec

JOB = new_id()


def at(text: str) -> int:
    return parse_instant(text)


def parse(text: str, timezone: str = "UTC") -> Once | Every | Cron:
    return parse_schedule(text, timezone=timezone, dst=Dst(), seed=JOB, anchor=NOW)


def instants(job: JobSpec, count: int, after: int = NOW, created_at: int = NOW) -> list[str]:
    table, found = timetable(job, JOB, created_at), []
    while len(found) < count and (due := table.next_after(after)) is not None:
        found.append(format_instant(due))
        after = due
    return found


def refusal(job: JobSpec, now: int = NOW) -> tuple[str, str]:
    with pytest.raises(InvalidSchedule) as refused:
        first_due(job, JOB, now)
    (error,) = refused.value.errors
    return error.pointer, error.message


# Once


@pytest.mark.parametrize("text", ["immediate", "IMMEDIATE", " immediate "])
def test_immediate_is_due_now_and_never_again(text: str):
    assert first_due(spec(text), JOB, NOW) == (NOW, False)
    assert timetable(spec(text), JOB, NOW).next_after(NOW) is None


def test_an_instant_with_an_offset_is_due_at_that_instant():
    assert first_due(spec("2026-03-01T12:00:00+02:00"), JOB, NOW) == (at("2026-03-01T10:00:00Z"), False)


def test_an_instant_without_an_offset_is_read_in_the_jobs_zone():
    assert parse("2026-07-01T12:00:00", "America/New_York") == Once(at("2026-07-01T16:00:00Z"))


def test_an_instant_a_little_in_the_past_still_runs():
    due_at, _ = first_due(spec(format_instant(NOW - MINUTE)), JOB, NOW)
    assert due_at == NOW - MINUTE


def test_an_instant_further_in_the_past_is_refused():
    pointer, message = refusal(spec(format_instant(NOW - MINUTE - 1)))
    assert pointer == "/schedule"
    assert "has passed; use 'immediate' to run now" in message


def test_the_year_9999_is_refused():
    assert refusal(spec("9999-12-31T23:59:59Z")) == (
        "/schedule",
        "'9999-12-31T23:59:59Z' is out of range; instants lie between the years 1970 and 9000",
    )


def test_the_last_second_before_9000_is_accepted():
    assert first_due(spec("8999-12-31T23:59:59Z"), JOB, NOW) == (LATEST - SECOND, False)


def test_a_one_off_outside_its_bounds_is_refused():
    assert refusal(spec("2026-03-01T00:00:00Z", end_at="2026-02-01T00:00:00Z"))[0] == "/end_at"
    assert refusal(spec("2026-03-01T00:00:00Z", start_at="2026-04-01T00:00:00Z"))[0] == "/schedule"


def test_immediate_with_a_start_is_due_at_the_start():
    assert first_due(spec("immediate", start_at="2026-02-01T00:00:00Z"), JOB, NOW)[0] == at("2026-02-01T00:00:00Z")


def test_a_one_off_is_shifted_by_its_jitter():
    job = spec("2026-03-01T00:00:00Z", jitter_seconds=600)
    due_at, _ = first_due(job, JOB, NOW)
    assert due_at == at("2026-03-01T00:00:00Z") + jitter_of(JOB, 600)
    assert timetable(job, JOB, NOW).next_after(due_at - 1) == due_at
    assert timetable(job, JOB, NOW).next_after(due_at) is None


# Every


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("every 1s", SECOND), ("every 90 seconds", 90 * SECOND), ("every 5m", 5 * MINUTE), ("Every 2 Hours", 2 * HOUR),
        ("every 1d", DAY), ("every 3w", 21 * DAY), ("every   10min", 10 * MINUTE), ("every 3660 days", 3660 * DAY),
    ],
)  # fmt: skip
def test_every_counts_from_its_anchor(text: str, period: int):
    assert parse(text) == Every(period, NOW)
    assert Every(period, NOW).next_after(NOW) == NOW + period
    assert Every(period, NOW).next_after(NOW + period - 1) == NOW + period
    assert Every(period, NOW).next_after(NOW + period) == NOW + 2 * period


def test_every_keeps_its_grid_at_any_time_of_the_search():
    assert Every(7 * SECOND, NOW).next_after(NOW + 1_000_003) == NOW + 143 * 7 * SECOND


def test_every_begins_a_period_after_its_start():
    job = spec("every 1h", start_at="2026-01-02T00:30:00Z")
    assert instants(job, 2) == ["2026-01-02T01:30:00.000Z", "2026-01-02T02:30:00.000Z"]


@pytest.mark.parametrize(
    "text", ["every", "every 5", "every five minutes", "every 5 fortnights", "every -5m", "every 1.5h"]
)
def test_an_invalid_every_is_refused_with_examples(text: str):
    pointer, message = refusal(spec(text))
    assert pointer == "/schedule"
    assert "'every 5m'" in message


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("now", "to run once, now, write 'immediate'"),
        ("5m", "did you mean 'every 5m'?"),
        ("tomorrow", "write 'immediate', an instant"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_possible_forms(text: str, advice: str):
    with pytest.raises(InvalidSchedule) as refused:
        parse(text)
    assert f"'{text}' is no schedule; {advice}" in str(refused.value)


@pytest.mark.parametrize("text", ["every 0s", "every 3661 days", "every 999999999 weeks"])
def test_an_every_out_of_range_is_refused(text: str):
    pointer, message = refusal(spec(text))
    assert pointer == "/schedule"
    assert "the shortest is 'every 1s', the longest ten years" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [("every 1s", "every second"), ("every 60s", "every minute"), ("every 90s", "every 90 seconds"),
     ("every 36h", "every 36 hours"), ("every 14d", "every 2 weeks")],
)  # fmt: skip
def test_every_is_described_in_its_largest_whole_unit(text: str, words: str):
    assert parse(text).describe() == words


# Cron


def test_cron_is_read_in_the_jobs_zone():
    job = spec("0 9 * * *", timezone="America/New_York")
    assert instants(job, 2) == ["2026-01-01T14:00:00.000Z", "2026-01-02T14:00:00.000Z"]
    assert instants(job, 1, at("2026-07-01T00:00:00Z")) == ["2026-07-01T13:00:00.000Z"]


def test_cron_follows_the_jobs_dst_choice():
    after = at("2026-03-08T00:00:00Z")
    shift = spec("30 2 * * *", timezone="America/New_York")
    skip = spec("30 2 * * *", timezone="America/New_York", dst=Dst(gap="skip"))
    assert instants(shift, 1, after) == ["2026-03-08T07:00:00.000Z"]
    assert instants(skip, 1, after) == ["2026-03-09T06:30:00.000Z"]


def test_h_depends_on_the_job_and_stays():
    first = {first_due(spec("H H * * *"), new_id(), NOW)[0] for _ in range(50)}
    assert len(first) > 25
    assert instants(spec("H H * * *"), 3) == instants(spec("H H * * *"), 3)


@pytest.mark.parametrize("text", ["* * * *", "61 * * * *", "nonsense", "@often", "0 0 31 2 *"])
def test_a_cron_that_never_fires_is_refused_at_the_schedule(text: str):
    assert refusal(spec(text))[0] == "/schedule"


@pytest.mark.parametrize("text", ["immediate", "every 5m", "0 9 * * *", "2026-03-01T00:00:00"])
def test_an_unknown_zone_is_refused_at_the_zone_with_any_schedule(text: str):
    assert refusal(spec(text, timezone="Europe/Berlim"))[0] == "/timezone"


# Bounds and jitter


def test_nothing_is_due_before_its_start_or_after_its_end():
    job = spec("0 * * * *", start_at="2026-01-01T05:00:00Z", end_at="2026-01-01T07:00:00Z")
    assert instants(job, 9) == ["2026-01-01T05:00:00.000Z", "2026-01-01T06:00:00.000Z", "2026-01-01T07:00:00.000Z"]


def test_bounds_without_an_offset_are_read_in_the_jobs_zone():
    job = spec("0 * * * *", timezone="Asia/Tokyo", start_at="2026-01-02T09:00:00", end_at="2026-01-02T10:00:00")
    assert instants(job, 9) == ["2026-01-02T00:00:00.000Z", "2026-01-02T01:00:00.000Z"]


@pytest.mark.parametrize("field", ["start_at", "end_at"])
@pytest.mark.parametrize("text", ["tomorrow", "2026-01-02", "9999-01-01T00:00:00Z"])
def test_an_invalid_bound_is_refused_at_its_field(field: str, text: str):
    assert refusal(spec("0 * * * *", **{field: text}))[0] == f"/{field}"


def test_an_end_that_has_passed_is_refused():
    pointer, message = refusal(spec("0 * * * *", end_at=format_instant(NOW - 1)))
    assert pointer == "/end_at"
    assert "no run falls between start_at and end_at" in message


def test_jitter_moves_the_whole_timetable_by_one_offset():
    offset = jitter_of(JOB, 300)
    assert offset > 0
    table = timetable(spec("0 * * * *", jitter_seconds=300), JOB, NOW)
    due, found = NOW, []
    for _ in range(5):
        due = table.next_after(due) or 0
        found.append(due)
    # At 00:00 sharp the shifted run of this hour is still due.
    assert found == [NOW + n * HOUR + offset for n in range(5)]


def test_a_run_within_the_bounds_is_not_lost_to_its_jitter():
    job = spec("0 * * * *", end_at="2026-01-01T01:00:00Z", jitter_seconds=300)
    table = timetable(job, JOB, NOW)
    assert table.next_after(NOW + 30 * MINUTE) == NOW + HOUR + jitter_of(JOB, 300)
    assert table.next_after(NOW + HOUR + jitter_of(JOB, 300)) is None


def test_next_is_always_strictly_later():
    for text in ("every 7s", "*/5 * * * * *", "@hourly", "30 1 * * *"):
        table = timetable(spec(text, timezone="Europe/Berlin", jitter_seconds=13), JOB, NOW)
        after = at("2026-10-24T22:00:00Z")
        for _ in range(200):
            due = table.next_after(after)
            assert due is not None
            assert due > after
            after = due


def test_nothing_is_due_in_the_year_9000():
    assert Timetable(Every(DAY, NOW)).next_after(LATEST) is None
    assert timetable(spec("@yearly"), JOB, NOW).next_after(LATEST - DAY) is None


def test_a_schedule_describes_itself():
    assert parse("2026-03-01T00:00:00Z").describe() == "once, at 2026-03-01T00:00:00.000Z"
    assert "09:00" in parse("0 9 * * *").describe()
