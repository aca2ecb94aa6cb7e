"""The store port: one way to write, plain methods to read. A backend is what passes tests/contract/store.

Writes: `apply(commands)`. What it has answered is durable. Each command is atomic and fails alone, its error standing
in its place among the results; commands given together share one commit with whatever else is waiting.

Reads see every write that was answered before. Everything read is bounded by a `limit`, and a `Page` also in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.breaker import Circuit, CircuitChanges
from duetime.domain.capacity import Load
from duetime.domain.commands import Command
from duetime.domain.execution import Run
from duetime.domain.held_specs import StoredSpec
from duetime.domain.history import Held
from duetime.domain.identity import Role, Tier
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.lease import Writes
from duetime.domain.plan import DueTimer, Place
from duetime.domain.signing import SigningState
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.pages import Page


class JobRecord(msgspec.Struct, frozen=True, array_like=True):
    """A job as it stands: what was asked for, and how it has gone so far."""

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
    spec: StoredSpec  # from `get_job` with a large body, or arguments, as text (`domain.held_specs.whole`)


class ExecutionRecord(msgspec.Struct, frozen=True, array_like=True):
    """An execution with the facts of its latest attempt, if that has ended."""

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
    """A worker that runs Python functions, as it introduced itself. `beats` grows with each sign of life."""

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
    """Who is told of what happens in a tenant."""

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


class SkippedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A span of instants that were decided against: [first_at, until_at)."""

    first_at: int
    until_at: int
    count: int | None
    reason: str
    decided_at: int


class LinkRecord(msgspec.Struct, frozen=True, array_like=True):
    """That a job comes after another."""

    key: str  # of the other, or its id
    is_done: bool  # that one has ended, since this job last started, in the way that it waits for
    owner: str | None  # of the other; None: there is none

    @property
    def is_there(self) -> bool:
        return self.owner is not None


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """An API key as it stands."""

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
    number: int  # grows in the order in which they were written
    entry: Entry


