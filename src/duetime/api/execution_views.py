"""Builds the responses about executions (`wire.executions`) from records."""

from __future__ import annotations

from duetime.api.views import instant, instant_or_none
from duetime.domain.execution import attempts_made
from duetime.domain.states import State
from duetime.ports.store import AttemptRecord, ExecutionRecord, SkippedRecord
from duetime.wire.executions import AttemptView, ExecutionView, SkippedView


def view_execution(record: ExecutionRecord) -> ExecutionView:
    started_at, ended_at = record.started_at, record.ended_at
    return ExecutionView(
        execution_id=record.execution_id,
        job_id=record.job_id,
        state=record.state,
        reason=record.reason,
        trigger=record.trigger,
        scheduled_at=instant(record.scheduled_at),
        start_time=instant_or_none(started_at),
        end_time=instant_or_none(ended_at),
        duration_ms=_between(started_at, ended_at),
        lateness_ms=_between(record.scheduled_at, started_at),
        attempt=attempts_made(record.state, record.attempt),
        next_attempt_at=instant_or_none(record.due_at) if record.state in (State.QUEUED, State.RETRYING) else None,
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
        start_time=instant_or_none(record.started_at),
        end_time=instant(record.ended_at),
        duration_ms=_between(record.started_at, record.ended_at),
        http_status=record.http_status,
        exit_code=record.exit_code,
        error_type=record.error_type,
        error_message=record.error_message,
        response=record.response,
    )


def view_skipped(record: SkippedRecord) -> SkippedView:
    return SkippedView(
        first_at=instant(record.first_at),
        until_at=instant(record.until_at),
        count=record.count,
        reason=record.reason,
        decided_at=instant(record.decided_at),
    )


def _between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin
