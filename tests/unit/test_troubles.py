"""The worst jobs of the last minutes: bounded, and no tenant hides another's."""

from __future__ import annotations

from typing import Any

from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.states import ErrorType, Trigger
from duetime.domain.troubles import (
    KEPT,
    LATE,
    LONGEST_NAME,
    MOST_TOLD,
    MOST_TOLD_OF_TENANT,
    JobTrouble,
    PlaceUse,
    Troubles,
    merged,
    merged_places,
)
from duetime.testing import SUCCESS
from samples import NOW, claim_of, spec

FAILURE = Outcome(error_type=ErrorType.HTTP_ERROR, error_message="it said 500", http_status=500)


def result(outcome: Outcome = SUCCESS, late: int = 0, name: str = "report", **fields: Any) -> tuple[Claim, AttemptEnd]:
    claim = claim_of(spec(name=name), **fields)
    return claim, conclude(claim, outcome, NOW + late, NOW + late, 1.0)


def told(results: list[tuple[Claim, AttemptEnd]], now: int = NOW) -> tuple[JobTrouble, ...]:
    troubles = Troubles()
    troubles.add(NOW, results, ())
    return troubles.worst(now)


def test_a_job_that_neither_fails_nor_is_late_is_not_told():
    assert told([result(late=LATE - 1), result()]) == ()


def test_the_failures_of_a_job_are_counted_with_its_last_error():
    results = [result(FAILURE, job_id="bad") for _ in range(3)] + [result(job_id="bad"), result(job_id="good")]
    assert told(results) == (JobTrouble("acme", "bad", "report", "http_request", 3, 0, ErrorType.HTTP_ERROR),)


def test_the_latest_start_of_a_job_is_told():
    results = [result(late=9 * SECOND, job_id="late"), result(late=7 * SECOND, job_id="less late")]
    assert [(job.job_id, job.lateness_ms) for job in told(results)] == [("late", 9 * SECOND)]


def test_a_retry_and_a_redriven_dead_letter_are_not_late():
    assert told([result(late=MINUTE, attempt=2), result(late=MINUTE, trigger=Trigger.RETRY)]) == ()


def test_what_the_store_refused_does_not_count():
    troubles = Troubles()
    refused = result(FAILURE)
    troubles.add(NOW, [refused], {refused[0].execution_id})
    assert troubles.worst(NOW) == ()


def test_minutes_are_summed_and_forgotten():
    troubles = Troubles()
    for age in range(3):
        troubles.add(NOW + age * MINUTE, [result(FAILURE, job_id="bad")], ())
    (bad,) = troubles.worst(NOW + 2 * MINUTE)
    assert bad.failures == 3
    (bad,) = troubles.worst(NOW + KEPT + MINUTE)
    assert bad.failures == 2
    assert troubles.worst(NOW + KEPT + 3 * MINUTE) == ()


def test_a_clock_that_was_set_back_keeps_nothing_from_the_future():
    troubles = Troubles()
    troubles.add(NOW + 60 * MINUTE, [result(FAILURE)], ())
    assert troubles.worst(NOW) == ()


def test_one_job_that_fails_often_is_told_among_many_that_fail_once():
    flood = [result(FAILURE, job_id=f"once {number}") for number in range(500)]
    often = [result(FAILURE, job_id="often") for _ in range(2)]
    assert told(flood + often)[0].job_id == "often"


def test_a_tenant_with_many_bad_jobs_hides_nobody_elses():
    flood = [result(FAILURE, job_id=f"job {number}", tenant="flood") for number in range(500) for _ in range(3)]
    other = [result(FAILURE, job_id="quiet", tenant="small")]
    found = told(flood + other)
    assert [job.tenant for job in found].count("flood") <= MOST_TOLD_OF_TENANT
    assert {job.job_id for job in found if job.tenant == "small"} == {"quiet"}


def test_a_report_is_bounded_whatever_happens():
    troubles = Troubles()
    for minute in range(5):
        results = [
            result(FAILURE, name="x" * 255, tenant=f"tenant {number % 300}", job_id=f"{minute} {number}")
            for number in range(2000)
        ]
        troubles.add(NOW + minute * MINUTE, results, ())
    found = troubles.worst(NOW + 5 * MINUTE)
    assert len(found) == MOST_TOLD
    assert all(len(job.name) == LONGEST_NAME for job in found)


def test_reports_of_nodes_are_merged_and_a_tenant_sees_its_own():
    one = JobTrouble("acme", "a", "report", "http_request", 2, 500, "timeout")
    two = JobTrouble("acme", "a", "report", "http_request", 1, 900, "")
    other = JobTrouble("other", "b", "backup", "script", 9, 0, "exit_code")
    assert merged([[one], [two, other]], None) == [
        other,
        JobTrouble("acme", "a", "report", "http_request", 3, 900, "timeout"),
    ]
    assert [job.job_id for job in merged([[one], [two, other]], "acme")] == ["a"]
    uses = [
        [PlaceUse("acme", "", 1, 2), PlaceUse("acme", "https://x", 1, 2)],
        [PlaceUse("acme", "", 3, 4), PlaceUse("b", "", 9, 9)],
    ]
    assert merged_places(uses, None)[0] == PlaceUse("b", "", 9, 9)
    assert merged_places(uses, "acme") == [PlaceUse("acme", "", 4, 6), PlaceUse("acme", "https://x", 1, 2)]