class AuditPage(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one commit as they are stored, and the link that they should give."""

    chain: int
    link: int
    hash: str  # hex; empty: there are entries, but no link over them
    rows: list[tuple[str, str, str]]  # tenant, resource, entry


class AuditCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """Up to which link a chain was pruned, with that link's hash (hex), and when."""

    chain: int
    link: int
    hash: str
    at: int


class AuditQuery(msgspec.Struct, frozen=True):
    """Latest first."""

    tenant: str
    actor: str | None = None
    action: str | None = None
    resource: str | None = None  # also a job that was created in a batch
    since: int | None = None
    until: int | None = None
    limit: int = 20
    before: int | None = None  # the number of the last row of the page before


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
    after: tuple[Any, str] | None = None  # (sort value, job id) of the last row of the page before


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
    after: str | None = None  # execution id of the last row of the page before


Result = Any  # what the command's docstring says, or the DuetimeError that refuses it


class Store(Protocol):
    async def start(self) -> None:
        """Open, check and migrate. Raises a sentence that says what to do when that can't be."""

    async def stop(self) -> None:
        """Write what is waiting, then close."""

    async def apply(self, commands: Sequence[Command]) -> list[Result]:
        """The one way to write; see the module's docstring and each command's."""

    # What the engine asks.
    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> list[DueTimer]:  # fmt: skip
        """Timers due at or before `until`, in order of their `place`, with their jobs; only those `after`.

        Only of `shards`, or of all; those of the tenants `without` are passed over, however many there are. A page may
        be shorter than `limit`; it is empty only when nothing is left.
        A job whose definition this version can't read is left out and paused, saying so: the others go on.
        """

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        """The earliest due instant of all timers, or of those of `shards`."""

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        """The earliest instant at which a QUEUED or RETRYING execution may run on a node, of all tenants. With `only`:
        in a worker of that tenant, which can run these endpoints."""

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        """Tenants that have QUEUED or RETRYING executions that a node may run by now, in their order; those `after`."""

    async def next_waiting_of(self, job_id: str, tenant: str = "") -> int | None:
        """The same, of one job; what waits for an earlier execution to end is left out."""

    async def list_lapsed_runs(self, node: int, limit: int) -> list[Run]:
        """RUNNING executions whose node is void, or is neither `node` nor alive. Large ones come a few at a time. One
        whose job's definition can't be read is left out and FAILED, as in Claim."""

    async def list_to_stop(self, node: int, limit: int) -> list[str]:
        """Executions that `node` runs and that were asked to stop."""

    async def list_workers(
        self, tenant: str | None, limit: int, before: int | None = None, function: str | None = None
    ) -> list[WorkerRecord]:
        """Those that have not ended (and have a `function`), latest first, `before` an id; PAGE_BYTES or so at once."""

    async def list_beats(self, after: int, limit: int) -> list[tuple[int, int]]:
        """(worker id, beats) of those that have not ended, of all tenants, in the order of their ids, `after` one."""

    async def get_worker(self, worker_id: int) -> WorkerRecord | None:
        """None if it has ended."""

    async def list_runs_of(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Run]:
        """Those of the executions that a node runs now; or of one tenant only, for a worker of that tenant."""

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        """What a worker of that tenant runs: execution id, attempt, token, and whether it was asked to stop."""

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        """What a node runs: execution ids and tokens. It may take a while: it is for a look now and then."""

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        """What attempts saved last, as JSON, of those that saved anything. `tenant`: for people of that tenant."""

    async def list_circuits(self, tenant: str | None, limit: int) -> list[Circuit]:
        """Targets that failed since they last succeeded, of one tenant or of all: open ones first, then the latest."""

    async def list_changed_circuits(self, since: int | None, limit: int) -> CircuitChanges:
        """What has changed since the mark of an earlier answer, up to `limit`; some may have been read before.

        Without a mark: what `list_circuits` has of all tenants. One that was forgotten or pruned is not named, one that
        was closed is, for a day.
        """

    async def get_circuit(self, circuit: int, tenant: str = "") -> Circuit | None:
        """None: it is closed, and has not failed lately."""

    async def count_history(self) -> int:
        """All executions there are, of all tenants."""

    async def list_history(self) -> list[Held]:
        """How many executions each tenant has, of tenants that have any."""

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        """The tenants of these executions, by id. One that is not in the ledger is left out."""

    async def newest_at(self) -> int | None:
        """The newest instant that the ledger has seen: of a node's start, or of an execution. None if there is none."""

    # What people ask, in turns by tenant (Overloaded if many of one wait); beside an id, `tenant` only says whose turn.
    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        """Raises Conflict if its definition can't be read by this version."""

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        """As `get_job`."""

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """One whose definition can't be read has its name, and what is wrong as its description."""

    async def count_jobs(self, query: JobQuery) -> int: ...

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None: ...

    async def list_executions(self, query: ExecutionQuery) -> Page[ExecutionRecord]:
        """Latest scheduled first."""

    async def count_executions(self, query: ExecutionQuery) -> int: ...

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]: ...

    async def list_skipped(self, job_id: str, limit: int, tenant: str = "") -> list[SkippedRecord]:
        """The ledger's spans of a job, latest first."""

    async def list_links(self, job_id: str, tenant: str = "") -> list[LinkRecord]:
        """What a job comes after, in the order of the keys."""

    async def list_lateness(self, job_id: str, limit: int, tenant: str = "") -> list[int]:
        """started_at − scheduled_at in ms of the job's last runs; 0 where a clock that was set back makes it less.

        Not of dead letters that were driven again: those may have waited for their turn.
        """

    async def get_response(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        """(fingerprint, response) of an idempotent create that was answered."""

    async def get_load(self) -> Load:
        """How much it holds, of all tenants."""

    async def get_key(self, key_id: str) -> KeyRecord | None:
        """Of any tenant: who has its secret is who it says."""

    async def list_keys(self, tenant: str, limit: int) -> list[KeyRecord]:
        """Latest first."""

    async def list_signing_states(self, tenant: str | None, since: int, after: str, limit: int) -> list[SigningState]:
        """Of a tenant, or of all, that rotated their signing key at `since` or later; by tenant, from `after` on."""

    async def list_subscriptions(self, tenant: str | None, limit: int) -> list[SubscriptionRecord]:
        """Of a tenant, or of all; oldest first."""

    async def get_connection(self, tenant: str, name: str) -> ConnectionRecord | None: ...

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        """Of a tenant, or of all, by their names."""

    async def list_audit(self, query: AuditQuery) -> Page[AuditRecord]: ...

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        """Of all chains, in order of (chain, link), `after` one; to verify them."""

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        """Of the chains that were pruned: what is left of one begins with the link after."""

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        """(job id, tenant, version, definition) of all jobs after one, by their ids, but for what can't be read."""

    async def check(self) -> str | None:
        """None if a read and the last write went well; else what is wrong, in a sentence."""

    def writes(self) -> Writes:
        """How the last writes went, from memory: a node that can't write gives up its shards."""
