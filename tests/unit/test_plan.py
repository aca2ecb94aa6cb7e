"""The plan of a due timer: every instant either runs or is in the ledger, and none is both."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.execution import Claim
from duetime.domain.ids import execution_id
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND, format_instant, parse_instant
from duetime.domain.job import CatchUp, JobSpec, Overlap
from duetime.domain.plan import (
    GRACE,
    MOST_COUNTED,
    DueTimer,
    FirePlan,
    NewExecution,
    Skipped,
    TimerMove,
    plan,
    plan_ahead,
    skipped_while_paused,
)
from duetime.domain.schedule import Timetable, first_due, jitter_of, timetable
from duetime.domain.states import Trigger
from samples import NOW, TENANT, URL, new_id, spec

JOB = new_id()
CHANCE = 0x0123_4567_89AB_CDEF_00


def timer_of(job: JobSpec, **fields: Any) -> DueTimer:
    due_at, recurs = first_due(job, JOB, NOW)
    values = {"due_at": due_at, "version": 1, "fired": 0, "recurs": recurs, "created_at": NOW} | fields
    return DueTimer(JOB, TENANT, values["due_at"], values["version"], values["fired"], values["recurs"],
                    values["created_at"], job)  # fmt: skip


def decide(job: JobSpec, now: int, **fields: Any) -> FirePlan:
    return plan([timer_of(job, **fields)], now, CHANCE)


def ran(page: FirePlan) -> list[int]:
    return [execution.scheduled_at for execution in page.executions]


def next_due(page: FirePlan) -> int | None:
    return page.moves[0].next_due_at


def all_of(job: JobSpec, first_at: int, until_at: int) -> list[int]:
    table, found = timetable(job, JOB, NOW), []
    at = table.next_after(first_at - 1)
    while at is not None and at < until_at:
        found.append(at)
        at = table.next_after(at)
    return found


# On time


def test_an_instant_on_time_runs_and_the_timer_moves_to_the_next():
    job = spec("every 1m", priority=7)
    due_at = NOW + MINUTE
    page = decide(job, due_at, version=3)
    run_id, endpoint = execution_id(due_at, CHANCE), endpoint_of_url(URL)
    assert page == FirePlan(
        CHANCE,
        [TimerMove(JOB, due_at, 3, due_at + MINUTE, 1)],
        [NewExecution(run_id, JOB, TENANT, due_at, Trigger.SCHEDULE, 7, endpoint, "skip")],
        [Claim(run_id, JOB, TENANT, due_at, Trigger.SCHEDULE, 7, endpoint, 1, 1, False, job)],
        [],
    )


def test_a_one_off_on_time_runs_and_has_no_next_instant():
    job = spec("2026-01-01T01:00:00Z")
    page = decide(job, NOW + HOUR)
    assert page.moves == [TimerMove(JOB, NOW + HOUR, 1, None, 1)]
    assert ran(page) == [NOW + HOUR]
    assert page.skips == []


@pytest.mark.parametrize("policy", ["all", "latest", "skip"])
@pytest.mark.parametrize("late", [0, 1, GRACE])
def test_an_instant_late_within_the_grace_runs_with_any_policy(policy: str, late: int):
    job = spec("every 1h", catch_up=CatchUp(policy=policy, window_seconds=0))  # type: ignore[arg-type]
    page = decide(job, NOW + HOUR + late)
    assert ran(page) == [NOW + HOUR]
    assert page.executions[0].trigger is Trigger.SCHEDULE
    assert page.skips == []
    assert next_due(page) == NOW + 2 * HOUR


@pytest.mark.parametrize("policy", ["all", "latest", "skip"])
def test_several_instants_late_within_the_grace_run_in_order(policy: str):
    job = spec("every 2s", catch_up=CatchUp(policy=policy))  # type: ignore[arg-type]
    page = decide(job, NOW + 2 * SECOND + GRACE)
    assert ran(page) == [NOW + n * 2 * SECOND for n in range(1, 7)]
    assert page.moves[0].executions == 6
    assert page.skips == []


@pytest.mark.parametrize(
    ("overlap", "if_open"),
    [
        (Overlap.ALLOW, "run"),
        (Overlap.SKIP, "skip"),
        (Overlap.QUEUE_ONE, "hold_one"),
        (Overlap.QUEUE_ALL, "hold"),
        (Overlap.CANCEL_RUNNING, "cancel"),
    ],
)
def test_instants_of_a_job_in_one_page_have_its_policy_and_are_decided_together(overlap: Overlap, if_open: str):
    page = decide(spec("every 1s", overlap=overlap), NOW + 3 * SECOND)
    assert [(execution.if_open, execution.has_siblings) for execution in page.executions] == [(if_open, True)] * 3
    (alone,) = decide(spec("every 1s", overlap=overlap), NOW + SECOND).executions
    assert (alone.if_open, alone.has_siblings) == (if_open, False)


def test_each_timer_of_a_page_is_decided_separately():
    once, often = spec("2026-01-01T00:01:00Z"), spec("every 5s")
    page = plan([timer_of(once), timer_of(often, due_at=NOW + 55 * SECOND)], NOW + MINUTE, CHANCE)
    assert [move.executions for move in page.moves] == [1, 2]
    assert [claim.spec for claim in page.claims] == [once, often, often]
    assert len(page.executions) == 3


# Missed


def missed(job: JobSpec, hours: float) -> FirePlan:
    """Returns the plan if the node was away for this long after the first instant of an hourly job."""
    return decide(job, NOW + HOUR + int(hours * HOUR))


def hourly(policy: str, window_hours: int, max_runs: int = 100) -> JobSpec:
    return spec("0 * * * *", catch_up=CatchUp(policy, window_hours * 3600, max_runs))  # type: ignore[arg-type]


def test_the_policy_latest_runs_the_last_missed_instant_and_records_the_others():
    page = missed(hourly("latest", 24), 5.5)
    assert ran(page) == [NOW + 6 * HOUR]
    assert page.executions[0].trigger is Trigger.CATCH_UP
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + 6 * HOUR, 5, "missed")]
    assert next_due(page) == NOW + 7 * HOUR


def test_the_policy_latest_runs_none_if_the_last_missed_instant_is_older_than_the_window():
    page = missed(hourly("latest", 0), 5.5)
    assert ran(page) == []
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + HOUR + int(5.5 * HOUR) + 1, 6, "missed")]


def test_the_policy_all_runs_every_instant_in_the_window_oldest_first():
    page = missed(hourly("all", 3), 5.5)
    assert ran(page) == [NOW + n * HOUR for n in (4, 5, 6)]
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + 4 * HOUR, 3, "missed")]


def test_the_policy_all_runs_the_latest_instants_up_to_its_limit():
    page = missed(hourly("all", 1000, max_runs=2), 5.5)
    assert ran(page) == [NOW + 5 * HOUR, NOW + 6 * HOUR]
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + 5 * HOUR, 4, "missed")]


def test_the_policy_skip_runs_no_missed_instant():
    page = missed(hourly("skip", 1000), 5.5)
    assert ran(page) == []
    assert page.moves[0].executions == 0
    assert page.skips[0].count == 6


@pytest.mark.parametrize("policy", ["all", "latest", "skip"])
def test_an_instant_on_time_runs_even_if_others_before_it_were_missed(policy: str):
    page = missed(hourly(policy, 0), 5)
    assert ran(page) == [NOW + 6 * HOUR]
    assert page.executions[0].trigger is Trigger.SCHEDULE
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + 6 * HOUR, 5, "missed")]


def test_a_window_includes_the_instant_at_its_edge():
    assert ran(missed(hourly("all", 2), 5))[0] == NOW + 4 * HOUR


@pytest.mark.parametrize("schedule", ["every 7m", "*/7 * * * *", "13 * * * *", "0 9 * * *"])
@pytest.mark.parametrize("policy", ["all", "latest", "skip"])
@pytest.mark.parametrize("away", [GRACE + 1, HOUR, 26 * HOUR, 40 * DAY])
def test_every_instant_either_runs_or_is_counted_in_the_ledger(schedule: str, policy: str, away: int):
    job = spec(schedule, catch_up=CatchUp(policy, 7200, 20), jitter_seconds=30)  # type: ignore[arg-type]
    due_at, _ = first_due(job, JOB, NOW)
    now = due_at + away
    page = decide(job, now)
    passed = all_of(job, due_at, now + 1)
    kept = ran(page)
    counted = sum(skip.count or 0 for skip in page.skips)
    if len(passed) <= MOST_COUNTED:
        assert counted + len(kept) == len(passed)
    assert kept == passed[len(passed) - len(kept) :]
    assert next_due(page) == timetable(job, JOB, NOW).next_after(now)


def test_a_span_that_is_too_long_to_count_is_in_the_ledger_without_a_count():
    page = decide(spec("* * * * * *", catch_up=CatchUp("skip")), NOW + SECOND + MOST_COUNTED * SECOND + 30 * SECOND)
    (span,) = page.skips
    assert (span.count, span.reason) == (None, "missed")


def test_a_span_of_every_is_counted_exactly_at_any_length():
    now = NOW + SECOND + 365 * DAY
    (span,) = decide(spec("every 1s", catch_up=CatchUp("latest", 0)), now).skips
    assert span.count == 365 * 86_400 - 10


@pytest.mark.parametrize("schedule", ["every 1h", "0 * * * *"])
def test_instants_after_the_end_are_not_missed(schedule: str):
    job = spec(schedule, end_at="2026-01-01T03:00:00Z", catch_up=CatchUp("skip"))
    page = decide(job, NOW + 20 * HOUR)
    assert sum(skip.count or 0 for skip in page.skips) == 3
    assert next_due(page) is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The instants for which a timetable was searched: each is one step."""
    asked: list[int] = []
    whole = Timetable.next_after
    monkeypatch.setattr(Timetable, "next_after", lambda table, after: asked.append(after) or whole(table, after))
    return asked


