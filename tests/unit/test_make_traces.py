"""Traces are on if there is a collector, and OpenTelemetry is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from duetime.assembly import make_traces
from duetime.domain.sampling import NOTHING, Sampling
from duetime.settings import BadSetting
from duetime.settings.loading import load
from duetime.telemetry import otlp
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry
from patience import PATIENCE_SECONDS

URL = "http://127.0.0.1:4318"


class Subscribed(Telemetry):
    @property
    def kinds(self) -> set[type]:
        return set(self._subscribers)


def test_a_collector_turns_traces_on():
    telemetry = Subscribed()
    settings = load({"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, {})
    sampling, queue = make_traces(settings, telemetry)
    assert (sampling, queue is not None) == (Sampling.of(0.01), True)
    assert telemetry.kinds == {AttemptsEnded, Written}


@pytest.mark.parametrize("given", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "TRACES_SAMPLE_RATIO": "0"}])
def test_without_them_nothing_is_subscribed(given: dict[str, str | None]):
    telemetry = Subscribed()
    assert make_traces(load(given, {}), telemetry) == (NOTHING, None)
    assert telemetry.kinds == set()


def test_a_node_without_opentelemetry_runs_and_says_so(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "duetime.telemetry.otlp"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with capture_logs() as lines:
        made = make_traces(load({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}), Telemetry())
    assert made == (NOTHING, None)
    assert [("duetime[otel]" in line["event"], line["log_level"]) for line in lines] == [(True, "warning")]


def test_a_setting_that_the_exporter_refuses_does_not_prevent_the_start(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: str) -> None:
        raise ValueError("'s3cret' is not a valid Compression")

    monkeypatch.setattr(otlp, "open_collector", refuse)
    with capture_logs() as lines:
        made = make_traces(load({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}), Telemetry())
    assert made == (NOTHING, None)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "s3cret" not in repr(lines)


@pytest.mark.parametrize(
    "url",
    ["ftp://s3cret", "http://", "http://:4318", "http://user:s3cret@otel.example", "http://otel.example/?key=s3cret",
     "http://otel.example:s3cret", "otel.example:4318", "http://[s3cret"],
)  # fmt: skip
def test_a_url_of_no_collector_is_refused_and_not_shown(url: str):
    with pytest.raises(BadSetting) as refused:
        load({}, {"DUETIME_OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_opentelemetry_is_not_imported_without_a_collector():
    code = "import sys, duetime.node; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_SECONDS, check=True)
