"""Histograms of durations: exact at their bounds, mergeable, and close at every quantile."""

from __future__ import annotations

import bisect
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.histogram import LAST, LONGEST, Histogram, bucket_of, cumulative, merged, upper_bound
from duetime.domain.instants import SECOND

DURATIONS = st.lists(st.integers(0, 10 * 86_400 * SECOND), min_size=1, max_size=200)


def histogram(durations: list[int]) -> Histogram:
    found = Histogram()
    found.add(durations)
    return found


@given(st.integers(1, LONGEST * SECOND))
def test_a_duration_lies_within_the_bounds_of_its_bucket(duration: int):
    bucket = bucket_of(duration)
    assert upper_bound(bucket - 1) < duration / SECOND <= upper_bound(bucket)


@pytest.mark.parametrize("exponent", range(0, 20))
def test_a_duration_at_a_power_of_two_belongs_below_it(exponent: int):
    assert bucket_of(2**exponent * SECOND) == 8 * exponent
    assert bucket_of(2**exponent * SECOND + 1) == 8 * exponent + 1


def test_a_longer_duration_than_the_longest_counts_as_that():
    assert bucket_of(LONGEST * SECOND * 1000) == bucket_of(LONGEST * SECOND) == LAST


@given(DURATIONS, st.floats(0.01, 1))
def test_a_quantile_is_at_most_a_bucket_too_high(durations: list[int], share: float):
    exact = sorted(durations)[max(1, math.ceil(share * len(durations))) - 1]
    found = histogram(durations).quantile(share)
    assert found is not None
    assert exact <= found + 1
    assert found <= exact * 2 ** (1 / 8)


def test_no_durations_have_no_quantile():
    assert Histogram().quantile(0.99) is None


@given(DURATIONS, DURATIONS)
def test_merged_histograms_are_the_histogram_of_all(first: list[int], second: list[int]):
    whole = histogram(first + second)
    assert merged([histogram(first), histogram(second)]) == whole
    assert (whole.count, whole.total) == (len(first + second), sum(first + second))


@given(DURATIONS)
def test_classic_buckets_are_exact(durations: list[int]):
    found, exponents = histogram(durations), range(-10, 21)
    ordered = sorted(min(duration, LONGEST * SECOND) for duration in durations)
    exact = [bisect.bisect_right(ordered, 2.0**exponent * SECOND) for exponent in exponents]
    assert cumulative(found.buckets, found.zero, exponents) == exact


@given(DURATIONS)
def test_a_histogram_survives_json(durations: list[int]):
    found = histogram(durations)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Histogram) == found