@pytest.mark.parametrize("policy", ["all", "latest", "skip"])
@pytest.mark.parametrize("schedule", ["* * * * * *", "every 1s"])
def test_a_year_of_seconds_is_decided_in_few_steps(policy: str, schedule: str, asked: list[int]):
    job = spec(schedule, catch_up=CatchUp(policy, 31_536_000, 1000))  # type: ignore[arg-type]
    page = decide(job, NOW + 365 * DAY)
    assert len(asked) < MOST_COUNTED + 4 * 3600 + 100, "what may be counted, and an hour looked back"
    assert len(page.executions) == {"all": 1000, "latest": 11, "skip": 11}[policy]


def test_a_page_of_jobs_that_share_a_timetable_is_counted_once(asked: list[int]):
    job = spec("* * * * *")
    timers = [DueTimer(new_id(), TENANT, NOW + MINUTE, 1, 0, True, NOW, job) for _ in range(500)]
    page = plan(timers, NOW + DAY, CHANCE)
    assert len(asked) < 24 * 60 + 500 * 20, "the day's minutes once, and a few steps for each"
    assert {skip.count for skip in page.skips} == {24 * 60 - 1}


# One-offs


@pytest.mark.parametrize(("policy", "runs"), [("all", True), ("latest", True), ("skip", False)])
def test_a_one_off_late_within_its_window_runs_unless_its_policy_is_skip(policy: str, runs: bool):
    job = spec("2026-01-01T01:00:00Z", catch_up=CatchUp(policy, 7200))  # type: ignore[arg-type]
    page = decide(job, NOW + 2 * HOUR)
    assert ran(page) == ([NOW + HOUR] if runs else [])
    assert [execution.trigger for execution in page.executions] == ([Trigger.CATCH_UP] if runs else [])
    assert [skip.count for skip in page.skips] == ([] if runs else [1])
    assert next_due(page) is None


