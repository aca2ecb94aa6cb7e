"""Whether a failed attempt is retried, and after which wait."""

from __future__ import annotations

import pytest

from duetime.domain.job import RetryPolicy
from duetime.domain.retry import (
    LONGEST_OWN_DELAY,
    LONGEST_RETRY_AFTER,
    delay_seconds,
    is_retryable,
    max_attempts,
    own_delay_seconds,
)
from duetime.domain.states import ErrorType
from samples import spec

NEARLY_ONE = 1 - 2**-53


def waits(policy: RetryPolicy, jitter: float = 1.0) -> list[float]:
    return [delay_seconds(policy, attempt, jitter) for attempt in range(1, 6)]


def test_exponential_backoff_multiplies_up_to_its_ceiling():
    assert waits(RetryPolicy()) == [10, 30, 90, 270, 810]
    assert waits(RetryPolicy(max_delay_seconds=100)) == [10, 30, 90, 100, 100]


def test_linear_backoff_adds_up_to_its_ceiling():
    policy = RetryPolicy(backoff="linear", initial_delay_seconds=20, max_delay_seconds=70)
    assert waits(policy) == [20, 40, 60, 70, 70]


def test_fixed_backoff_stays_the_same():
    assert waits(RetryPolicy(backoff="fixed", initial_delay_seconds=5)) == [5] * 5
    assert waits(RetryPolicy(backoff="fixed", initial_delay_seconds=50, max_delay_seconds=20)) == [20] * 5


def test_the_hundredth_wait_of_the_steepest_backoff_is_the_ceiling():
    policy = RetryPolicy(max_retries=100, backoff_factor=100, max_delay_seconds=604_800)
    assert delay_seconds(policy, 100, 1.0) == 604_800


@pytest.mark.parametrize("backoff", ["exponential", "linear", "fixed"])
def test_jitter_spreads_a_wait_between_zero_and_the_whole_wait(backoff: str):
    policy = RetryPolicy(backoff=backoff)  # type: ignore[arg-type]
    for attempt in range(1, 8):
        longest = delay_seconds(policy, attempt, 1.0)
        assert delay_seconds(policy, attempt, 0.0) == 0
        assert delay_seconds(policy, attempt, 0.5) == longest / 2
        assert delay_seconds(policy, attempt, NEARLY_ONE) < longest


def test_listed_delays_are_used_without_jitter():
    policy = RetryPolicy(delays=(30, 120, 600))
    for jitter in (0.0, 0.3, NEARLY_ONE):
        assert waits(policy, jitter) == [30, 120, 600, 600, 600]


def test_a_longer_retry_after_is_honoured():
    assert delay_seconds(RetryPolicy(), 1, 1.0, 300) == 300
    assert delay_seconds(RetryPolicy(), 1, 0.0, 0.5) == 0.5


def test_a_shorter_retry_after_does_not_shorten_the_wait():
    assert delay_seconds(RetryPolicy(delays=(60,)), 1, 0.5, 5) == 60


@pytest.mark.parametrize("asked", [1e9, float("inf"), LONGEST_RETRY_AFTER + 1])
def test_a_retry_after_of_more_than_a_day_is_a_day(asked: float):
    assert delay_seconds(RetryPolicy(), 1, 0.5, asked) == 86_400


@pytest.mark.parametrize("asked", [0, -1, -1e9, float("nan"), float("-inf"), None])
def test_an_invalid_retry_after_is_ignored(asked: float | None):
    assert delay_seconds(RetryPolicy(), 1, 0.5, asked) == 5


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (RetryPolicy(), 4),
        (RetryPolicy(max_retries=0), 1),
        (RetryPolicy(max_retries=100), 101),
        (RetryPolicy(delays=(1, 2)), 3),
        (RetryPolicy(max_retries=5, delays=(1, 2)), 6),
        (RetryPolicy(max_retries=0, delays=(1, 2)), 1),
    ],
)
def test_the_number_of_attempts_is_the_first_and_its_retries(policy: RetryPolicy, attempts: int):
    assert max_attempts(spec(retry_policy=policy)) == attempts


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 429])
def test_a_temporary_status_is_retried(status: int):
    assert is_retryable(ErrorType.HTTP_ERROR, status)


@pytest.mark.parametrize("status", [200, 301, 302, 400, 401, 403, 404, 408, 409, 410, 422, 428])
def test_a_permanent_status_is_not_retried(status: int):
    assert not is_retryable(ErrorType.HTTP_ERROR, status)


@pytest.mark.parametrize("error", sorted(ErrorType))
def test_errors_without_a_response_are_retried_unless_they_are_a_decision(error: ErrorType):
    decisions = {"blocked_target", "cancelled", "circuit_open", "limit_exceeded", "rejected", "sql_error"}
    assert is_retryable(error, None) == (error not in decisions)


@pytest.mark.parametrize(("asked", "delay"), [(5.0, 5.0), (-1.0, 0.0), (1e300, LONGEST_OWN_DELAY), (float("nan"), 0.0)])
def test_a_wait_reported_by_a_function_is_limited(asked: float, delay: float):
    assert own_delay_seconds(asked) == delay
