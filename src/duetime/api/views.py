"""What the API answers with. Instants are text here, and only here."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from duetime.domain.defaults import policy_of, timeout_of
from duetime.domain.instants import LATEST, format_instant
from duetime.domain.job import CatchUp, Delivery, Dst, JobStatus, JobType, Overlap, RetryPolicy, Webhooks
from duetime.domain.payloads import HttpRequest, Method, Payload, PythonCall, Script, SqlQuery
from duetime.domain.secrets import hide_payload
from duetime.domain.states import State
from duetime.ports.store import JobRecord


def text(at: int | None) -> str | None:
    """An instant as people read it; the end of time, where jobs on demand wait, is none."""
    return None if at is None or at >= LATEST else format_instant(at)


class CreatedJob(msgspec.Struct, frozen=True):
    """`warnings`: what would keep the job from running if it were due now."""

    job_id: str
    name: str
    status: JobStatus
    next_run_time: str | None
    created_at: str
    created_by: str
    warnings: list[str] = []


class HttpRequestView(msgspec.Struct, frozen=True):
    """What a job calls. Header values, and what `secret` points at, are never shown."""

    url: str
    method: Method
    headers: dict[str, str]
    body: Any
    expect_status: tuple[int, ...]
    secret: tuple[str, ...] = ()


class ScriptView(msgspec.Struct, frozen=True):
    """What a job runs. Values of its environment are never shown."""

    argv: tuple[str, ...]
    script: str
    interpreter: str
    env: dict[str, str]
    cwd: str


class SqlQueryView(msgspec.Struct, frozen=True):
    connection: str
    statement: str
    parameters: list[Any]
    secret: tuple[str, ...] = ()


class PythonCallView(msgspec.Struct, frozen=True):
    function: str
    args: list[Any]
    kwargs: dict[str, Any]
    secret: tuple[str, ...] = ()


class DefinitionView(msgspec.Struct, frozen=True, tag_field="type"):
    """A job as it is now; its payload is that of its type."""

    job_id: str
    name: str
    description: str
    key: str | None
    schedule: str
    timezone: str
    retry_policy: RetryPolicy
    timeout_seconds: float
    priority: int
    start_at: str | None
    end_at: str | None
    max_runs: int | None
    catch_up: CatchUp
    overlap: Overlap
    jitter_seconds: float
    dst: Dst
    delivery: Delivery
    after: tuple[str, ...]
    on: Literal["success", "failure", "any"]
    webhooks: Webhooks
    tags: dict[str, str]
    status: JobStatus
    version: int
    next_run_time: str | None
    last_run_time: str | None
    last_state: State | None
    created_at: str
    created_by: str
    updated_at: str
    execution_count: int
    success_count: int
    failure_count: int
    avg_execution_time_ms: float | None
    lateness_p50_ms: int | None = None
    lateness_p99_ms: int | None = None


class HttpJobView(DefinitionView, frozen=True, kw_only=True, tag="http_request"):
    payload: HttpRequestView


class ScriptJobView(DefinitionView, frozen=True, kw_only=True, tag="script"):
    payload: ScriptView


class SqlJobView(DefinitionView, frozen=True, kw_only=True, tag="sql_query"):
    payload: SqlQueryView


class PythonJobView(DefinitionView, frozen=True, kw_only=True, tag="python"):
    payload: PythonCallView


JobView = HttpJobView | ScriptJobView | SqlJobView | PythonJobView


class JobList(msgspec.Struct, frozen=True):
    jobs: list[JobView]
    total: int
    limit: int
    offset: int
    has_more: bool
    next_cursor: str | None


class JobMessage(msgspec.Struct, frozen=True):
    job_id: str
    status: JobStatus
    message: str
    next_run_time: str | None = None


class QueuedRun(msgspec.Struct, frozen=True):
    job_id: str
    execution_id: str
    status: State
    message: str


class JobGlance(msgspec.Struct, frozen=True):
    job_id: str
    status: JobStatus
    next_run_time: str | None
    last_run_time: str | None
    last_state: State | None
    running: int
    waiting: int


class Coming(msgspec.Struct, frozen=True):
    job_id: str
    next: list[str]


class Why(msgspec.Struct, frozen=True):
    """What a job will do next, what holds it now, what its attempts may take, and how it failed last.

    `last_failure` is null if no execution is tried again and the last one succeeded.
    """

    job_id: str
    summary: str
    next_run_time: str | None
    holds: list[str]
    attempts: str
    last_failure: str | None


class Preview(msgspec.Struct, frozen=True):
    description: str
    next: list[str]
    warnings: list[str]


class Redriven(msgspec.Struct, frozen=True):
    """`executions` are the new ones; the last of them is due at `last_at`."""

    redriven: int
    executions: list[str]
    last_at: str | None


class Refused(msgspec.Struct, frozen=True):
    index: int
    error: str
    message: str
    errors: list[dict[str, str]] = []


class BatchResult(msgspec.Struct, frozen=True):
    """`created` holds the new ids in the order of their lines; `refused` says by index what was not, and why.

    Of the first 1,000 refused, that is: beyond, `also_refused` has their indexes only, by error.
    """

    created_count: int
    refused_count: int
    created: list[str]
    refused: list[Refused]
    also_refused: dict[str, list[int]] = {}


class MemoryHealth(msgspec.Struct, frozen=True):
    """What all jobs' definitions take of what they may. (`resident_bytes` is the process's own.)"""

    current_bytes: int
    limit_bytes: int | None
    available_bytes: int | None
    utilization_percent: float | None
    resident_bytes: int


class JobsHealth(msgspec.Struct, frozen=True):
    current_count: int
    limit: int | None
    available: int | None


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    status: str
    components: dict[str, str] = {}
    memory: MemoryHealth | None = None
    jobs: JobsHealth | None = None


def view_job(record: JobRecord, lateness: list[int] | None = None) -> JobView:
    spec = record.spec
    ordered = sorted(lateness) if lateness else []
    finished = record.successes + record.failures
    view: JobView = _VIEWS[spec.type](
        job_id=record.job_id,
        name=spec.name,
        description=spec.description,
        key=spec.key,
        schedule=spec.schedule,
        timezone=spec.timezone,
        payload=_view_payload(spec.payload),
        retry_policy=policy_of(spec),
        timeout_seconds=timeout_of(spec),
        priority=spec.priority,
        start_at=spec.start_at,
        end_at=spec.end_at,
        max_runs=spec.max_runs,
        catch_up=spec.catch_up,
        overlap=spec.overlap,
        jitter_seconds=spec.jitter_seconds,
        dst=spec.dst,
        delivery=spec.delivery,
        after=spec.after,
        on=spec.on,
        webhooks=spec.webhooks,
        tags=spec.tags,
        status=record.status,
        version=record.version,
        next_run_time=text(record.due_at),
        last_run_time=text(record.last_run_at),
        last_state=record.last_state,
        created_at=format_instant(record.created_at),
        created_by=record.owner,
        updated_at=format_instant(record.updated_at),
        execution_count=record.runs,
        success_count=record.successes,
        failure_count=record.failures,
        avg_execution_time_ms=round(record.busy_ms / finished, 1) if finished else None,
        lateness_p50_ms=_percentile(ordered, 0.50),
        lateness_p99_ms=_percentile(ordered, 0.99),
    )
    return view


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


def encode(view: Any) -> bytes:
    return msgspec.json.encode(view)
