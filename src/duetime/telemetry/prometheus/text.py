"""Writes metrics in Prometheus' text format, version 0.0.4.

prometheus_client writes it too, but takes ten times as long, on the event loop: a node has thousands of series, most of
them buckets. Here the labels of a histogram are written once for all its buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from prometheus_client.metrics_core import Metric

from duetime.domain.histogram import cumulative
from duetime.telemetry.prometheus.families import HistogramMetric, Shape

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def encode(metrics: Iterable[Metric]) -> bytes:
    return "".join(line for metric in metrics for line in _family(metric)).encode()


def _family(metric: Metric) -> Iterator[str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    kind = "untyped" if metric.type == "unknown" else metric.type
    yield f"# HELP {name} {_escaped_help(metric.documentation)}\n# TYPE {name} {kind}\n"
    if isinstance(metric, HistogramMetric):
        for shape in metric.shapes:
            yield from _buckets(metric, shape)
        return
    for sample in metric.samples:
        labels = _labels(sample.labels)
        yield f"{sample.name}{{{labels}}} {number(sample.value)}\n" if labels else f"{name} {number(sample.value)}\n"


def _buckets(metric: HistogramMetric, shape: Shape) -> Iterator[str]:
    name, labels, count = metric.name, _labels(shape.labels), shape.count
    begin = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
    counts = cumulative(shape.buckets, shape.zero, metric.exponents)
    for exponent, up_to in zip(metric.exponents, counts, strict=True):
        yield f'{begin}le="{bound(exponent)}"}} {up_to}\n'
    shown = f"{{{labels}}}" if labels else ""
    yield (f'{begin}le="+Inf"}} {count}\n{name}_count{shown} {count}\n{name}_sum{shown} {number(shape.sum)}\n')


@lru_cache(maxsize=256)
def bound(exponent: int) -> str:
    return repr(2.0**exponent)


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


@lru_cache(maxsize=4096)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
