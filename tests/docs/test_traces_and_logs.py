"""The reference lists each span with its attributes, and each line with its facts, as the code has them."""

from __future__ import annotations

import re

from docs.pages import ROOT, text
from duetime.domain.log_levels import AREAS
from duetime.telemetry import request_log
from duetime.telemetry.lifecycle import LINES
from duetime.telemetry.spans import SPANS

PAGE = text("docs/reference/traces-and-logs.md")


def table(heading: str) -> dict[str, tuple[str, ...]]:
    """Returns the names in the last column of a section's table, by the name in its first one."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| .* \| ([^|]*) \|$", section, re.MULTILINE)
    return {name: tuple(re.findall(r"`([^`]+)`", last)) for name, last in rows}


def test_exactly_the_spans_are_documented_with_their_attributes() -> None:
    assert table("Spans") == SPANS


def test_exactly_the_lines_of_jobs_and_executions_are_documented() -> None:
    assert table("Lines of jobs and executions") == LINES


def test_exactly_the_lines_of_requests_are_documented() -> None:
    lines = (request_log.EVENT_SERVED, request_log.EVENT_FAILED)
    assert table("Lines of requests") == dict.fromkeys(lines, request_log.FACTS)


def test_exactly_the_lines_of_the_exporter_are_documented() -> None:
    source = (ROOT / "src" / "duetime" / "telemetry" / "span_queue.py").read_text()
    assert set(table("Lines of the exporter")) == set(re.findall(r"log\.\w+\(\"(.+?)\"", source))


def test_exactly_the_areas_are_documented() -> None:
    section = PAGE.split("\nAreas: ")[1]
    assert tuple(re.findall(r"`(\w+)`", section)) == AREAS
