"""A line for each request, at debug; those that fail on our side at info."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from duetime.domain.log_levels import parse_log_levels
from duetime.telemetry.emitted import RequestServed
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.limited_lines import MOST_LINES, LimitedLines
from duetime.telemetry.request_log import FACTS, RequestLog

SERVED = RequestServed("POST", "/api/v1/jobs", 201, 0.0123, "r-1", "acme")
FAILED = RequestServed("GET", "/api/v1/jobs/{job_id}", 500, 0.5, "r-2", "acme")


def lines(levels: str, *served: RequestServed) -> list[dict[str, Any]]:
    before = structlog.get_config()
    structlog.reset_defaults()  # an earlier test may have configured a level
    telemetry = Telemetry()
    RequestLog(telemetry, parse_log_levels(levels), LimitedLines(lambda _, call: None, lambda: 0.0))
    with capture_logs() as found:
        for one in served:
            telemetry.emit(one)
    structlog.configure(**before)
    return list(map(dict, found))


def test_each_request_has_a_line_at_debug():
    (line, _) = lines("info,api=debug", SERVED, FAILED)
    assert line == {
        "event": "request served", "log_level": "debug", "method": "POST", "route": "/api/v1/jobs", "status": 201,
        "ms": 12.3, "tenant": "acme", "request_id": "r-1",
    }  # fmt: skip
    assert line.keys() - {"event", "log_level"} == set(FACTS)


@pytest.mark.parametrize(
    ("levels", "events"),
    [
        ("info", ["request failed"]),
        ("debug", ["request served", "request failed"]),
        ("debug,api=info", ["request failed"]),
        ("info,api=warning", []),
    ],
)
def test_only_failures_have_a_line_at_info(levels: str, events: list[str]):
    assert [line["event"] for line in lines(levels, SERVED, FAILED)] == events


def test_many_failures_cost_few_lines():
    assert len(lines("info", *[FAILED] * 100)) == MOST_LINES
