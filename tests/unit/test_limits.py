"""The token bucket without a timer: it never grants more than there is, and the wait is exact."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.domain.identity import Tier
from duetime.domain.instants import DAY, HOUR, SECOND
from duetime.domain.limits import (
    MICRO,
    RESERVED_PART,
    Limit,
    TierLimits,
    refusal,
    remaining,
    reservation_size,
    reserve,
    retry_after,
    take,
)
from samples import NOW

JOBS = Limit("jobs", 100, DAY)

limits = st.builds(Limit, st.just("jobs"), st.integers(1, 2_000), st.sampled_from([HOUR, DAY]))
full_ats = st.integers(0, (NOW + 3 * DAY) * MICRO)  # also of another limit, or of a clock that was ahead


def test_an_idle_user_has_the_whole_bucket_and_then_one_token_per_interval():
    full_at = take(JOBS, 0, NOW, 100)
    assert full_at == (NOW + DAY) * MICRO
    assert remaining(JOBS, full_at, NOW) == 0
    assert take(JOBS, full_at, NOW, 1) is None
    assert retry_after(JOBS, full_at, NOW) == 864
    assert take(JOBS, full_at, NOW + 864 * SECOND - 1, 1) is None
    assert take(JOBS, full_at, NOW + 864 * SECOND, 1) == full_at + 864_000_000
    assert remaining(JOBS, full_at, NOW + 864 * SECOND) == 1
    assert remaining(JOBS, full_at, NOW + DAY) == 100
    assert remaining(JOBS, full_at, NOW + 9 * DAY) == 100


def test_more_than_the_bucket_holds_is_refused_with_the_time_until_it_is_full():
    assert take(JOBS, 0, NOW, 101) is None
    full_at = take(JOBS, 0, NOW, 1)
    assert full_at is not None
    assert retry_after(JOBS, full_at, NOW, 101) == 864
    assert retry_after(JOBS, 0, NOW, 101) == 1


@given(limits, full_ats, st.integers(1, 50))
def test_the_wait_is_exact(limit: Limit, full_at: int, count: int):
    count = min(count, limit.most)
    if take(limit, full_at, NOW, count) is not None:
        return
    wait = retry_after(limit, full_at, NOW, count)
    assert take(limit, full_at, NOW + (wait - 1) * SECOND, count) is None
    assert take(limit, full_at, NOW + wait * SECOND, count) is not None


@given(limits, full_ats)
def test_the_remaining_tokens_and_no_more_can_be_taken(limit: Limit, full_at: int):
    left = remaining(limit, full_at, NOW)
    assert take(limit, full_at, NOW, left + 1) is None
    if left:
        assert (moved := take(limit, full_at, NOW, left)) is not None
        assert remaining(limit, moved, NOW) == 0


steps = st.lists(st.tuples(st.integers(0, 30 * 60 * SECOND), st.integers(1, 12)), max_size=30)


@given(st.builds(Limit, st.just("requests"), st.integers(1, 30), st.just(HOUR)), steps)
def test_no_span_grants_more_than_the_bucket_and_its_refill(limit: Limit, steps: list[tuple[int, int]]):
    now, full_at = NOW, 0
    granted: list[tuple[int, int]] = []
    for pause, count in steps:
        now += pause
        if (moved := take(limit, full_at, now, count)) is not None:
            full_at = moved
            granted.append((now, count))
    for first, (since, _) in enumerate(granted):
        total = 0
        for at, count in granted[first:]:
            total += count
            assert total <= limit.most + (at - since) * MICRO // limit.emission


@given(limits, full_ats, st.integers(0, 5_000), st.integers(0, 5_000))
@example(Limit("requests", 7, HOUR), (NOW + HOUR) * MICRO, 0, 0)  # 7 does not divide an hour: the bucket is smaller
@example(Limit("requests", 10, HOUR), (NOW + HOUR + 1) * MICRO, 1, 0)  # another node's clock is ahead by a ms
def test_a_reservation_takes_at_most_the_remaining_tokens_after_the_returned_ones(
    limit: Limit, full_at: int, wanted: int, given_back: int
):
    left = remaining(limit, full_at - given_back * limit.emission, NOW)
    granted, moved = reserve(limit, full_at, NOW, wanted, given_back)
    assert granted == min(wanted, left)
    assert remaining(limit, moved, NOW) == left - granted


@given(limits, full_ats, st.integers(1, 5_000))
@example(Limit("requests", 1, HOUR), (NOW + HOUR) * MICRO + 1, 1)  # further ahead than a whole bucket
def test_a_reservation_that_is_returned_at_once_changes_nothing(limit: Limit, full_at: int, wanted: int):
    granted, moved = reserve(limit, full_at, NOW, wanted, 0)
    assert reserve(limit, moved, NOW, 0, granted)[0] == 0
    back = reserve(limit, moved, NOW, 0, granted)[1]
    assert max(back, NOW * MICRO) == min(max(full_at, NOW * MICRO), NOW * MICRO + limit.bucket)


@given(limits, full_ats)
def test_a_share_is_a_part_of_the_remaining_tokens_and_at_least_one(limit: Limit, full_at: int):
    left = remaining(limit, full_at, NOW)
    assert reservation_size(limit, full_at, NOW) == max(1, left // RESERVED_PART)
    assert reservation_size(limit, full_at, NOW) <= max(1, left)


@pytest.mark.parametrize(
    ("limit", "count", "taken", "sentence", "wait"),
    [
        (JOBS, 1, 100, "you may have 100 new jobs a day; try again in 15 minutes", 864),
        (JOBS, 30, 80, "you may have 100 new jobs a day, of which 20 are left; try again in 2 h 24 min", 8640),
        (Limit("requests", 1000, HOUR), 1, 1000, "you may have 1,000 requests an hour; try again in 4 seconds", 4),
    ],
)
def test_a_refusal_has_the_limit_and_the_wait(limit: Limit, count: int, taken: int, sentence: str, wait: int):
    full_at = take(limit, 0, NOW, taken)
    assert full_at is not None
    assert refusal(limit, full_at, NOW, count) == (sentence, wait)


def test_a_tier_that_is_not_named_or_has_zero_has_no_limit():
    found = TierLimits.of({Tier.FREE: 60, Tier.PRO: 0}, {Tier.FREE: 100})
    assert found.requests == {Tier.FREE: Limit("requests", 60, HOUR)}
    assert found.jobs == {Tier.FREE: JOBS}


def test_a_clock_that_is_set_back_refuses_no_user_for_longer_than_one_token_takes():
    limit = Limit("requests", 100, HOUR)
    granted, full_at = reserve(limit, 0, NOW, 100, 0)
    assert granted == 100
    earlier = NOW - 6 * HOUR
    granted, full_at = reserve(limit, full_at, earlier, 1, 0)
    assert (granted, retry_after(limit, full_at, earlier)) == (0, 36)
    granted, _ = reserve(limit, full_at, earlier + 36 * SECOND, 1, 0)
    assert granted == 1