def test_a_one_off_older_than_its_window_is_recorded_as_missed():
    page = decide(spec("2026-01-01T01:00:00Z", catch_up=CatchUp(window_seconds=60)), NOW + 2 * HOUR)
    assert page.executions == []
    assert page.skips == [Skipped(JOB, TENANT, NOW + HOUR, NOW + 2 * HOUR + 1, 1, "missed")]
    assert page.moves == [TimerMove(JOB, NOW + HOUR, 1, None, 0)]


# max_runs


def test_the_last_allowed_run_leaves_no_due_instant():
    job = spec("every 1m", max_runs=3)
    assert next_due(decide(job, NOW + MINUTE, fired=1)) == NOW + 2 * MINUTE
    page = decide(job, NOW + MINUTE, fired=2)
    assert ran(page) == [NOW + MINUTE]
    assert next_due(page) is None


def test_a_catch_up_stops_at_max_runs():
    job = spec("every 1m", max_runs=5, catch_up=CatchUp("all", 7200))
    page = decide(job, NOW + HOUR, fired=2)
    assert len(page.executions) == 3
    assert next_due(page) is None


def test_max_runs_below_the_count_of_runs_allows_no_more():
    page = decide(spec("every 1s", max_runs=2), NOW + 6 * SECOND, fired=5)
    assert page.executions == []
    assert next_due(page) is None


