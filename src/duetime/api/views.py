"""Builds the responses about jobs and executions (`wire`) from records, and encodes responses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import msgspec

from duetime.domain.defaults import policy_of, timeout_of
from duetime.domain.durations import format_duration
from duetime.domain.execution import attempts_made
from duetime.domain.instants import LATEST, format_instant
from duetime.domain.job import JobType
from duetime.domain.objectives import Budget, Objective
from duetime.domain.payloads import HttpRequest, Notice, Payload, PythonCall, Script, SqlQuery
from duetime.domain.secrets import hide_payload
from duetime.domain.states import State
from duetime.ports.store import AttemptRecord, ExecutionRecord, JobRecord, SkippedRecord
from duetime.wire.executions import AttemptView, ExecutionView, SkippedView
from duetime.wire.jobs import (
    HttpJobView,
    HttpRequestView,
    JobView,
    NoticeJobView,
    NoticeView,
    ObjectiveView,
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


def view_job(
    record: JobRecord, lateness: list[int] | None = None, objectives: list[ObjectiveView] | None = None
) -> JobView:
    spec = record.spec
    ordered = sorted(lateness) if lateness else []
    finished = record.successes + record.failures
    view: JobView = _VIEWS[spec.type](
        job_id=record.job_id, payload=_view_payload(spec.payload), retry_policy=policy_of(spec),
        timeout_seconds=timeout_of(spec), status=record.status, version=record.version,
        next_run_time=instant_or_none(record.due_at), last_run_time=instant_or_none(record.last_run_at),
        last_state=record.last_state, created_at=instant(record.created_at), created_by=record.owner,
        updated_at=instant(record.updated_at), execution_count=record.runs, success_count=record.successes,
        failure_count=record.failures,
        avg_execution_time_ms=round(record.busy_ms / finished, 1) if finished else None,
        lateness_p50_ms=_percentile(ordered, 0.50), lateness_p99_ms=_percentile(ordered, 0.99),
        objectives=objectives, **{name: getattr(spec, name) for name in _FROM_SPEC},
    )  # fmt: skip
    return view


_FROM_SPEC = (
    "name", "description", "key", "schedule", "timezone", "priority", "start_at", "end_at", "max_runs", "catch_up",
    "overlap", "jitter_seconds", "dst", "delivery", "after", "on", "webhooks", "slo",
    "expect_every", "tags",
)  # fmt: skip
_VIEWS: dict[JobType, Any] = {
    JobType.HTTP_REQUEST: HttpJobView,
    JobType.SCRIPT: ScriptJobView,
    JobType.SQL_QUERY: SqlJobView,
    JobType.PYTHON: PythonJobView,
    JobType.NOTICE: NoticeJobView,
}


_PayloadView = HttpRequestView | ScriptView | SqlQueryView | PythonCallView | NoticeView


def _view_payload(payload: Payload) -> _PayloadView:
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
        case Notice() as shown:
            return NoticeView(
                shown.channels, shown.title, shown.body, shown.severity, shown.status, shown.dedup_key, shown.data
            )


def view_objective(objective: Objective, budget: Budget) -> ObjectiveView:
    compliance = budget.compliance
    return ObjectiveView(
        kind=objective.kind, target=objective.target, window=format_duration(objective.window),
        lateness_seconds=objective.lateness_seconds, good=budget.good, total=budget.total,
        compliance=None if compliance is None else round(100 * compliance, 4),
        error_budget_left=round(budget.left, 4), errors_left=budget.errors_left,
        burn_rate={span: round(rate, 3) for span, rate in budget.burn_rate.items()},
    )  # fmt: skip


def _percentile(ordered: list[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def view_execution(record: ExecutionRecord) -> ExecutionView:
    started_at, ended_at = record.started_at, record.ended_at
    return ExecutionView(
        execution_id=record.execution_id, job_id=record.job_id, state=record.state, reason=record.reason,
        trigger=record.trigger, scheduled_at=instant(record.scheduled_at), start_time=instant_or_none(started_at),
        end_time=instant_or_none(ended_at), duration_ms=_between(started_at, ended_at),
        lateness_ms=_between(record.scheduled_at, started_at), attempt=attempts_made(record.state, record.attempt),
        next_attempt_at=instant_or_none(record.due_at) if record.state in (State.QUEUED, State.RETRYING) else None,
        dead=record.dead, **_result_of(record),
    )  # fmt: skip


def view_attempt(record: AttemptRecord) -> AttemptView:
    return AttemptView(
        attempt=record.attempt, start_time=instant_or_none(record.started_at), end_time=instant(record.ended_at),
        duration_ms=_between(record.started_at, record.ended_at), **_result_of(record),
    )  # fmt: skip


def _result_of(record: ExecutionRecord | AttemptRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _OF_RESULT}


_OF_RESULT = ("http_status", "exit_code", "error_type", "error_message", "response", "worker_id")


def view_skipped(record: SkippedRecord) -> SkippedView:
    return SkippedView(
        first_at=instant(record.first_at), until_at=instant(record.until_at), count=record.count, reason=record.reason,
        decided_at=instant(record.decided_at),
    )  # fmt: skip


def _between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin
