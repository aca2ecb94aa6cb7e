"""The rate of calls to an endpoint: never above its limit, in any span of time, and close to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.engine import rate_limiter
from duetime.engine.rate_limiter import RateLimiter, limit_of


@pytest.mark.parametrize("rate", [0.001, 0.5, 1, 3, 7, 9.5, 99, 1000, 100_000])
def test_the_bucket_refills_at_the_rate_and_holds_a_tenth_of_a_second(rate: float):
    limit = limit_of(rate)
    assert rate * 0.95 <= 1e6 / limit.emission <= rate * 1.0001
    assert 1 <= limit.most <= max(1, rate / 10)


@given(st.sampled_from([0.5, 3.0, 20.0, 350.0]), st.lists(st.floats(0, 0.4), min_size=1, max_size=120))
def test_no_span_of_time_has_more_requests_than_the_rate(rate: float, waits: list[float]):
    pace, now, taken = RateLimiter(rate), 1000.0, []
    for wait in waits:
        now += wait
        while pace.take(1, now):
            taken.append(now)
    at_once = max(1, int(rate / 10))
    for first, begin in enumerate(taken):
        for number, end in enumerate(taken[first:], 1):
            assert number <= at_once + (end - begin + 0.001) * rate + 1e-6


@given(st.sampled_from([0.5, 3.0, 20.0, 350.0]), st.integers(1, 50))
def test_after_the_retry_after_there_is_a_token(rate: float, count: int):
    pace, now = RateLimiter(rate), 1000.0
    for _ in range(count):
        if not pace.take(1, now):
            now += pace.wait(1, now)
            assert pace.take(1, now)
    assert now - 1000 <= count / rate * 1.06 + count * 0.002


def test_each_endpoint_has_its_own_bucket():
    pace = RateLimiter(0.5)
    assert [pace.take(1, 5.0), pace.take(1, 5.0), pace.take(2, 5.0)] == [True, False, True]


def test_idle_endpoints_are_removed_from_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rate_limiter, "MOST_KEPT", 10)
    pace = RateLimiter(1.0)
    for endpoint in range(100):
        assert pace.take(endpoint, endpoint * 0.5)
        assert len(pace._full_at) <= 11
    assert not pace.take(99, 99 * 0.5)
