"""Jobs: what the API responds with about them, one by one, in lists and in batches."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from duetime.domain.job import CatchUp, Delivery, Dst, JobStatus, Overlap, RetryPolicy, Webhooks
from duetime.domain.payloads import Method
from duetime.domain.states import State
from duetime.wire.words import ABSENT, Instant, StateWord, StatusWord


class CreatedJob(msgspec.Struct, frozen=True):
    """`warnings`: what would keep the job from running if it were due now."""

    job_id: str
    name: str
    status: StatusWord
    next_run_time: Instant | None = None
    created_at: Instant = ABSENT
    created_by: str = ""
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


class JobFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a job that the server writes and the client reads.

    The fields without a type here differ on purpose. The server writes the structs of the domain, which are strict, as
    people send them, too (`DefinitionView`). The client reads them tolerantly (`client.models.Job`).
    `start_at` and `end_at` are as they were sent, maybe without a zone.
    """

    job_id: str
    name: str
    description: str = ""
    key: str | None = None
    schedule: str
    timezone: str = "UTC"
    retry_policy: Any
    timeout_seconds: float | None = None
    priority: int = 5
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    catch_up: Any
    overlap: str = "skip"
    jitter_seconds: float = 0.0
    dst: Any
    delivery: str = "at_least_once"
    after: tuple[str, ...] = ()
    on: str = "success"
    webhooks: Any
    tags: dict[str, str] = {}
    status: StatusWord
    version: int
    next_run_time: Instant | None = None
    last_run_time: Instant | None = None
    last_state: StateWord | None = None
    created_at: Instant
    created_by: str = ""
    updated_at: Instant
    execution_count: int = 0
    success_count: int = 0
    failure_count: int = 0
    avg_execution_time_ms: float | None = None
    lateness_p50_ms: int | None = None
    lateness_p99_ms: int | None = None


class DefinitionView(JobFields, frozen=True, kw_only=True, tag_field="type"):
    """A job as it is now; its payload is that of its type."""

    retry_policy: RetryPolicy
    timeout_seconds: float
    catch_up: CatchUp
    overlap: Overlap
    dst: Dst
    delivery: Delivery
    on: Literal["success", "failure", "any"]
    webhooks: Webhooks
    status: JobStatus
    last_state: State | None


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
    status: StatusWord
    message: str = ""
    next_run_time: Instant | None = None


class JobGlance(msgspec.Struct, frozen=True):
    job_id: str
    status: StatusWord
    next_run_time: Instant | None = None
    last_run_time: Instant | None = None
    last_state: StateWord | None = None
    running: int = 0
    waiting: int = 0


class Coming(msgspec.Struct, frozen=True):
    job_id: str
    next: list[Instant]


class Why(msgspec.Struct, frozen=True):
    """What a job will do next, what holds it now, what its attempts may take, and how it failed last.

    `last_failure` is null if no execution is tried again and the last one succeeded.
    """

    job_id: str
    summary: str
    next_run_time: Instant | None = None
    holds: list[str] = []
    attempts: str = ""
    last_failure: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """`index` is the job's place in what was sent, from 0."""

    index: int
    error: str
    message: str
    errors: list[dict[str, str]] = []


class BatchResult(msgspec.Struct, frozen=True):
    """`created` holds the new ids in the order of their lines; `refused` says by index what was not, and why.

    Of the first 1,000 refused, that is: beyond, `also_refused` has their indexes only, by error.
    """

    created_count: int = 0
    refused_count: int = 0
    created: list[str] = []
    refused: list[Refused] = []
    also_refused: dict[str, list[int]] = {}
