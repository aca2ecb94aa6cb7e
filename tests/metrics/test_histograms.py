"""Histograms: classic buckets in the text, native ones in protobuf, and both tell of the same observations."""

from __future__ import annotations

import math
import re
import struct
from types import SimpleNamespace

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from duetime.domain.histogram import Histogram, bucket_of
from duetime.telemetry.emitted import LoopLagged
from duetime.telemetry.prometheus import protobuf, text
from duetime.telemetry.prometheus.families import PENDING, Counter, Distribution, Durations, Gauge
from metrics import exposition
from metrics.scene import Scene, lines_of, samples_of

SPAN = range(-2, 3)


def test_classic_buckets_are_cumulative_and_their_bounds_belong_to_them() -> None:
    lag = Distribution("lag_seconds", "Help.", exponents=SPAN)
    for seconds in (0.0, 0.25, 0.2500001, 1.0, 4.0, 9.0):
        lag.of().observe(seconds)
    found = lines_of(lag)
    assert found.pop("duetime_lag_seconds_sum") == pytest.approx(14.5000001)
    assert found.pop("duetime_lag_seconds_count") == 6
    buckets = {"0.25": 2, "0.5": 3, "1.0": 4, "2.0": 4, "4.0": 5, "+Inf": 6}
    assert found == {f'duetime_lag_seconds_bucket{{le="{le}"}}': count for le, count in buckets.items()}


@pytest.mark.parametrize("exponent", range(-10, 13))
def test_a_value_a_hair_above_a_bound_is_not_counted_below_it(exponent: int) -> None:
    family = Distribution("x_seconds", "Help.", exponents=[exponent])
    family.of().observe(2.0**exponent)
    family.of().observe(math.nextafter(2.0**exponent, math.inf))
    assert [value for name, value in lines_of(family).items() if "_bucket" in name] == [1, 2]


def test_observations_are_the_same_whether_they_were_put_into_buckets_early_or_late() -> None:
    lag = Distribution("lag_seconds", "Help.", exponents=SPAN)
    for _ in range(PENDING + 10):
        lag.of().observe(0.3)
    assert lines_of(lag)["duetime_lag_seconds_count"] == PENDING + 10


@given(st.lists(st.integers(0, 10_000_000), max_size=50))
def test_durations_in_ms_and_seconds_fall_into_the_same_buckets(durations: list[int]) -> None:
    exact = Histogram()
    exact.add(durations)
    seconds = Distribution("x_seconds", "Help.", exponents=SPAN)
    seconds.of().observe_all(duration / 1000 for duration in durations)
    shape = seconds.of().shape({})
    assert dict(shape.buckets) == exact.buckets
    assert shape.count == exact.count


@given(st.lists(st.integers(0, 10_000_000), max_size=50))
def test_the_native_histogram_has_the_same_counts(durations: list[int]) -> None:
    family = Durations("x_seconds", "Help.", ["type"], exponents=SPAN)
    family.of("a").add(durations)
    (found,) = exposition.families(protobuf.encode([family.collect()])).values()
    histogram = exposition.message(exposition.message(found[4][0])[7][0])
    assert exposition.native(histogram) == family.of("a").buckets
    assert histogram[1] == [len(durations)]
    assert histogram[7] == [durations.count(0)]
    assert histogram[2] == [pytest.approx(sum(durations) / 1000)]


def test_a_native_histogram_says_its_schema_and_what_counts_as_zero() -> None:
    family = Durations("x_seconds", "Help.", exponents=SPAN)
    family.of().add([1])
    (found,) = exposition.families(protobuf.encode([family.collect()])).values()
    histogram = exposition.message(exposition.message(found[4][0])[7][0])
    assert exposition.unzigzag(histogram[5][0]) == 3
    assert histogram[6] == [2.0**-10]
    # The lowest bucket begins where zero ends.
    assert bucket_of(1) - 1 >= -10 * 8
    assert [exposition.message(bucket)[2][0] for bucket in histogram[3]] == [0.25, 0.5, 1.0, 2.0, 4.0]


