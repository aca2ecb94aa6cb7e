"""Families of metrics: counters, gauges and histograms whose number of series is bounded by construction.

A family has at most `most` series. Beyond that, every further combination of labels is counted as `other`. So a value
that somebody else chooses (a route, a method, the name of a tenant) can't fill the memory of the node or of Prometheus.
All calls come from the event loop's thread: there are no locks.
"""

from __future__ import annotations

import math
from collections import Counter as Counted
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from prometheus_client.metrics_core import Metric

from duetime.domain.histogram import STEPS, Histogram, upper_bound
from duetime.domain.instants import SECOND

OTHER = "other"
MOST_SERIES = 200
PENDING = 4096  # observations that are kept before they are put into buckets
LEAST_EXPONENT = -16  # observations up to two to this power, 15 µs, are counted as zero
LEAST_MS_EXPONENT = -10  # the same for durations in ms: those below 1 ms

Labels = tuple[str, ...]
S = TypeVar("S")


class Family(Generic[S]):
    """`starts`: combinations of labels that are shown from the start, as zero: Prometheus sees their first increase."""

    kind = ""

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), *, most: int = MOST_SERIES,
        starts: Iterable[Labels] = (),
    ) -> None:  # fmt: skip
        self.name = f"duetime_{name}"
        self.help = help
        self.labels = tuple(labels)
        self._most = most
        self._series: dict[Labels, S] = {}
        for values in starts if labels else [()]:
            self._series[values] = self._new()

    def _new(self) -> S:
        raise NotImplementedError

    def _admitted(self, values: Labels) -> Labels:
        """Returns the labels under which a new combination is counted."""
        return values if len(self._series) < self._most else (OTHER,) * len(self.labels)

    def of(self, *values: str) -> S:
        """Returns the series of these labels."""
        series = self._series.get(values)
        if series is None:
            values = self._admitted(values)
            series = self._series.get(values)
            if series is None:
                series = self._series[values] = self._new()
        return series

    def collect(self) -> Metric:
        raise NotImplementedError

    def _named(self, values: Labels) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


class Counter(Family[float]):
    """Counts events since the start of the process. Its name in Prometheus ends in `_total`."""

    kind = "counter"

    def _new(self) -> float:
        return 0.0

    def add(self, number: float, *values: str) -> None:
        if values not in self._series:
            values = self._admitted(values)
        self._series[values] = self._series.get(values, 0.0) + number

    def set(self, number: float, *values: str) -> None:
        """Sets a counter that another part has counted."""
        self._series[values if values in self._series else self._admitted(values)] = number

    def collect(self) -> Metric:
        metric = Metric(self.name, self.help, "counter")
        for values, number in self._series.items():
            metric.add_sample(f"{self.name}_total", self._named(values), number)
        return metric


class Gauge(Family[float]):
    """A figure as of now."""

    kind = "gauge"

    def _new(self) -> float:
        return 0.0

    def set(self, number: float, *values: str) -> None:
        self._series[values if values in self._series else self._admitted(values)] = number

    def replace(self, numbers: Mapping[Labels, float]) -> None:
        """Replaces all series. Those beyond the bound are summed as `other`."""
        self._series.clear()
        for values, number in numbers.items():
            key = self._admitted(values)
            self._series[key] = self._series.get(key, 0.0) + number

    def collect(self) -> Metric:
        metric = Metric(self.name, self.help, "gauge")
        for values, number in self._series.items():
            metric.add_sample(self.name, self._named(values), number)
        return metric


class Shape:
    """The buckets of one series as of now: those of a native histogram of `domain.histogram.SCHEMA`."""

    __slots__ = ("buckets", "labels", "sum", "zero", "zero_exponent")

    def __init__(
        self, labels: dict[str, str], zero: int, sum: float, buckets: Mapping[int, int], zero_exponent: int
    ) -> None:
        self.labels = labels
        self.zero = zero
        self.sum = sum
        self.buckets = buckets
        self.zero_exponent = zero_exponent

    @property
    def count(self) -> int:
        return self.zero + sum(self.buckets.values())


class HistogramMetric(Metric):
    """A histogram with its buckets as they are: each form of exposition makes of them what it needs."""

    def __init__(self, name: str, help: str, exponents: Sequence[int]) -> None:
        super().__init__(name, help, "histogram")
        self.exponents = exponents
        self.shapes: list[Shape] = []


class Observations:
    """Seconds or sizes that come one by one. To observe one costs an append: they are put into buckets later."""

    __slots__ = ("_buckets", "_pending", "_sum", "_zero")

    def __init__(self) -> None:
        self._pending: list[float] = []
        self._buckets: dict[int, int] = {}
        self._zero = 0
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._pending.append(value)
        if len(self._pending) >= PENDING:
            self._fold()

    def observe_all(self, values: Iterable[float]) -> None:
        self._pending.extend(values)
        if len(self._pending) >= PENDING:
            self._fold()

    def shape(self, labels: dict[str, str]) -> Shape:
        self._fold()
        return Shape(labels, self._zero, self._sum, self._buckets, LEAST_EXPONENT)

    def _fold(self) -> None:
        buckets, least = self._buckets, 2.0**LEAST_EXPONENT
        for value, number in Counted(self._pending).items():  # of whole pages, most are equal
            if value <= least:
                self._zero += number
            else:
                bucket = math.ceil(math.log2(value) * STEPS)
                # The logarithm is rounded: a value a hair above a bound must not be counted below it.
                bucket += value > upper_bound(bucket)
                buckets[bucket] = buckets.get(bucket, 0) + number
        self._sum += sum(self._pending)
        self._pending.clear()


class Distribution(Family[Observations]):
    """A histogram of seconds or sizes. `exponents`: the bounds of its classic buckets are two to these powers."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), *, exponents: Sequence[int], most: int = MOST_SERIES,
        starts: Iterable[Labels] = (),
    ) -> None:  # fmt: skip
        super().__init__(name, help, labels, most=most, starts=starts)
        self._exponents = exponents

    def _new(self) -> Observations:
        return Observations()

    def collect(self) -> HistogramMetric:
        metric = HistogramMetric(self.name, self.help, self._exponents)
        for values, observations in self._series.items():
            metric.shapes.append(observations.shape(self._named(values)))
        return metric


class Durations(Family[Histogram]):
    """A histogram of durations that come in ms, many at a time."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), *, exponents: Sequence[int], most: int = MOST_SERIES,
        starts: Iterable[Labels] = (),
    ) -> None:  # fmt: skip
        super().__init__(name, help, labels, most=most, starts=starts)
        self._exponents = exponents

    def _new(self) -> Histogram:
        return Histogram()

    def collect(self) -> HistogramMetric:
        metric = HistogramMetric(self.name, self.help, self._exponents)
        for values, it in self._series.items():
            shape = Shape(self._named(values), it.zero, it.total / SECOND, it.buckets, LEAST_MS_EXPONENT)
            metric.shapes.append(shape)
        return metric


AnyFamily = Counter | Gauge | Distribution | Durations


def families_of(holder: object) -> list[AnyFamily]:
    """Returns the families that are attributes of an object, in the order in which they were set."""
    return [value for value in vars(holder).values() if isinstance(value, AnyFamily)]
