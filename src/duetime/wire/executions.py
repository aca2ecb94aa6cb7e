"""Executions: their states, attempts, skipped instants and logs, and dead letters that run again."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from duetime.wire.words import ErrorTypeWord, Instant, StateWord, TriggerWord

MOST_IDS = 1000  # in one redrive
MOST_REDRIVEN = 10_000


class QueuedRun(msgspec.Struct, frozen=True):
    job_id: str
    execution_id: str
    status: StateWord
    message: str = ""


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    job_id: str
    state: StateWord
    reason: str | None = None
    trigger: TriggerWord
    scheduled_at: Instant
    start_time: Instant | None = None
    end_time: Instant | None = None
    duration_ms: int | None = None
    lateness_ms: int | None = None
    attempt: int = 0
    next_attempt_at: Instant | None = None
    http_status: int | None = None
    exit_code: int | None = None
    error_type: ErrorTypeWord | None = None
    error_message: str | None = None
    response: str | None = None
    worker_id: str | None = None
    dead: bool = False


class SkippedView(msgspec.Struct, frozen=True, kw_only=True):
    """Instants from `first_at` up to, not including, `until_at`, that were skipped."""

    first_at: Instant
    until_at: Instant
    count: int | None = None
    reason: str
    decided_at: Instant


class ExecutionList(msgspec.Struct, frozen=True):
    """`skipped` has the last spans of a job's own history; it is empty in lists across jobs."""

    executions: list[ExecutionView]
    total: int = 0
    limit: int = 0
    offset: int = 0
    has_more: bool = False
    next_cursor: str | None = None
    skipped: list[SkippedView] = []


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    worker_id: str | None = None
    start_time: Instant | None = None
    end_time: Instant
    duration_ms: int | None = None
    http_status: int | None = None
    exit_code: int | None = None
    error_type: ErrorTypeWord | None = None
    error_message: str | None = None
    response: str | None = None


class ExecutionDetail(msgspec.Struct, frozen=True):
    """`progress`: the last value that the function saved."""

    execution: ExecutionView
    attempts: list[AttemptView] = []
    progress: Any = None


class Logs(msgspec.Struct, frozen=True):
    """`next_after`: the last line of this part, if there is more."""

    execution_id: str
    logs: str
    size_bytes: int
    next_after: int | None = None


class RedriveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from", "until": "to"}):
    """Ids; or a filter: then up to `limit` of the latest matching dead letters run again, the oldest of them first.

    `per_second`: at most this many are due in a second.
    """

    ids: Annotated[tuple[str, ...], Meta(max_length=MOST_IDS)] = ()
    job_id: str | None = None
    error_type: str | None = None
    http_status: int | str | None = None
    since: str | None = None
    until: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_REDRIVEN)] = 100
    per_second: Annotated[float, Meta(gt=0, le=1000)] | None = None


class Redriven(msgspec.Struct, frozen=True):
    """`executions` are the new ones; the last of them is due at `last_at`."""

    redriven: int
    executions: list[str] = []
    last_at: Instant | None = None
