"""Jobs: responses about single jobs, lists and batches."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from duetime.domain.job import CatchUp, Delivery, Dst, JobStatus, Overlap, RetryPolicy, Slo, Webhooks
from duetime.domain.payloads import Method
from duetime.domain.states import State
from duetime.wire.words import ABSENT, Instant, ObjectiveWord, StateWord, StatusWord


class CreatedJob(msgspec.Struct, frozen=True):
    """`warnings`: why the job would not run if it were due now."""

    job_id: str
    name: str
    status: StatusWord
    next_run_time: Instant | None = None
    created_at: Instant = ABSENT
    created_by: str = ""
    warnings: list[str] = []


class HttpRequestView(msgspec.Struct, frozen=True):
    """The request of a job. Header values, and the values that `secret` points at, are never shown."""

    url: str
    method: Method
    headers: dict[str, str]
    body: Any
    expect_status: tuple[int, ...]
    secret: tuple[str, ...] = ()


class ScriptView(msgspec.Struct, frozen=True):
    """The script of a job. Values of its environment are never shown."""

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


class ObjectiveView(msgspec.Struct, frozen=True):
    """How an objective is met in its `window`.

    `target` and `compliance` are percentages of good executions; null if there was none. `error_budget_left`: 1 while
    no execution was bad, 0 when the budget is used up, below 0 when it is overspent; `errors_left`: how many more may
    be bad. `burn_rate`: over the last 5m, 30m, 1h, 6h and 3d; at 1 the budget lasts exactly for the window.
    """

    kind: ObjectiveWord
    target: float
    window: str
    lateness_seconds: float | None = None
    good: int = 0
    total: int = 0
    compliance: float | None = None
    error_budget_left: float = 1.0
    errors_left: int = 0
    burn_rate: dict[str, float] = {}


class NoticeView(msgspec.Struct, frozen=True):
    """A notice of an alert, as it is sent to its channels."""

    channels: tuple[str, ...]
    title: str
    body: str
    severity: str
    status: str
    dedup_key: str
    data: dict[str, Any]


class JobFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a job that the server writes and the client reads.

    The fields without a type here differ on purpose. The server writes the strict structs of the domain
    (`DefinitionView`). The client reads tolerant ones (`client.models.Job`). `start_at` and `end_at` are text as it was
    sent, maybe without a zone.
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
    slo: Any = None
    expect_every: str | None = None
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
    objectives: list[ObjectiveView] | None = None  # of a job with `slo`, if it is read alone


class DefinitionView(JobFields, frozen=True, kw_only=True, tag_field="type"):
    """The current definition of a job, with the payload of its type."""

    retry_policy: RetryPolicy
    timeout_seconds: float
    catch_up: CatchUp
    overlap: Overlap
    dst: Dst
    delivery: Delivery
    on: Literal["success", "failure", "any"]
    webhooks: Webhooks
    slo: Slo | None = None
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


class NoticeJobView(DefinitionView, frozen=True, kw_only=True, tag="notice"):
    payload: NoticeView


JobView = HttpJobView | ScriptJobView | SqlJobView | PythonJobView | NoticeJobView


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
    """What a job will do next, what blocks it, its timeout and retries, and its last failure.

    `last_failure` is null if no execution is being retried and the last one succeeded.
    """

    job_id: str
    summary: str
    next_run_time: Instant | None = None
    holds: list[str] = []
    attempts: str = ""
    last_failure: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """`index`: the position of the job in the request, from 0."""

    index: int
    error: str
    message: str
    errors: list[dict[str, str]] = []


class BatchResult(msgspec.Struct, frozen=True):
    """`created`: the new ids, in the order of their lines. `refused`: the first 1,000 refused jobs, with reasons.

    `also_refused`: the indexes of further refused jobs, by error.
    """

    created_count: int = 0
    refused_count: int = 0
    created: list[str] = []
    refused: list[Refused] = []
    also_refused: dict[str, list[int]] = {}
