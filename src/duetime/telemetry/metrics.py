"""Metrics for Prometheus. Gauges are set when they are scraped; counters count events when they happen."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import DuetimeError, InsufficientStorage, QuotaExceeded
from duetime.domain.instants import SECOND
from duetime.telemetry.emitted import JobRefused, NotificationRefused
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.objective_metrics import ObjectiveMetrics


class Metrics:
    """The metrics of one node, in their own registry."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._registry = registry = CollectorRegistry()

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"duetime_queue_{name}", what, registry=registry)

        self._bytes = gauge("memory_usage_bytes", "bytes of all jobs' definitions")
        self._most_bytes = gauge("memory_limit_bytes", "limit on these bytes; +Inf: no limit")
        self._percent = gauge("memory_utilization_percent", "usage of the limit")
        self._jobs = gauge("job_count", "jobs, of all tenants")
        self._most_jobs = gauge("job_limit", "limit on the number of jobs; +Inf: no limit")
        self._clock_offset = Gauge(
            "duetime_clock_offset_seconds",
            "how far this node's clock is ahead of the database's; NaN: there is no other clock",
            registry=registry,
        )
        self._rejections = Counter(
            "duetime_job_rejections", "jobs that were refused because the store was full", ["reason"], registry=registry
        )
        for reason in ("memory", "job_count"):
            self._rejections.labels(reason)
        self._refused_notifications = Counter(
            "duetime_notifications_refused", "notifications that could not be stored", ["reason"], registry=registry
        )
        for reason in ("memory", "job_count", "quota", "other"):
            self._refused_notifications.labels(reason)
        self._objectives = ObjectiveMetrics(registry, telemetry)
        telemetry.subscribe(JobRefused, self._note_refused_job)
        telemetry.subscribe(NotificationRefused, self._note_refused_notification)

    def _note_refused_job(self, refused: JobRefused) -> None:
        if isinstance(refused.error, InsufficientStorage):
            self._rejections.labels(refused.error.kind).inc()

    def _note_refused_notification(self, refused: NotificationRefused) -> None:
        self._refused_notifications.labels(_reason(refused.error)).inc()

    def render(self, load: Load, capacity: Capacity, clock_offset: int | None = None) -> bytes:
        """Returns the metrics as text for Prometheus. `clock_offset` is in ms."""
        self._clock_offset.set(float("nan") if clock_offset is None else clock_offset / SECOND)
        most_bytes, most_jobs = capacity.most_bytes, capacity.most_jobs
        self._bytes.set(load.bytes)
        self._most_bytes.set(float("inf") if most_bytes is None else most_bytes)
        self._percent.set(0 if most_bytes is None else 100 * load.bytes / most_bytes)
        self._jobs.set(load.jobs)
        self._most_jobs.set(float("inf") if most_jobs is None else most_jobs)
        return generate_latest(self._registry)


def _reason(error: DuetimeError) -> str:
    if isinstance(error, InsufficientStorage):
        return error.kind
    return "quota" if isinstance(error, QuotaExceeded) else "other"
