"""Builds the responses about jobs (`wire.jobs`) from records, and encodes responses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import msgspec

from duetime.domain.defaults import policy_of, timeout_of
from duetime.domain.instants import LATEST, format_instant
from duetime.domain.job import JobType
from duetime.domain.payloads import HttpRequest, Payload, PythonCall, Script, SqlQuery
from duetime.domain.secrets import hide_payload
from duetime.ports.store import JobRecord
from duetime.wire.jobs import (
    HttpJobView,
    HttpRequestView,
    JobView,
    PythonCallView,
    PythonJobView,
    ScriptJobView,
    ScriptView,
    SqlJobView,
    SqlQueryView,
)

encode = msgspec.json.encode
# An instant for a field of a wire struct. The server fills in the text, always with milliseconds, which is encoded as
# it is; a datetime would be encoded with microseconds, or without a fraction. The client decodes a datetime.
instant = cast(Callable[[int], datetime], format_instant)


def instant_or_none(at: int | None) -> datetime | None:
    """Returns an instant for a field of a wire struct; None for the end of time, when jobs on demand are due."""
    return None if at is None or at >= LATEST else instant(at)


def view_job(record: JobRecord, lateness: list[int] | None = None) -> JobView:
    spec = record.spec
    ordered = sorted(lateness) if lateness else []
    finished = record.successes + record.failures
    view: JobView = _VIEWS[spec.type](
        job_id=record.job_id,
        **{name: getattr(spec, name) for name in _FROM_SPEC},
        payload=_view_payload(spec.payload),
        retry_policy=policy_of(spec),
        timeout_seconds=timeout_of(spec),
        status=record.status,
        version=record.version,
        next_run_time=instant_or_none(record.due_at),
        last_run_time=instant_or_none(record.last_run_at),
        last_state=record.last_state,
        created_at=instant(record.created_at),
        created_by=record.owner,
        updated_at=instant(record.updated_at),
        execution_count=record.runs,
        success_count=record.successes,
        failure_count=record.failures,
        avg_execution_time_ms=round(record.busy_ms / finished, 1) if finished else None,
        lateness_p50_ms=_percentile(ordered, 0.50),
        lateness_p99_ms=_percentile(ordered, 0.99),
    )
    return view


_FROM_SPEC = (
    "name", "description", "key", "schedule", "timezone", "priority", "start_at", "end_at", "max_runs", "catch_up",
    "overlap", "jitter_seconds", "dst", "delivery", "after", "on", "webhooks", "tags",
)  # fmt: skip
_VIEWS: dict[JobType, Any] = {
    JobType.HTTP_REQUEST: HttpJobView,
    JobType.SCRIPT: ScriptJobView,
    JobType.SQL_QUERY: SqlJobView,
    JobType.PYTHON: PythonJobView,
}


def _view_payload(payload: Payload) -> HttpRequestView | ScriptView | SqlQueryView | PythonCallView:
    match hide_payload(payload):
        case HttpRequest() as shown:
            return HttpRequestView(
                shown.url, shown.method, shown.headers, shown.body, shown.expect_status, shown.secret
            )
        case Script() as shown:
            return ScriptView(shown.argv, shown.script, shown.interpreter, shown.env, shown.cwd)
        case SqlQuery() as shown:
            return SqlQueryView(shown.connection, shown.statement, shown.parameters, shown.secret)
        case PythonCall() as shown:
            return PythonCallView(shown.function, shown.args, shown.kwargs, shown.secret)


def _percentile(ordered: list[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None
