"""What the server answers with, as the client reads it.

Tolerant, unlike what the server reads: a field that this version does not know is ignored, and one that an older
server does not send has a default, so that client and server need not be of one age. Instants are datetimes in UTC.
A word of a fixed set (a state, a role) is text: compare it with the enum by `==`; a word that came later stays itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from duetime.domain.identity import Right, Role, Tier
    from duetime.domain.job import JobStatus, JobType
    from duetime.domain.states import ErrorType, State, Trigger

    StatusWord = JobStatus | str
    TypeWord = JobType | str
    StateWord = State | str
    TriggerWord = Trigger | str
    ErrorTypeWord = ErrorType | str
    RoleWord = Role | str
    TierWord = Tier | str
    RightWord = Right | str
else:  # an enum would refuse a word that this version does not know
    StatusWord = TypeWord = StateWord = TriggerWord = ErrorTypeWord = RoleWord = TierWord = RightWord = str


class Answered(msgspec.Struct, frozen=True):
    """A value object that a server sends."""


class Page(Answered, frozen=True):
    """`total` counts all that the filters fit; the audit does not count."""

    limit: int = 0
    offset: int = 0
    total: int = 0
    has_more: bool = False
    next_cursor: str | None = None


# Jobs


class CreatedJob(Answered, frozen=True):
    """`version` is 1 for a new job; after put_job_by_key it is what the job has come to, for `if_match`.

    `warnings`: what will keep it from running as it is meant to, as far as the server can tell by now.
    """

    job_id: str
    name: str
    status: StatusWord
    next_run_time: datetime | None = None
    created_at: datetime | None = None
    created_by: str = ""
    version: int = 1
    warnings: list[str] = []


class RetryPolicy(Answered, frozen=True):
    max_retries: int | None = None
    backoff: str = "exponential"
    initial_delay_seconds: float = 10.0
    backoff_factor: float = 3.0
    max_delay_seconds: float = 3600.0
    delays: list[float] = []


class CatchUp(Answered, frozen=True):
    policy: str = "latest"
    window_seconds: int = 3600
    max_runs: int = 100


class Dst(Answered, frozen=True):
    gap: str = "shift"
    overlap: str = "first"


class Webhooks(Answered, frozen=True):
    """Who is told how an execution ended."""

    on_success: str | None = None
    on_failure: str | None = None


class Job(Answered, frozen=True):
    """`payload` has what its `type` needs. `start_at` and `end_at` are as they were written, maybe without a zone."""

    job_id: str
    name: str
    type: TypeWord
    schedule: str
    status: StatusWord
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    description: str = ""
    key: str | None = None
    timezone: str = "UTC"
    payload: dict[str, Any] = {}
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_seconds: float | None = None
    priority: int = 5
    start_at: str | None = None
    end_at: str | None = None
    max_runs: int | None = None
    catch_up: CatchUp = CatchUp()
    overlap: str = "skip"
    jitter_seconds: float = 0.0
    dst: Dst = Dst()
    delivery: str = "at_least_once"
    after: tuple[str, ...] = ()
    on: str = "success"
    webhooks: Webhooks = Webhooks()
    tags: dict[str, str] = {}
    next_run_time: datetime | None = None
    last_run_time: datetime | None = None
    last_state: StateWord | None = None
    execution_count: int = 0
    success_count: int = 0
    failure_count: int = 0
    avg_execution_time_ms: float | None = None
    lateness_p50_ms: int | None = None
    lateness_p99_ms: int | None = None


class JobPage(Page, frozen=True, kw_only=True):
    jobs: list[Job]


class JobMessage(Answered, frozen=True):
    job_id: str
    status: StatusWord
    message: str = ""
    next_run_time: datetime | None = None


class JobGlance(Answered, frozen=True):
    job_id: str
    status: StatusWord
    next_run_time: datetime | None = None
    last_run_time: datetime | None = None
    last_state: StateWord | None = None
    running: int = 0
    waiting: int = 0


class Coming(Answered, frozen=True):
    job_id: str
    next: list[datetime]


class Why(Answered, frozen=True):
    """What a job will do next, what holds it now, what its attempts may take, and how it failed last."""

    job_id: str
    summary: str
    next_run_time: datetime | None = None
    holds: list[str] = []
    attempts: str = ""
    last_failure: str | None = None


class Refused(Answered, frozen=True):
    """`index` is the job's place in what was given to create_jobs, from 0."""

    index: int
    error: str
    message: str
    errors: list[dict[str, str]] = []


