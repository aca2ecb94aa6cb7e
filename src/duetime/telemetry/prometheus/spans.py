"""Metrics of the exporter of traces."""

from __future__ import annotations

from duetime.telemetry.emitted import SpansExported
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Counter


class SpanMetrics:
    def __init__(self, telemetry: Telemetry) -> None:
        self.spans = Counter(
            "spans", "Spans of traces, by whether the collector got them.", ["outcome"], starts=[("sent",), ("lost",)]
        )
        telemetry.subscribe(SpansExported, self._note)

    def _note(self, exported: SpansExported) -> None:
        self.spans.add(exported.sent, "sent")
        self.spans.add(exported.lost, "lost")
