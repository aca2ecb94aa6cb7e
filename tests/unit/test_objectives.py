"""Objectives: what is on time, when a success is expected, and which rule of the burn rate holds. The budget itself is
compared with brute force in tests/property/test_objectives.py."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain.durations import format_duration, parse_duration
from duetime.domain.errors import InvalidRequest
from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude, expire
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import Slo
from duetime.domain.objectives import (
    EXPECTED,
    Objective,
    ObjectiveKind,
    Sample,
    budget_of,
    burning,
    expected_by,
    is_on_time,
    punctuality,
)
from duetime.domain.states import ErrorType, Trigger
from duetime.domain.validation import check_spec
from duetime.testing import SUCCESS as TEST_SUCCESS
from samples import NOW, claim_of, spec

SUCCESS = Objective(ObjectiveKind.SUCCESS, 99.0, 30 * DAY)


@pytest.mark.parametrize(
    ("text", "duration"),
    [("90s", 90 * SECOND), ("30m", 30 * MINUTE), ("25h", 25 * HOUR), (" 7 D ", 7 * DAY), ("2w", 14 * DAY)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, duration: int):
    assert parse_duration(text, 1, 400 * DAY) == duration
    assert parse_duration(format_duration(duration), 1, 400 * DAY) == duration


@pytest.mark.parametrize("text", ["", "5", "h", "1.5h", "-1h", "1h 30m", "1month", "٣h", "1000000000h"])
def test_any_other_text_is_no_duration(text: str):
    with pytest.raises(ValueError, match="no duration; write it like"):
        parse_duration(text, 1, 400 * DAY)


@pytest.mark.parametrize("text", ["0s", "401d"])
def test_a_duration_out_of_bounds_is_refused_with_the_bounds(text: str):
    with pytest.raises(ValueError, match="must lie between 1s and 400d"):
        parse_duration(text, *EXPECTED)


def test_an_objective_without_a_bound_is_refused():
    with pytest.raises(InvalidRequest, match="add lateness_seconds, success, or both"):
        check_spec(spec(slo=Slo()))
    check_spec(spec(slo=Slo(success=99), expect_every="400d"))


def test_an_execution_is_on_time_up_to_the_bound_and_not_beyond():
    slo = Slo(lateness_seconds=0.5)
    assert is_on_time(500, slo)
    assert not is_on_time(501, slo)
    assert is_on_time(10**9, Slo(success=99))


def test_first_attempts_are_on_time_or_late_and_others_do_not_count():
    job = spec(slo=Slo(lateness_seconds=5))

    def started(late: int, **fields: Any) -> tuple[Claim, AttemptEnd]:
        claim = claim_of(job, **fields)
        return claim, conclude(claim, TEST_SUCCESS, NOW + late, NOW + late, 1.0)

    lost = claim_of(job)
    dropped = conclude(claim_of(job), Outcome(ErrorType.CIRCUIT_OPEN, "open"), NOW, NOW, 1.0)
    assert punctuality([started(5000), started(5001), (lost, expire(lost, NOW + 9000))]) == (1, 2)
    assert punctuality([started(9000, attempt=2), started(9000, trigger=Trigger.RETRY), (lost, dropped)]) == (0, 0)
    plain = claim_of(spec(slo=Slo(success=99)))
    assert punctuality([(plain, conclude(plain, TEST_SUCCESS, NOW + 9000, NOW + 9000, 1.0))]) == (0, 0)


def test_a_success_is_expected_a_span_after_the_last_one_and_never_before_the_span_began():
    assert expected_by("25h", NOW, None) == NOW + 25 * HOUR
    assert expected_by("25h", NOW, NOW - DAY) == NOW + 25 * HOUR
    assert expected_by("25h", NOW, NOW + DAY) == NOW + DAY + 25 * HOUR


def test_half_of_the_budget_is_left_when_half_of_the_allowed_executions_were_bad():
    budget = budget_of(SUCCESS, [Sample(NOW - DAY, HOUR, 199, 200)], NOW)
    assert (budget.left, budget.errors_left, budget.compliance) == (pytest.approx(0.5), 1, 0.995)


def test_an_overspent_budget_is_below_zero():
    budget = budget_of(SUCCESS, [Sample(NOW - DAY, HOUR, 97, 100)], NOW)
    assert (budget.left, budget.errors_left) == (pytest.approx(-2), -2)


def minutes(bad_per_minute: int, since: int, until: int = 0) -> list[Sample]:
    """A hundred executions a minute, of which some are bad, from `since` to `until` minutes ago."""
    return [Sample(NOW - age * MINUTE, MINUTE, 100 - bad_per_minute, 100) for age in range(until + 1, since + 1)]


@pytest.mark.parametrize(
    ("samples", "severity"),
    [
        (minutes(20, 60), "critical"),  # 20 times as fast for an hour
        (minutes(100, 2) + minutes(0, 3 * 24 * 60, 2), None),  # two bad minutes are not yet a bad hour
        (minutes(20, 60, 10) + minutes(0, 10), "critical"),  # half an hour still shows it
        (minutes(7, 360), "critical"),
        (
            minutes(20, 90, 31) + minutes(0, 31) + minutes(0, 3 * 24 * 60, 90),
            None,
        ),  # it is over: the short spans say so
        (minutes(2, 3 * 24 * 60), "warning"),
        (minutes(0, 3 * 24 * 60), None),
        ([Sample(NOW - MINUTE, MINUTE, 0, 1)], None),  # one failure is no rate
        ([Sample(NOW - MINUTE, MINUTE, 0, 2)], "critical"),
    ],
)
def test_the_worst_rule_that_holds_over_both_of_its_spans_counts(samples: list[Sample], severity: str | None):
    found = burning(SUCCESS, samples, NOW)
    assert (None if found is None else found.rule.severity) == severity


def test_a_rule_with_a_longer_span_than_the_window_does_not_count():
    slow = minutes(2, 3 * 24 * 60)
    assert burning(SUCCESS, slow, NOW) is not None
    assert burning(SUCCESS._replace(window=DAY), slow, NOW) is None
