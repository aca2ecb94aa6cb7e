"""Encodes metrics as Prometheus' protobuf messages: the only form of exposition that has native histograms.

prometheus_client writes text only. The messages are few and have not changed for years: `io.prometheus.client`, in
https://github.com/prometheus/client_model. Each MetricFamily is preceded by its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from duetime.domain.histogram import SCHEMA, cumulative
from duetime.telemetry.prometheus.families import HistogramMetric, Shape

MEDIA_TYPE = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{MEDIA_TYPE}; proto=io.prometheus.client.MetricFamily; encoding=delimited"

_TYPES = {"counter": 0, "gauge": 1, "unknown": 3, "histogram": 4}
_VALUE_FIELDS = {"counter": 3, "gauge": 2, "unknown": 5}  # of a Metric; each is a message whose first field is a double


def encode(metrics: Iterable[Metric]) -> bytes:
    return b"".join(_delimited(_family(metric)) for metric in metrics)


def _family(metric: Metric) -> bytes:
    suffix = "_total" if metric.type == "counter" else ""
    kind = metric.type if metric.type in _TYPES else "unknown"
    head = _text(1, metric.name + suffix) + _text(2, metric.documentation) + _number(3, _TYPES[kind])
    if isinstance(metric, HistogramMetric):
        return head + b"".join(_message(4, _series(metric, shape)) for shape in metric.shapes)
    field = _VALUE_FIELDS[kind]
    samples = [sample for sample in metric.samples if sample.name == metric.name + suffix]
    return head + b"".join(
        _message(4, _labels(sample.labels) + _message(field, _double(1, sample.value))) for sample in samples
    )


def _series(metric: HistogramMetric, shape: Shape) -> bytes:
    classic = b"".join(
        _message(3, _number(1, count) + _double(2, 2.0**exponent))
        for exponent, count in zip(
            metric.exponents, cumulative(shape.buckets, shape.zero, metric.exponents), strict=True
        )
    )
    spans, deltas = _native(shape.buckets)
    histogram = (
        _number(1, shape.count) + _double(2, shape.sum) + classic + _number(5, _zigzag(SCHEMA))
        + _double(6, 2.0**shape.zero_exponent) + _number(7, shape.zero) + spans
        + (_message(13, b"".join(map(_varint, map(_zigzag, deltas)))) if deltas else b"")
    )  # fmt: skip
    return _labels(shape.labels) + _message(7, histogram)


def _native(buckets: Mapping[int, int]) -> tuple[bytes, Sequence[int]]:
    """Returns the spans of adjacent buckets, and the counts as differences from the bucket before.

    The offset of the first span is the number of its first bucket; of another, the gap after the span before it.
    """
    spans, deltas = b"", list[int]()
    numbers = sorted(buckets)
    begin, next_free, before = 0, 0, 0
    for place, number in enumerate(numbers):
        deltas.append(buckets[number] - before)
        before = buckets[number]
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            first = numbers[begin]
            spans += _message(12, _number(1, _zigzag(first - next_free)) + _number(2, place + 1 - begin))
            begin, next_free = place + 1, number + 1
    return spans, deltas


def _labels(labels: Mapping[str, str]) -> bytes:
    return b"".join(_message(1, _text(1, name) + _text(2, value)) for name, value in sorted(labels.items()))


# The wire format: a field's number and type, then its value.


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _delimited(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _delimited(data)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
