"""What the API responds with about executions: their states, attempts, skipped instants and logs."""

from __future__ import annotations

from typing import Any

import msgspec

from duetime.api.views import text
from duetime.domain.execution import attempts_made
from duetime.domain.instants import format_instant
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import AttemptRecord, ExecutionRecord, SkippedRecord


class ExecutionView(msgspec.Struct, frozen=True):
    execution_id: str
    job_id: str
    state: State
    reason: str | None
    trigger: Trigger
    scheduled_at: str
    start_time: str | None
    end_time: str | None
    duration_ms: int | None
    lateness_ms: int | None
    attempt: int
    next_attempt_at: str | None
    http_status: int | None
    exit_code: int | None
    error_type: ErrorType | None
    error_message: str | None
    response: str | None
    worker_id: str | None
    dead: bool


class SkippedView(msgspec.Struct, frozen=True):
    """Instants from `first_at` up to, not including, `until_at` that were decided against."""

    first_at: str
    until_at: str
    count: int | None
    reason: str
    decided_at: str


class ExecutionList(msgspec.Struct, frozen=True):
    executions: list[ExecutionView]
    total: int
    limit: int
    offset: int
    has_more: bool
    next_cursor: str | None
    skipped: list[SkippedView] = []


class AttemptView(msgspec.Struct, frozen=True):
    attempt: int
    worker_id: str | None
    start_time: str | None
    end_time: str
    duration_ms: int | None
    http_status: int | None
    exit_code: int | None
    error_type: ErrorType | None
    error_message: str | None
    response: str | None


class ExecutionDetail(msgspec.Struct, frozen=True):
    """`progress` is what a function saved last of how far it is."""

    execution: ExecutionView
    attempts: list[AttemptView]
    progress: Any = None


class Logs(msgspec.Struct, frozen=True):
    execution_id: str
    logs: str
    size_bytes: int
    next_after: int | None = None  # there is more beyond this line


def view_execution(record: ExecutionRecord) -> ExecutionView:
    started_at, ended_at = record.started_at, record.ended_at
    return ExecutionView(
        execution_id=record.execution_id,
        job_id=record.job_id,
        state=record.state,
        reason=record.reason,
        trigger=record.trigger,
        scheduled_at=format_instant(record.scheduled_at),
        start_time=text(started_at),
        end_time=text(ended_at),
        duration_ms=_between(started_at, ended_at),
        lateness_ms=_between(record.scheduled_at, started_at),
        attempt=attempts_made(record.state, record.attempt),
        next_attempt_at=text(record.due_at) if record.state in (State.QUEUED, State.RETRYING) else None,
        http_status=record.http_status,
        exit_code=record.exit_code,
        error_type=record.error_type,
        error_message=record.error_message,
        response=record.response,
        worker_id=record.worker_id,
        dead=record.dead,
    )


def view_attempt(record: AttemptRecord) -> AttemptView:
    return AttemptView(
        attempt=record.attempt,
        worker_id=record.worker_id,
        start_time=text(record.started_at),
        end_time=format_instant(record.ended_at),
        duration_ms=_between(record.started_at, record.ended_at),
        http_status=record.http_status,
        exit_code=record.exit_code,
        error_type=record.error_type,
        error_message=record.error_message,
        response=record.response,
    )


def view_skipped(record: SkippedRecord) -> SkippedView:
    return SkippedView(
        format_instant(record.first_at),
        format_instant(record.until_at),
        record.count,
        record.reason,
        format_instant(record.decided_at),
    )


def _between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin
