"""Metrics of the API: requests by route, and what it refused."""

from __future__ import annotations

from duetime.domain.errors import DuetimeError, InsufficientStorage, QuotaExceeded
from duetime.telemetry.emitted import JobRefused, NotificationRefused, RequestServed
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import OTHER, Counter, Distribution

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
UNKNOWN_ROUTE = "none"
SECONDS = range(-10, 6, 2)  # from 1 ms to 16 s; few, since there is a series for each route


class ApiMetrics:
    def __init__(self, telemetry: Telemetry) -> None:
        self.rejections = Counter(
            "job_rejections", "Jobs, and changes of jobs, that were refused, by reason: memory and job_count (the "
            "store is full), quota, or the code of the error.",
            ["reason"], starts=[("memory",), ("job_count",), ("quota",)],
        )  # fmt: skip
        self.refused_notifications = Counter(
            "notifications_refused", "Notifications that could not be stored, by reason.", ["reason"],
            starts=[("memory",), ("job_count",), ("quota",), ("other",)],
        )  # fmt: skip
        self.requests = Counter(
            "api_requests", "Requests to the API, by method, route (a template; none: no route matched) and status.",
            ["method", "route", "status"], most=1000,
        )  # fmt: skip
        self.seconds = Distribution(
            "api_response_seconds", "Time from a request's headers until its response begins, by method and route.",
            ["method", "route"], exponents=SECONDS,
        )  # fmt: skip
        telemetry.subscribe(JobRefused, self._note_refused_job)
        telemetry.subscribe(NotificationRefused, self._note_refused_notification)
        telemetry.subscribe(RequestServed, self._note_request)

    def _note_refused_job(self, refused: JobRefused) -> None:
        self.rejections.add(1, _reason(refused.error, refused.error.code.lower()))

    def _note_refused_notification(self, refused: NotificationRefused) -> None:
        self.refused_notifications.add(1, _reason(refused.error, OTHER))

    def _note_request(self, served: RequestServed) -> None:
        method = served.method if served.method in METHODS else OTHER
        route = served.route or UNKNOWN_ROUTE
        self.requests.add(1, method, route, str(served.status))
        self.seconds.of(method, route).observe(served.seconds)


def _reason(error: DuetimeError, otherwise: str) -> str:
    if isinstance(error, InsufficientStorage):
        return error.kind
    return "quota" if isinstance(error, QuotaExceeded) else otherwise
