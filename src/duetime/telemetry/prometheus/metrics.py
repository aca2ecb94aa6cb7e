"""All metrics of a node, and their two forms of exposition: text, and protobuf with native histograms."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.metrics_core import Metric

from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus import protobuf, text
from duetime.telemetry.prometheus.alerts import AlertMetrics
from duetime.telemetry.prometheus.api import ApiMetrics
from duetime.telemetry.prometheus.attempts import AttemptMetrics
from duetime.telemetry.prometheus.cluster import ClusterMetrics
from duetime.telemetry.prometheus.families import AnyFamily, families_of
from duetime.telemetry.prometheus.gauges import EngineGauges, NodeGauges, QueueGauges, StoreGauges
from duetime.telemetry.prometheus.objectives import ObjectiveMetrics
from duetime.telemetry.prometheus.spans import SpanMetrics
from duetime.telemetry.prometheus.stages import StageWaits
from duetime.telemetry.prometheus.writes import WriteMetrics
from duetime.telemetry.readings import Readings


class Metrics:
    """Subscribes at once, so that it counts from the start. `render` sets the gauges."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.stages = StageWaits()
        self.writes = WriteMetrics(telemetry, self.stages)
        self.attempts = AttemptMetrics(telemetry, self.stages, self.writes.skipped.add)
        self.api = ApiMetrics(telemetry)
        self.cluster = ClusterMetrics(telemetry)
        self.objectives = ObjectiveMetrics(telemetry)
        self.alerts = AlertMetrics(telemetry)
        self.spans = SpanMetrics(telemetry)
        self.queue = QueueGauges()
        self.engine = EngineGauges()
        self.store = StoreGauges()
        self.node = NodeGauges()
        # The standard names of all Python programs: process_*, python_gc_*.
        self._interpreter = CollectorRegistry()
        ProcessCollector(registry=self._interpreter)
        GCCollector(registry=self._interpreter)

    def families(self) -> list[AnyFamily]:
        """Returns all families of Duetime itself."""
        return [family for part in vars(self).values() for family in families_of(part)]

    def render(self, readings: Readings, accept: str = "") -> tuple[str, bytes]:
        """Returns the content type and the metrics, in the form that the scraper accepts."""
        self.queue.set(readings)
        self.engine.set(readings.engine)
        self.store.set(readings)
        self.node.set(readings)
        if protobuf.MEDIA_TYPE in accept:
            return protobuf.CONTENT_TYPE, protobuf.encode(self.collect())
        return text.CONTENT_TYPE, text.encode(self.collect())

    def collect(self) -> Iterator[Metric]:
        for family in self.families():
            yield family.collect()
        yield from self._interpreter.collect()
