"""Histograms of durations: mergeable, small, and exact at the bounds that Prometheus gets.

Buckets grow by a factor of 2 ** (1/8), so a quantile is at most 9 % too high. Bucket i counts values in seconds in
(2 ** ((i - 1) / 8), 2 ** (i / 8)]: the buckets of Prometheus' native histograms of schema 3. Every eighth bound is a
power of two, so classic buckets with powers of two as bounds are exact sums of these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

import msgspec

from duetime.domain.instants import SECOND

SCHEMA = 3
STEPS: int = 2**SCHEMA  # buckets for each doubling
LONGEST: int = 2**20  # seconds, twelve days: longer durations count as this long
LAST = 20 * STEPS
SHORT = 16_384  # ms: durations below are looked up in a table, which costs half of computing their buckets


class Histogram(msgspec.Struct, eq=True):
    """Durations in ms. `buckets` maps the number of a bucket to its count; `zero` counts durations below 1 ms."""

    zero: int = 0
    total: int = 0  # ms, the sum of all
    buckets: dict[int, int] = msgspec.field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.zero + sum(self.buckets.values())

    def add(self, durations: Iterable[int]) -> None:
        """Adds durations in ms. Nearly all are short: their buckets are looked up and counted in C."""
        values, buckets = list(durations), self.buckets
        if values and min(values) > 0 and max(values) < SHORT:
            self.total += sum(values)
            for bucket, number in Counter(map(_short().__getitem__, values)).items():
                buckets[bucket] = buckets.get(bucket, 0) + number
            return
        for duration, number in Counter(values).items():
            if duration <= 0:
                self.zero += number
                continue
            self.total += duration * number
            bucket = bucket_of(duration)
            buckets[bucket] = buckets.get(bucket, 0) + number

    def merge(self, other: Histogram) -> None:
        self.zero += other.zero
        self.total += other.total
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number

    def quantile(self, share: float) -> int | None:
        """Returns a duration in ms that `share` of all durations don't exceed; None if there are none."""
        count = self.count
        if not count:
            return None
        left = max(1, math.ceil(share * count)) - self.zero
        if left <= 0:
            return 0
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                break
        return math.floor(upper_bound(bucket) * SECOND)


def merged(histograms: Iterable[Histogram]) -> Histogram:
    found = Histogram()
    for histogram in histograms:
        found.merge(histogram)
    return found


@cache
def _short() -> list[int]:
    """Returns the buckets of all durations below SHORT, by duration."""
    return [0, *map(bucket_of, range(1, SHORT))]


@lru_cache(maxsize=16_384)
def bucket_of(duration: int) -> int:
    """Returns the bucket of a duration in ms, which is 1 at least."""
    seconds = min(duration / SECOND, LONGEST)
    bucket = math.ceil(math.log2(seconds) * STEPS)
    # The logarithm is rounded: a duration at a bound, or a hair beside it, could be counted one bucket off.
    if upper_bound(bucket - 1) >= seconds:
        return bucket - 1
    return bucket if upper_bound(bucket) >= seconds else bucket + 1


def upper_bound(bucket: int) -> float:
    """Returns the largest duration of a bucket, in seconds."""
    return float(2.0 ** (bucket / STEPS))


def cumulative(buckets: Mapping[int, int], zero: int, bounds: Iterable[int]) -> list[int]:
    """Returns for each bound how many durations don't exceed it. `bounds`: exponents of two, rising."""
    found, count, rest = [], zero, sorted(buckets)
    at = 0
    for exponent in bounds:
        while at < len(rest) and rest[at] <= exponent * STEPS:
            count += buckets[rest[at]]
            at += 1
        found.append(count)
    return found
