"""Actions of users on jobs: when a change plans again, which instants it skips, and what it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import authoring
from duetime.domain.commands import CancelJob, ChangeJob
from duetime.domain.errors import Conflict, InvalidSchedule
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.plan import Skipped
from samples import NOW, TENANT, new_id, spec

JOB = new_id()
LATER = NOW + HOUR
DUE = LATER + MINUTE  # when `every 1m` is next due after LATER
OVERDUE = LATER - 2 * MINUTE
PAST = "2026-01-01T00:30:00Z"


def changed(
    old: JobSpec, new: JobSpec, due_at: int | None = DUE, fired: int = 0, status: JobStatus = JobStatus.PENDING
) -> ChangeJob:
    return authoring.change_job(JOB, TENANT, 1, NOW, status, old, new, due_at, fired, LATER)


def span(first_at: int, until_at: int, count: int, reason: str = "changed") -> Skipped:
    return Skipped(JOB, TENANT, first_at, until_at, count, reason)


@pytest.mark.parametrize("fields", [{"name": "other"}, {"priority": 9}, {"overlap": "allow"}, {"max_runs": 5}])
def test_a_change_without_a_new_schedule_does_not_plan_again(fields: dict[str, Any]):
    command = changed(spec(), spec(**fields), OVERDUE)
    assert (command.replan, command.restart, command.skipped) == (False, False, ())


@pytest.mark.parametrize(
    ("fields", "due_at"),
    [
        ({"schedule": "every 2m"}, LATER + 2 * MINUTE),
        ({"start_at": "2026-01-02T00:00:00Z"}, NOW + 24 * HOUR + MINUTE),
        ({"end_at": "2027-01-01T00:00:00Z"}, DUE),
        ({"schedule": "immediate"}, LATER),
    ],
)
def test_a_change_of_the_schedule_plans_again(fields: dict[str, Any], due_at: int):
    command = changed(spec(), spec(**fields))
    assert (command.replan, command.due_at, command.skipped) == (True, due_at, ())
    assert command.restart is ("schedule" in fields)


# The ledger


@pytest.mark.parametrize(("status", "reason"), [(JobStatus.PENDING, "changed"), (JobStatus.PAUSED, "paused")])
def test_instants_before_the_next_run_of_a_new_schedule_are_skipped(status: JobStatus, reason: str):
    command = changed(spec(), spec("every 2h"), OVERDUE, status=status)
    assert command.skipped == (span(OVERDUE, LATER + 1, 3, reason),)


def test_an_instant_of_both_schedules_is_not_skipped():
    command = changed(spec(), spec("immediate"), OVERDUE)
    assert command.due_at == LATER
    assert command.skipped == (span(OVERDUE, LATER, 2),)


def test_instants_around_one_of_both_schedules_are_skipped():
    command = changed(spec("every 1s"), spec("2026-01-01T00:59:30Z"), OVERDUE)
    kept = LATER - 30 * SECOND
    assert command.due_at == kept
    assert command.skipped == (span(OVERDUE, kept, 90), span(kept + SECOND, LATER + 1, 30))


def test_a_one_off_that_only_changes_its_zone_is_not_skipped():
    at = "2026-01-01T00:59:30Z"
    command = changed(spec(at), spec(at, timezone="Europe/Berlin"), LATER - 30 * SECOND)
    assert (command.due_at, command.skipped) == (LATER - 30 * SECOND, ())


@pytest.mark.parametrize(("status", "reason"), [(JobStatus.PENDING, "cancelled"), (JobStatus.PAUSED, "paused")])
def test_due_instants_of_a_cancelled_job_are_skipped(status: JobStatus, reason: str):
    command = authoring.cancel_job(JOB, TENANT, NOW, status, spec(), OVERDUE, LATER)
    assert command == CancelJob(LATER, TENANT, JOB, (span(OVERDUE, LATER + 1, 3, reason),))


@pytest.mark.parametrize("due_at", [None, DUE])
def test_a_cancelled_job_without_due_instants_skips_none(due_at: int | None):
    assert authoring.cancel_job(JOB, TENANT, NOW, JobStatus.PENDING, spec(), due_at, LATER).skipped == ()


# max_runs


def test_a_completed_job_with_more_runs_continues_its_count():
    command = changed(spec(max_runs=2), spec(max_runs=3), None, 2, JobStatus.COMPLETED)
    assert (command.replan, command.restart, command.due_at) == (True, False, DUE)


def test_a_limit_below_the_count_of_runs_ends_the_job():
    command = changed(spec(max_runs=5), spec(max_runs=2), OVERDUE, 2)
    assert (command.replan, command.due_at) == (True, None)
    assert command.skipped == (span(OVERDUE, LATER + 1, 3),)


def test_a_lower_limit_of_runs_does_not_change_an_ended_job():
    command = changed(spec(max_runs=5), spec(max_runs=2), None, 5, JobStatus.COMPLETED)
    assert (command.replan, command.due_at) == (False, None)


def test_another_schedule_counts_from_zero():
    command = changed(spec(max_runs=2), spec("every 2m", max_runs=2), None, 2, JobStatus.COMPLETED)
    assert (command.restart, command.due_at) == (True, LATER + 2 * MINUTE)


@pytest.mark.parametrize("fields", [{"max_runs": 7}, {"jitter_seconds": 5.0}, {"end_at": "2027-01-01T00:00:00Z"}])
def test_other_bounds_do_not_run_a_completed_one_off_again(fields: dict[str, Any]):
    command = changed(spec("immediate"), spec("immediate", **fields), None, 1, JobStatus.COMPLETED)
    assert (command.replan, command.due_at) == (False, None)


# Refusals


@pytest.mark.parametrize("schedule", ["every 1m", "0 * * * *"])
@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.PAUSED])
def test_an_end_in_the_past_is_refused_at_its_field(schedule: str, status: JobStatus):
    with pytest.raises(InvalidSchedule) as refused:
        changed(spec(schedule), spec(schedule, end_at=PAST), status=status)
    assert [error.pointer for error in refused.value.errors] == ["/end_at"]


def test_a_cancelled_job_is_not_changed():
    with pytest.raises(Conflict):
        changed(spec(), msgspec.structs.replace(spec(), name="x"), status=JobStatus.CANCELLED)
