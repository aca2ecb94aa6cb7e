"""A log line for each request: at debug, and at info for those that failed on this side (5xx)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duetime.domain.log_levels import LogLevels
from duetime.telemetry.emitted import RequestServed
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.limited_lines import LimitedLines, log

FAILED = 500
EVENT_SERVED, EVENT_FAILED = "request served", "request failed"
FACTS = ("method", "route", "status", "ms", "tenant", "request_id")


class RequestLog:
    def __init__(self, telemetry: Telemetry, levels: LogLevels, lines: LimitedLines) -> None:
        self._lines = lines
        self._is_debugging = levels.shows("api", "debug")
        if levels.shows("api", "info"):
            telemetry.subscribe(RequestServed, self._note)

    def _note(self, served: RequestServed) -> None:
        if served.status >= FAILED:
            self._lines.write(EVENT_FAILED, (served,), _facts, _tenants)
        elif self._is_debugging:
            log.debug(EVENT_SERVED, **_facts(served))


def _facts(served: RequestServed) -> dict[str, object]:
    return {
        "method": served.method, "route": served.route, "status": served.status, "ms": round(1000 * served.seconds, 1),
        "tenant": served.tenant, "request_id": served.request_id,
    }  # fmt: skip


def _tenants(rows: Sequence[Any]) -> list[str]:
    return [row.tenant for row in rows]