# While paused


def test_instants_during_a_pause_are_one_entry_of_the_ledger():
    job = spec("0 * * * *")
    table = timetable(job, JOB, NOW)
    assert skipped_while_paused(table, JOB, TENANT, NOW + HOUR, NOW + 3 * HOUR) == Skipped(
        JOB, TENANT, NOW + HOUR, NOW + 3 * HOUR + 1, 3, "paused"
    )


def test_a_pause_without_due_instants_leaves_no_entry():
    table = timetable(spec("0 * * * *"), JOB, NOW)
    assert skipped_while_paused(table, JOB, TENANT, NOW + HOUR, NOW + HOUR - 1) is None


def test_jitter_is_part_of_every_planned_instant():
    job = spec("0 * * * *", jitter_seconds=600)
    offset = jitter_of(JOB, 600)
    page = decide(job, NOW + HOUR + offset, due_at=NOW + HOUR + offset)
    assert ran(page) == [NOW + HOUR + offset]
    assert next_due(page) == NOW + 2 * HOUR + offset


def test_a_clock_change_neither_repeats_nor_loses_a_planned_instant():
    job = spec("30 1 * * *", timezone="Europe/Berlin", catch_up=CatchUp("all", 31_536_000))
    due_at = parse_instant("2026-10-23T23:30:00Z")
    page = decide(job, due_at + 3 * DAY + HOUR, due_at=due_at)
    assert [format_instant(at) for at in ran(page)] == [
        "2026-10-23T23:30:00.000Z", "2026-10-24T23:30:00.000Z", "2026-10-26T00:30:00.000Z", "2026-10-27T00:30:00.000Z",
    ]  # fmt: skip


# In advance


@pytest.mark.parametrize("schedule", ["2026-01-01T00:01:00Z", "every 5s", "*/7 * * * * *", "0 2 * * *"])
@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_plan_made_ahead_equals_the_plan_at_the_instant(schedule: str, overlap: Overlap):
    timer = timer_of(spec(schedule, overlap=overlap, max_runs=3))
    ahead = plan_ahead([timer], CHANCE)
    assert ahead is not None
    assert ahead.cut(0, 1, timer.due_at) == plan([timer], timer.due_at, CHANCE)


def test_a_part_of_a_plan_made_ahead_has_the_ids_of_its_position():
    timers = [timer_of(spec("every 5s"), due_at=NOW + n * SECOND) for n in range(5, 10)]
    ahead = plan_ahead(timers, CHANCE)
    assert ahead is not None
    assert ahead.cut(2, 4, NOW + 9 * SECOND) == plan(timers[2:4], NOW + 9 * SECOND, CHANCE + 2)
    parts = [ahead.cut(0, 2, NOW + 9 * SECOND), ahead.cut(2, 5, NOW + 9 * SECOND)]
    assert parts[0] is not None
    assert parts[1] is not None
    assert parts[0].joined(parts[1]) == ahead.cut(0, 5, NOW + 9 * SECOND)


def test_a_plan_made_ahead_holds_until_its_timer_is_due_again_or_missed():
    often = plan_ahead([timer_of(spec("every 5s"))], CHANCE)
    assert often is not None
    assert often.cut(0, 1, NOW + 10 * SECOND - 1) is not None
    assert often.cut(0, 1, NOW + 10 * SECOND) is None
    once = plan_ahead([timer_of(spec("2026-01-01T00:01:00Z"))], CHANCE)
    assert once is not None
    assert once.cut(0, 1, NOW + MINUTE + GRACE) is not None
    assert once.cut(0, 1, NOW + MINUTE + GRACE + 1) is None


def test_a_timer_without_further_runs_is_not_planned_ahead():
    assert plan_ahead([timer_of(spec("every 5s", max_runs=3), fired=3)], CHANCE) is None
