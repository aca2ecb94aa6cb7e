"""Findings of the checker that only a cluster can cause."""

from __future__ import annotations

from dataclasses import replace

from cluster.checker import Objectives, check
from unit.test_checker import ONCE, UNTIL, clean, ran


def test_a_stale_write_that_the_database_recorded_fails_the_check() -> None:
    report = check(replace(clean(), stale_writes=["node 1 fired what node 2 had fenced"]))
    assert report.verdicts == {"STALE"}


def test_an_execution_whose_first_request_was_late_fails_the_check() -> None:
    """An execution that was lost with its node before it was sent is late by the handover, with any attempt number."""
    row, lines = ran(ONCE, UNTIL - 3000, attempts=2, late=2000)
    history = replace(clean(), jobs=[ONCE], executions=[row], requests=lines[1:], stored_jobs=frozenset({ONCE.job_id}))
    history = replace(history, jobs=[replace(ONCE, schedule=row["scheduled_at"])])
    assert check(history, Objectives(lateness_most_ms=3000)).green
    assert check(history, Objectives(lateness_most_ms=2000)).verdicts == {"LATE"}