def test_the_scraper_chooses_the_form() -> None:
    scene = Scene()
    kind, _ = scene.metrics.render(scene.readings)
    assert kind == CONTENT_TYPE_PLAIN_0_0_4
    for accept in ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "*/*"):
        assert scene.metrics.render(scene.readings, accept)[0] == kind
    wanted = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,*/*;q=0.1"
    assert scene.metrics.render(scene.readings, wanted)[0] == protobuf.CONTENT_TYPE


def test_both_forms_have_the_same_metrics_and_values() -> None:
    scene = Scene()
    scene.emit(LoopLagged(0.3), LoopLagged(0.7))
    scene.read(shards=7)
    text = samples_of(scene.text())
    found = exposition.families(protobuf.encode(scene.metrics.collect()))
    assert {name for name in found if name.startswith("duetime")} == {
        f"{family.name}_total" if family.kind == "counter" else family.name for family in scene.metrics.families()
    }
    gauge = exposition.message(exposition.message(found["duetime_shards_owned"][4][0])[2][0])
    assert gauge[1] == [7.0] == [text["duetime_shards_owned"]]
    counter = found["duetime_executions_created_total"]
    names = {exposition.labels(exposition.message(metric))["trigger"] for metric in counter[4]}
    assert names == {"schedule", "manual", "retry", "catch_up", "after"}
    assert found["process_cpu_seconds_total"][3] == [0]
    lag = exposition.message(exposition.message(found["duetime_event_loop_lag_seconds"][4][0])[7][0])
    assert lag[1] == [2]


def test_the_decoder_is_not_the_encoder() -> None:
    """A message written by hand, byte by byte: name x, help h, a gauge of 1.5 with the label a=b."""
    data = b"\x0a\x01x\x12\x01h\x18\x01\x22\x13\x0a\x06\x0a\x01a\x12\x01b\x12\x09\x09" + struct.pack("<d", 1.5)
    family = exposition.families(bytes([len(data)]) + data)["x"]
    metric = exposition.message(family[4][0])
    assert exposition.labels(metric) == {"a": "b"}
    registry = CollectorRegistry()
    prometheus_client.Gauge("x", "h", ["a"], registry=registry).labels("b").set(1.5)
    assert protobuf.encode(registry.collect()) == bytes([len(data)]) + data


def test_the_text_is_that_of_prometheus_client() -> None:
    """With every kind and odd values. Byte by byte, except large numbers: they differ in form only."""
    odd = 'a"b\\c\nd'
    gauge, counter = Gauge("g", f"Help {odd}.", ["a"]), Counter("c", "Help.", ["a"])
    for number, value in enumerate((0, -1.5, 0.001, math.inf, -math.inf, math.nan, 12345.678)):
        gauge.set(value, f"{odd}{number}")
        counter.add(abs(value), f"{odd}{number}")
    plain = Gauge("plain", "Help.")
    plain.set(3)
    metrics = [gauge.collect(), counter.collect(), plain.collect()]
    assert text.encode(metrics) == generate_latest(SimpleNamespace(collect=lambda: metrics))
    plain.set(1e300)
    assert lines_of(plain) == {"duetime_plain": 1e300}


def test_a_histogram_has_the_text_of_prometheus_client() -> None:
    registry = CollectorRegistry()
    theirs = prometheus_client.Histogram("duetime_x_seconds", "Help.", ["a"], buckets=(0.25, 0.5, 1), registry=registry)
    ours = Distribution("x_seconds", "Help.", ["a"], exponents=range(-2, 1))
    for value in (0.1, 0.25, 0.3, 2.0):
        theirs.labels("b").observe(value)
        ours.of("b").observe(value)
    created = re.compile(r"^(# \w+ )?duetime_x_seconds_created.*\n", re.MULTILINE)
    assert lines_of(ours) == samples_of(created.sub("", generate_latest(registry).decode()))
