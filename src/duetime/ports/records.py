"""The records that reads of a store return, and the queries that they get."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from duetime.domain.alert_rules import AlertRule
from duetime.domain.audit import Entry
from duetime.domain.channels import Kind
from duetime.domain.held_specs import StoredSpec
from duetime.domain.identity import Role, Tier
from duetime.domain.job import JobStatus, Slo
from duetime.domain.states import ErrorType, State, Trigger


class JobRecord(msgspec.Struct, frozen=True, array_like=True):
    """A job's current state: its definition, and the counts of its executions so far."""

    job_id: str
    tenant: str
    owner: str
    version: int
    status: JobStatus
    created_at: int
    updated_at: int
    due_at: int | None
    resume_at: int | None  # while paused: when it would have been due
    fired: int
    runs: int
    successes: int
    failures: int
    busy_ms: int
    last_run_at: int | None
    last_state: State | None
    paused_by: str | None
    paused_at: int | None
    pause_reason: str | None
    spec: StoredSpec  # `get_job` leaves a large body or large arguments as text (`domain.held_specs.whole`)


class WatchedJob(msgspec.Struct, frozen=True, array_like=True):
    """A job with `slo` or `expect_every`: what its owner expects of it, and when it last succeeded."""

    job_id: str
    tenant: str
    owner: str
    name: str
    type: str
    status: JobStatus
    since: int  # when it got its `expect_every`, or was resumed; before that, silence does not count
    last_success_at: int | None
    expect_every: str | None
    slo: Slo | None
    tags: dict[str, str]


class ExecutionRecord(msgspec.Struct, frozen=True, array_like=True):
    """An execution, with the result of its latest attempt if that has ended."""

    execution_id: str
    job_id: str
    scheduled_at: int
    trigger: Trigger
    state: State
    reason: str | None
    priority: int
    due_at: int
    held: bool
    attempt: int
    token: int
    worker_id: str | None
    started_at: int | None
    ended_at: int | None
    error_type: ErrorType | None
    error_message: str | None
    http_status: int | None
    exit_code: int | None
    response: str | None
    dead: bool


class AttemptRecord(msgspec.Struct, frozen=True, array_like=True):
    attempt: int
    worker_id: str | None
    started_at: int | None
    ended_at: int
    error_type: ErrorType | None
    error_message: str | None
    http_status: int | None
    exit_code: int | None
    response: str | None


class WorkerRecord(msgspec.Struct, frozen=True, array_like=True):
    """A worker that runs Python functions, as it described itself when it joined. `beats` grows with each heartbeat."""

    worker_id: int
    tenant: str
    user_id: str
    name: str
    functions: tuple[str, ...]
    slots: int
    started_at: int
    seen_at: int
    beats: int


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True):
    """A URL that gets notifications of a tenant's events."""

    subscription_id: str
    tenant: str
    url: str
    events: tuple[str, ...]
    created_at: int
    created_by: str


class ConnectionRecord(msgspec.Struct, frozen=True, array_like=True):
    """A database that SQL jobs may use."""

    tenant: str
    name: str
    url: str  # encrypted
    shown: str  # without a password
    created_at: int
    created_by: str


class AlertRuleRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored alert rule."""

    tenant: str
    rule: AlertRule
    changed_at: int
    changed_by: str


class ChannelRecord(msgspec.Struct, frozen=True, array_like=True):
    """A place that notices of alerts are sent to."""

    tenant: str
    name: str
    kind: Kind
    url: str  # encrypted
    shown: str  # without a secret
    created_at: int
    created_by: str


class SkippedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A span of due instants that were skipped: [first_at, until_at)."""

    first_at: int
    until_at: int
    count: int | None
    reason: str
    decided_at: int


class LinkRecord(msgspec.Struct, frozen=True, array_like=True):
    """One dependency of a job: another job that it runs after."""

    key: str  # of the other job, or its id
    is_done: bool  # since this job last started, the other has ended in the way that this job waits for
    owner: str | None  # of the other job; None: that job does not exist

    @property
    def is_there(self) -> bool:
        return self.owner is not None


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """An API key, without its secret."""

    key_id: str
    tenant: str
    user_id: str
    name: str
    role: Role
    tier: Tier
    scopes: tuple[str, ...]
    secret_hash: str
    created_at: int
    created_by: str
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None


class AuditRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int  # grows in the order of writing
    entry: Entry


class AuditPage(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one commit as they are stored, and the hash of the link that covers them."""

    chain: int
    link: int
    hash: str  # hex; empty: there are entries, but no link covers them
    rows: list[tuple[str, str, str]]  # tenant, resource, entry


class AuditCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """The last link of a chain that was pruned, with its hash (hex), and when that was."""

    chain: int
    link: int
    hash: str
    at: int


class BacklogRecord(msgspec.Struct, frozen=True):
    """What the store holds, over all tenants. `waiting` lists (tenant, state, number), the largest first."""

    executions: dict[State, int]
    waiting: list[tuple[str, State, int]]
    dead_letters: int


class AuditQuery(msgspec.Struct, frozen=True):
    """Latest first."""

    tenant: str
    actor: str | None = None
    action: str | None = None
    resource: str | None = None  # also a job that was created in a batch
    since: int | None = None
    until: int | None = None
    limit: int = 20
    before: int | None = None  # the number of the last row of the previous page


class JobQuery(msgspec.Struct, frozen=True):
    tenant: str
    status: str | None = None  # a job's status, or the state of its last execution
    type: str | None = None
    name: str | None = None  # contains, without regard to case
    tag: tuple[str, str | None] | None = None
    owner: str | None = None
    sort: Literal["created_at", "next_run_time", "name"] = "created_at"
    order: Literal["asc", "desc"] = "desc"
    limit: int = 20
    offset: int = 0
    after: tuple[Any, str] | None = None  # (sort value, job id) of the last row of the previous page


class ExecutionQuery(msgspec.Struct, frozen=True):
    tenant: str
    job_id: str | None = None
    state: State | None = None
    dead: bool = False
    owner: str | None = None  # of its job
    since: int | None = None  # scheduled_at >= since
    until: int | None = None  # scheduled_at < until
    error_type: ErrorType | None = None  # of its latest attempt
    http_status: tuple[int, int] | None = None  # of its latest attempt: from the first, below the second
    runnable: bool = False  # not of a CANCELLED job
    limit: int = 20
    offset: int = 0
    after: str | None = None  # execution id of the last row of the previous page


class Totals(msgspec.Struct, frozen=True):
    """Kept totals of a tenant: its jobs by status and its executions by state."""

    jobs: dict[str, int]
    executions: dict[str, int]


class EndRecord(msgspec.Struct, frozen=True, array_like=True):
    """How an execution of a job ended: for histograms."""

    scheduled_at: int
    started_at: int | None
    ended_at: int
    state: State
    trigger: Trigger
