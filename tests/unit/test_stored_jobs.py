"""The rules for commands on a stored job, without a store."""

from __future__ import annotations

import pytest

from duetime.domain.commands import IdempotencyRecord, PauseJob, ResumeJob
from duetime.domain.errors import Conflict, IdempotencyKeyReused, PreconditionFailed
from duetime.domain.job import JobStatus
from duetime.domain.plan import Skipped
from duetime.domain.stored_jobs import (
    StoredTimer,
    check_change,
    check_pause,
    check_purge,
    check_repeat,
    check_resume,
    check_run,
    key_taken,
    pause_entry,
    status_after_change,
    still_owed,
)
from samples import NOW, TENANT, change_of, entry_of, spec

PENDING = StoredTimer(JobStatus.PENDING, 1, NOW, None)
PAUSED = StoredTimer(JobStatus.PAUSED, 1, None, NOW)
COMPLETED = StoredTimer(JobStatus.COMPLETED, 1, None, None)
CANCELLED = StoredTimer(JobStatus.CANCELLED, 1, None, None)
RESUME = ResumeJob(NOW, TENANT, "job-1", 1, NOW, None)


def test_a_change_of_another_version_or_of_a_cancelled_job_is_refused():
    for timer in (PENDING, PAUSED, COMPLETED):
        check_change(timer, change_of("job-1", spec()))
    with pytest.raises(PreconditionFailed, match="has version 1, not 2"):
        check_change(CANCELLED, change_of("job-1", spec(), version=2))
    with pytest.raises(Conflict, match="is CANCELLED and can't be changed"):
        check_change(CANCELLED, change_of("job-1", spec()))


def test_a_completed_job_that_is_planned_again_is_pending():
    assert [status_after_change(status) for status in JobStatus] == ["PENDING", "PAUSED", "PENDING", "CANCELLED"]


@pytest.mark.parametrize("timer", [COMPLETED, CANCELLED])
def test_only_a_pending_job_can_be_paused_and_only_a_paused_one_resumed(timer: StoredTimer):
    check_pause(PENDING, "job-1")
    check_resume(PAUSED, RESUME)
    with pytest.raises(Conflict, match=f"job-1 is {timer.status}; only a PENDING job can be paused"):
        check_pause(timer, "job-1")
    with pytest.raises(Conflict, match=f"job-1 is {timer.status}; only a PAUSED job can be resumed"):
        check_resume(timer, RESUME)


def test_a_job_that_was_changed_since_the_read_is_not_resumed():
    with pytest.raises(Conflict, match="was changed meanwhile"):
        check_resume(PAUSED._replace(version=2), RESUME)


def test_a_cancelled_job_does_not_run_and_a_running_one_is_not_purged():
    for timer in (PENDING, PAUSED, COMPLETED):
        check_run("job-1", timer.status)
    with pytest.raises(Conflict, match="create a new one to run it"):
        check_run("job-1", CANCELLED.status)
    check_purge("job-1", is_running=False)
    with pytest.raises(Conflict, match="cancel it first"):
        check_purge("job-1", is_running=True)


def test_a_pause_by_duetime_itself_has_its_own_entry():
    pause = PauseJob(NOW, TENANT, "job-1", "duetime", "unreadable")
    own = pause_entry(pause, "PENDING")
    assert (own.actor, own.action, own.resource) == ("duetime", "job.pause", "job-1")
    assert (own.before, own.after) == ({"status": "PENDING"}, {"status": "PAUSED", "reason": "unreadable"})
    asked = pause_entry(PauseJob(NOW, TENANT, "job-1", "ann", "", entry_of("job.pause", "job-1")), "PENDING")
    assert asked.actor == entry_of("job.pause").actor
    assert asked.before == {"status": "PENDING"}


def span(first_at: int, until_at: int) -> Skipped:
    return Skipped("job-1", TENANT, first_at, until_at, 3, "changed")


def test_instants_that_fired_since_the_read_are_not_recorded_as_skipped():
    before, across, after = span(NOW - 20, NOW), span(NOW - 10, NOW + 10), span(NOW, NOW + 10)
    for timer in (PENDING, PAUSED):
        assert still_owed([before, across, after], timer.owed_from) == [
            Skipped("job-1", TENANT, NOW, NOW + 10, None, "changed"),  # how many are left is not known
            after,
        ]
    assert still_owed([after], COMPLETED.owed_from) == []


def test_a_repeat_has_the_same_body():
    record = IdempotencyRecord(TENANT, "key-1", "one body", "response")
    check_repeat(record, "one body")
    with pytest.raises(IdempotencyKeyReused, match="'key-1' was used with another body"):
        check_repeat(record, "another body")


def test_a_used_key_is_named_if_there_is_only_one():
    assert "a job with key 'nightly' exists already" in key_taken(["nightly"]).message
    assert "one of these keys" in key_taken(["nightly", "daily"]).message