class BatchResult(Answered, frozen=True):
    """`created` has the new ids in the order of their jobs. `refused` explains by index what was not created.

    Of very many that are refused, `also_refused` has only the indexes, by error.
    """

    created_count: int = 0
    refused_count: int = 0
    created: list[str] = []
    refused: list[Refused] = []
    also_refused: dict[str, list[int]] = {}


# Executions


class QueuedRun(Answered, frozen=True):
    job_id: str
    execution_id: str
    status: StateWord
    message: str = ""


class Execution(Answered, frozen=True):
    execution_id: str
    job_id: str
    state: StateWord
    trigger: TriggerWord
    scheduled_at: datetime
    attempt: int = 0
    reason: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    duration_ms: int | None = None
    lateness_ms: int | None = None
    next_attempt_at: datetime | None = None
    http_status: int | None = None
    exit_code: int | None = None
    error_type: ErrorTypeWord | None = None
    error_message: str | None = None
    response: str | None = None
    worker_id: str | None = None
    dead: bool = False


class Attempt(Answered, frozen=True):
    attempt: int
    end_time: datetime
    start_time: datetime | None = None
    worker_id: str | None = None
    duration_ms: int | None = None
    http_status: int | None = None
    exit_code: int | None = None
    error_type: ErrorTypeWord | None = None
    error_message: str | None = None
    response: str | None = None


class ExecutionDetail(Answered, frozen=True):
    execution: Execution
    attempts: list[Attempt] = []
    progress: Any = None


class Skipped(Answered, frozen=True):
    """Instants from `first_at` up to, not including, `until_at` that were decided against."""

    first_at: datetime
    until_at: datetime
    decided_at: datetime
    reason: str
    count: int | None = None


class ExecutionPage(Page, frozen=True, kw_only=True):
    """`skipped` has the last spans of a job's own history; it is empty in lists across jobs."""

    executions: list[Execution]
    skipped: list[Skipped] = []


class Logs(Answered, frozen=True):
    """`next_after`: there is more, beyond this line."""

    execution_id: str
    logs: str
    size_bytes: int
    next_after: int | None = None


class LogEntry(Answered, frozen=True):
    """`number` grows from one to the next; `text` may have several lines."""

    number: int | None
    text: str


class Redriven(Answered, frozen=True):
    """`executions` are the new ones; the last of them is due at `last_at`."""

    redriven: int
    executions: list[str] = []
    last_at: datetime | None = None


# The rest


class Preview(Answered, frozen=True):
    description: str
    next: list[datetime]
    warnings: list[str] = []


class Event(Answered, frozen=True):
    """Something happened. `reset` means that events may have been lost: read the lists again."""

    number: int | None
    kind: str
    data: dict[str, Any]

    @property
    def at(self) -> datetime | None:
        return datetime.fromisoformat(self.data["at"]) if "at" in self.data else None


class MadeKey(Answered, frozen=True):
    """`key` is shown this once: the server keeps only a hash of it."""

    key_id: str
    key: str
    name: str
    user_id: str
    role: RoleWord
    tier: TierWord
    created_at: datetime
    scopes: list[RightWord] = []
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"MadeKey(key_id={self.key_id!r}, name={self.name!r}, user_id={self.user_id!r})"


class Key(Answered, frozen=True):
    key_id: str
    name: str
    user_id: str
    role: RoleWord
    tier: TierWord
    created_at: datetime
    created_by: str = ""
    scopes: list[RightWord] = []
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class KeyList(Answered, frozen=True):
    keys: list[Key]


class KeyMessage(Answered, frozen=True):
    key_id: str
    message: str = ""


class AuditEntry(Answered, frozen=True):
    """One change. Of what is secret, it says at most that it changed."""

    at: datetime
    actor: str
    action: str
    resource: str = ""
    via: str = ""
    request_id: str = ""
    before: Any = None
    after: Any = None


class AuditPage(Page, frozen=True, kw_only=True):
    entries: list[AuditEntry]
