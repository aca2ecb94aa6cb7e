"""Tests of the checker: it accepts a clean history, and reports each planted fault."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from cluster.checker import AcknowledgedJob, History, Objectives, check, expected_instants, instant, shown

NOW = instant("2026-03-01T12:00:00.250Z")
UNTIL = NOW + 5000
EVERY = AcknowledgedJob("job-every", "every 1s", NOW)
ONCE = AcknowledgedJob("job-once", shown(NOW + 2000), NOW)
CRON = AcknowledgedJob("job-cron", "*/2 * * * * *", NOW, "Europe/Berlin")
OBJECTIVES = Objectives(most_repeated=1, lateness_p99_ms=100)

Row = dict[str, Any]


def ran(job: AcknowledgedJob, at: int, *, attempts: int = 1, late: int = 3) -> tuple[Row, list[Row]]:
    """An execution as the API shows it, and the requests that the receiver got."""
    execution_id = f"{job.job_id}@{at}"
    row = {
        "execution_id": execution_id, "job_id": job.job_id, "state": "COMPLETED", "reason": None, "attempt": attempts,
        "trigger": "schedule", "scheduled_at": shown(at), "end_time": shown(at + late + 20 * attempts),
    }  # fmt: skip
    requests = [
        {
            "execution_id": execution_id, "job_id": job.job_id, "scheduled_at": shown(at), "trigger": "schedule",
            "attempt": str(number), "token": str(number), "t_start": at + late + 20 * (number - 1),
            "t_end": at + late + 20 * number, "path": "/ok", "status": 200,
        }
        for number in range(1, attempts + 1)
    ]  # fmt: skip
    return row, requests


def clean() -> History:
    executions: list[Row] = []
    requests: list[Row] = []
    for job in (EVERY, ONCE, CRON):
        for at in expected_instants(job, UNTIL):
            row, lines = ran(job, at, attempts=2 if job is ONCE else 1)
            executions.append(row)
            requests += lines
    jobs = [EVERY, ONCE, CRON]
    return History(jobs, requests, executions, {}, frozenset(job.job_id for job in jobs), UNTIL)


@pytest.fixture
def history() -> History:
    return deepcopy(clean())


def verdicts(history: History, objectives: Objectives = OBJECTIVES) -> set[str]:
    return check(history, objectives).verdicts


def test_a_clean_history_passes(history: History) -> None:
    report = check(history, OBJECTIVES)
    assert report.green, report
    assert report.counts["due instants"] == 5 + 1 + 2
    assert report.counts["repeated executions"] == 1


class TestExpectedInstants:
    def test_every_counts_from_the_creation(self) -> None:
        assert expected_instants(EVERY, UNTIL) == [NOW + 1000 * number for number in range(1, 6)]

    def test_every_counts_from_its_start(self) -> None:
        job = replace(EVERY, start_at=NOW + 500)
        assert expected_instants(job, NOW + 3000) == [NOW + 1500, NOW + 2500]

    def test_cron_instants_are_whole_seconds(self) -> None:
        assert expected_instants(CRON, UNTIL) == [NOW + 1750, NOW + 3750]

    def test_cron_instants_are_computed_in_the_jobs_zone(self) -> None:
        job = AcknowledgedJob("job", "30 9 * * *", NOW, "Asia/Kolkata")
        assert expected_instants(job, NOW + 86_400_000) == [instant("2026-03-02T04:00:00Z")]

    def test_the_last_instant_can_be_the_end(self) -> None:
        assert expected_instants(replace(EVERY, end_at=NOW + 2000), UNTIL) == [NOW + 1000, NOW + 2000]

    def test_max_runs_ends_the_instants(self) -> None:
        assert expected_instants(replace(EVERY, max_runs=1), UNTIL) == [NOW + 1000]

    def test_immediate_is_due_at_its_creation(self) -> None:
        assert expected_instants(replace(EVERY, schedule="immediate"), UNTIL) == [NOW]


class TestPlantedFaults:
    def test_an_instant_without_a_decision_is_missed(self, history: History) -> None:
        gone = history.executions[2]["execution_id"]
        rest = [row for row in history.executions if row["execution_id"] != gone]
        lines = [line for line in history.requests if line["execution_id"] != gone]
        assert verdicts(replace(history, executions=rest, requests=lines)) == {"MISSED"}

    def test_an_instant_in_a_skipped_span_is_decided(self, history: History) -> None:
        first, *rest = history.executions
        lines = [line for line in history.requests if line["execution_id"] != first["execution_id"]]
        at = instant(first["scheduled_at"])
        span = {"first_at": shown(at), "until_at": shown(at + 1), "count": 1, "reason": "missed"}
        decided = replace(history, executions=rest, requests=lines, skipped={EVERY.job_id: [span]})
        assert verdicts(decided) == set()
        span["until_at"] = span["first_at"]  # up to, not including
        assert verdicts(decided) == {"MISSED"}

    def test_a_completed_run_that_was_not_received_is_missed(self, history: History) -> None:
        gone = history.executions[0]["execution_id"]
        lines = [line for line in history.requests if line["execution_id"] != gone]
        assert verdicts(replace(history, requests=lines)) == {"MISSED"}

    def test_a_run_between_two_instants_is_extra(self, history: History) -> None:
        row, lines = ran(EVERY, NOW + 1500)
        more = replace(history, executions=[*history.executions, row], requests=[*history.requests, *lines])
        assert verdicts(more) == {"EXTRA"}

    def test_a_run_of_an_unknown_job_is_extra(self, history: History) -> None:
        row, lines = ran(replace(EVERY, job_id="job-unknown"), NOW + 1000)
        more = replace(history, executions=[*history.executions, row], requests=[*history.requests, *lines])
        assert verdicts(more) == {"EXTRA"}

    def test_a_request_without_a_record_is_extra(self, history: History) -> None:
        _, lines = ran(EVERY, NOW + 1500)
        assert verdicts(replace(history, requests=[*history.requests, *lines])) == {"EXTRA"}

    def test_a_request_for_a_skipped_instant_is_extra(self, history: History) -> None:
        history.executions[0] |= {"state": "SKIPPED", "reason": "overlap"}
        assert verdicts(history) == {"EXTRA"}

    def test_two_ids_for_one_instant_are_duplicate_executions(self, history: History) -> None:
        row, lines = ran(EVERY, NOW + 1000)
        row["execution_id"] = lines[0]["execution_id"] = "another"
        more = replace(history, executions=[*history.executions, row], requests=[*history.requests, *lines])
        assert verdicts(more) == {"DUP-EXECUTION"}

    def test_two_ids_for_one_instant_in_the_requests_alone_are_duplicate_executions(self, history: History) -> None:
        _, lines = ran(EVERY, NOW + 1000)
        lines[0]["execution_id"] = "another"
        assert verdicts(replace(history, requests=[*history.requests, *lines])) == {"DUP-EXECUTION", "EXTRA"}

    def test_a_request_one_millisecond_before_its_instant_is_early(self, history: History) -> None:
        line = history.requests[0]
        line["t_start"] = instant(line["scheduled_at"]) - 1
        assert verdicts(history) == {"EARLY"}

    @pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "RETRYING"])
    def test_an_execution_that_is_still_open_is_an_orphan(self, history: History, state: str) -> None:
        history.executions[0] |= {"state": state, "end_time": None}
        assert verdicts(history) == {"ORPHAN"}

    def test_an_end_by_an_attempt_that_had_a_successor_is_stale(self, history: History) -> None:
        (twice,) = (row for row in history.executions if row["attempt"] == 2)
        twice["attempt"] = 1
        assert verdicts(history) == {"STALE"}

    def test_a_request_after_the_end_is_stale(self, history: History) -> None:
        (twice,) = (row for row in history.executions if row["attempt"] == 2)
        twice["end_time"] = shown(instant(twice["scheduled_at"]) + 5)
        assert verdicts(history) == {"STALE"}

    def test_an_old_token_after_a_newer_one_is_stale(self, history: History) -> None:
        first, second = (line for line in history.requests if line["job_id"] == ONCE.job_id)
        first["token"], second["token"] = second["token"], first["token"]
        assert verdicts(history) == {"STALE"}

    def test_a_missing_acknowledged_job_is_lost(self, history: History) -> None:
        assert verdicts(replace(history, stored_jobs=history.stored_jobs - {CRON.job_id})) == {"LOST"}

    def test_more_requests_than_the_bound_of_the_job_are_duplicate_attempts(self, history: History) -> None:
        jobs = [replace(job, most_attempts=1) for job in history.jobs]
        assert verdicts(replace(history, jobs=jobs)) == {"DUP-ATTEMPT"}

    def test_more_repeated_executions_than_allowed_are_duplicate_attempts(self, history: History) -> None:
        assert verdicts(history, Objectives(most_repeated=0)) == {"DUP-ATTEMPT"}

    @pytest.mark.parametrize(
        ("crashes", "red"),
        [
            ([23], False),  # 0 ms after the first answer
            ([73], False),  # 50 ms after it: at the limit
            ([74], True),
            ([13, 9000], False),  # the sender died while it was answered
            ([], True),  # no crash explains it
        ],
    )
    def test_a_repeated_request_accepted_long_before_the_crash_is_a_duplicate_attempt(
        self, history: History, crashes: list[int], red: bool
    ) -> None:
        at = NOW + 2000  # ONCE: answered 23 ms after its instant, and requested again
        crashed = replace(history, crashes=[at + crash for crash in crashes])
        assert verdicts(crashed, Objectives(unrecorded_ms=50)) == ({"DUP-ATTEMPT"} if red else set())

    def test_a_failed_request_may_be_repeated_without_any_crash(self, history: History) -> None:
        first, _ = (line for line in history.requests if line["job_id"] == ONCE.job_id)
        first["status"] = 500
        assert verdicts(history, Objectives(unrecorded_ms=50)) == set()

    def test_lateness_beyond_the_objective_is_late(self, history: History) -> None:
        assert verdicts(history, Objectives(lateness_p99_ms=2)) == {"LATE"}

    def test_an_instant_that_was_caught_up_is_not_late(self, history: History) -> None:
        for line in history.requests:
            line["trigger"] = "catch_up"
        assert verdicts(history, Objectives(lateness_p99_ms=2)) == set()


def test_a_report_counts_and_shows_the_first_few_of_each(history: History) -> None:
    report = check(replace(history, executions=[], requests=[]))
    text = str(report)
    assert text.startswith("RED")
    assert "MISSED: 8" in text
    assert "… and 3 more" in text
    assert "job-every (every 1s) at 2026-03-01T12:00:01.250+00:00 has no decision" in text
