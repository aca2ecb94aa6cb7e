"""The store port: one method to write, many to read. A backend must pass tests/contract/store.

Writes: `apply(commands)`. When it returns, the writes are durable. Each command is atomic and fails alone: its error
takes its place in the list of results. Commands given together share one commit, also with other waiting commands.

Reads see every write that has returned before. Every read is bounded by a `limit`, and a `Page` also in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from duetime.domain.alerts import Alert
from duetime.domain.breaker import Circuit, CircuitChanges
from duetime.domain.capacity import Load
from duetime.domain.commands import Command
from duetime.domain.errors import DuetimeError
from duetime.domain.event_log import EventPages
from duetime.domain.execution import Claim
from duetime.domain.history import Held
from duetime.domain.job import JobSpec
from duetime.domain.lease import Writes
from duetime.domain.node_report import NodeReport
from duetime.domain.plan import Place
from duetime.domain.signing import SigningState
from duetime.domain.silences import Silence
from duetime.domain.statistics import StatisticsQuery, StatisticsRow
from duetime.ports.pages import DueTimers, ExpiredClaims, Page
from duetime.ports.records import (
    AlertRuleRecord,
    AttemptRecord,
    AuditCheckpoint,
    AuditPage,
    AuditQuery,
    AuditRecord,
    BacklogRecord,
    ChannelRecord,
    ConnectionRecord,
    EndRecord,
    ExecutionQuery,
    ExecutionRecord,
    JobQuery,
    JobRecord,
    KeyRecord,
    LinkRecord,
    SkippedRecord,
    SubscriptionRecord,
    Totals,
    WatchedJob,
    WorkerRecord,
)
from duetime.ports.usage import StoreUsage

__all__ = [
    "AlertRuleRecord", "AttemptRecord", "AuditCheckpoint", "AuditPage", "AuditQuery", "AuditRecord", "BacklogRecord",
    "ChannelRecord", "ConnectionRecord", "EndRecord", "ExecutionQuery", "ExecutionRecord", "JobQuery", "JobRecord",
    "KeyRecord", "LinkRecord", "SkippedRecord", "Store", "SubscriptionRecord", "Totals", "WatchedJob", "WorkerRecord",
    "Writable", "apply_one", "result_of",
]  # fmt: skip

T = TypeVar("T")


class Writable(Protocol):
    async def apply(self, commands: Sequence[Command]) -> list[object]:
        """Writes the commands, and returns their results in order: the result that a command's docstring describes, or
        the DuetimeError that refuses the command. See the module's docstring and each command's."""


async def apply_one(store: Writable, command: Command[T]) -> T:
    """Writes one command, and returns its result or raises the error that refuses it."""
    (answer,) = await store.apply([command])
    return result_of(command, answer)


def result_of(command: Command[T], answer: object) -> T:
    """Returns the command's result from what `apply` returned in its place, or raises the error that refuses it."""
    if isinstance(answer, DuetimeError):
        raise answer
    return cast("T", answer)


class Store(Writable, Protocol):
    async def start(self) -> None:
        """Opens, checks and migrates the store. If that fails, raises an error whose message says what to do."""

    async def stop(self) -> None:
        """Writes the waiting commands, then closes the store."""

    # Reads for the engine.
    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> DueTimers:  # fmt: skip
        """Returns timers due at or before `until`, with their jobs, in order of their `place`; only those `after`.

        `shards`: only timers of these shards; None: of all. Timers of the tenants `without` are skipped, however many
        there are. A page may be shorter than `limit`; only when nothing is left, it is empty and lists none apart.
        """

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        """Returns the earliest due instant of all timers, or of those of `shards`."""

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        """Returns the earliest instant at which a QUEUED or RETRYING execution of any tenant may run on a node. With
        `only`: at which one may run in a worker of that tenant that can run these endpoints."""

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        """Returns tenants with QUEUED or RETRYING executions that a node may run by `now`; in order, those `after`."""

    async def next_waiting_of(self, job_id: str, tenant: str = "") -> int | None:
        """As `next_waiting_at`, for one job. Executions that wait for an earlier one to end are left out."""

    async def list_expired_claims(self, node: int, limit: int) -> ExpiredClaims:
        """Returns RUNNING executions whose node is fenced, or is neither `node` nor alive. Large ones come a few at a
        time."""

    async def list_to_stop(self, node: int, limit: int) -> list[str]:
        """Returns executions that `node` runs and whose cancellation was requested."""

    async def list_workers(
        self, tenant: str | None, limit: int, before: int | None = None, function: str | None = None
    ) -> list[WorkerRecord]:
        """Returns workers that have not ended (and have `function`), latest first, with ids below `before`. A page
        holds about PAGE_BYTES."""

    async def list_beats(self, after: int, limit: int) -> list[tuple[int, int]]:
        """Returns (worker id, beats) of all tenants' workers that have not ended, in order of ids, only ids `after`."""

    async def get_worker(self, worker_id: int) -> WorkerRecord | None:
        """Returns the worker; None if it has ended."""

    async def get_claims(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Claim]:
        """Returns those of the executions that a node runs now. `tenant`: for a worker, only those of its tenant."""

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        """Returns a worker's claims: execution id, attempt, token, and whether its cancellation was requested."""

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        """Returns a node's claims: execution ids and tokens. The query may be slow: call it only now and then."""

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        """Returns the progress that attempts saved last, as JSON, by execution id. Executions without progress are left
        out. `tenant`: for requests from users of that tenant."""

    async def list_open_circuits(self, most: int, limit: int) -> list[Circuit]:
        """Returns open circuits of all tenants: of each at most `most`, so that none hides those of another."""

    async def list_circuits(self, tenant: str | None, limit: int) -> list[Circuit]:
        """Returns targets that failed since they last succeeded, of one tenant or of all: open circuits first, then the
        latest."""

    async def list_changed_circuits(self, since: int | None, limit: int) -> CircuitChanges:
        """Returns up to `limit` circuits changed since the mark of an earlier call; some may have been read before.

        Without a mark: the circuits that `list_circuits` returns for all tenants. Closed circuits are included for a
        day; forgotten or pruned ones are not.
        """

    async def get_circuit(self, circuit: int, tenant: str = "") -> Circuit | None:
        """Returns the circuit; None if it is closed and has not failed lately."""

    async def list_open_alerts(self, after: tuple[str, str], limit: int) -> list[Alert]:
        """Returns open alerts of all tenants, in order of (tenant, id), only those `after`."""

    async def list_alert_rules(
        self, tenant: str | None, limit: int, after: tuple[str, str] = ("", "")
    ) -> list[AlertRuleRecord]:
        """Returns stored rules of one tenant or of all, in order of (tenant, name), only those `after`."""

    async def list_silences(self, tenant: str | None, now: int, limit: int, after: str = "") -> list[Silence]:
        """Returns silences of one tenant or of all that have not ended, by tenant; those that end first come first.
        Only those of tenants `after`."""

    async def list_watched_jobs(self, after: str, limit: int) -> list[WatchedJob]:
        """Returns the jobs of all tenants with `slo` or `expect_every`, in order of their ids, only ids `after` ("":
        from the first). A page that is shorter than `limit` is the last one."""

    async def count_history(self) -> int:
        """Returns the number of executions of all tenants."""

    async def list_history(self) -> list[Held]:
        """Returns the number of executions of each tenant that has any."""

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        """Returns the tenants of these executions, by execution id. Executions not in the ledger are left out."""

    async def list_statistics(self, query: StatisticsQuery) -> list[StatisticsRow]:
        """Returns rows of all spans that the query wants, the latest buckets first. Each ended attempt is in one row
        of the subject "", also while rows are rolled up."""

    async def list_node_reports(self, limit: int) -> list[NodeReport]:
        """Returns the last report of each node, latest first, also of nodes that have ended within the hour."""

    async def count_due_timers(self, since: int, until: int, limit: int) -> dict[str, int]:
        """Returns by tenant how many timers are due in [since, until), the earliest first, `limit` in all."""

    async def count_due_timers_of(self, tenant: str, since: int, until: int, limit: int) -> tuple[int, bool]:
        """Counts the timers of one tenant that are due in [since, until), among `limit` of its jobs. Returns also
        whether it has so many jobs: then it may have more."""

    async def count_waiting(self, tenant: str, until: int, limit: int) -> int:
        """Returns how many executions of a tenant could have been claimed before `until`, and were not. It counts up
        to `limit` that run on nodes, and as many that run in workers."""

    async def get_all_totals(self) -> Totals:
        """Returns the totals of jobs of all tenants. (Those of executions are kept by tenant only, and are 0.)"""

    async def list_events(
        self, after: int, tenants: Sequence[str], limit: int, tenant: str | None = None
    ) -> EventPages:  # fmt: skip
        """Returns events of these tenants in the log, from `limit` pages numbered after `after`, oldest first.

        Each page is whole. `tenant`: for a follower of that tenant; None: for the node's followers of all `tenants`.
        """

    async def newest_at(self) -> int | None:
        """Returns the newest instant in the ledger: of a node's start or of an execution. None if there is none."""

    # Reads for users, round-robin by tenant. They raise Overloaded if too many of one tenant wait. A `tenant` with the
    # default "" does not filter: it only names the tenant whose turn the read uses.
    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        """Raises Conflict if this version can't read the job's definition."""

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        """As `get_job`."""

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """A job whose definition can't be read is listed with its name, and the problem as its description."""

    async def count_jobs(self, query: JobQuery) -> int: ...

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None: ...

    async def list_executions(self, query: ExecutionQuery) -> Page[ExecutionRecord]:
        """Latest scheduled first."""

    async def count_executions(self, query: ExecutionQuery) -> int: ...

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]: ...

    async def list_skipped(self, job_id: str, limit: int, tenant: str = "") -> list[SkippedRecord]:
        """Returns the skipped spans of a job, latest first."""

    async def list_links(self, job_id: str, tenant: str = "") -> list[LinkRecord]:
        """Returns the jobs that a job runs after, in order of their keys."""

    async def list_lateness(self, job_id: str, limit: int, tenant: str = "") -> list[int]:
        """Returns started_at − scheduled_at in ms of the job's last runs; 0 where a clock set back makes it negative.

        Redriven dead letters are left out: they may have waited for their turn.
        """

    async def list_ends(self, job_id: str, since: int, until: int, limit: int, tenant: str = "") -> list[EndRecord]:
        """Returns ended executions of a job, scheduled in [since, until), the latest first; without skipped ones."""

    async def get_totals(self, tenant: str) -> Totals:
        """Returns the totals of a tenant. They change in the transactions that change the rows they count."""

    async def get_response(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        """Returns (fingerprint, response) of an idempotent create that has succeeded before."""

    async def get_load(self) -> Load:
        """Returns how much the store holds, over all tenants."""

    async def get_key(self, key_id: str) -> KeyRecord | None:
        """Returns a key of any tenant: the key determines the tenant and the user of a caller."""

    async def list_keys(self, tenant: str, limit: int) -> list[KeyRecord]:
        """Latest first."""

    async def list_signing_states(self, tenant: str | None, since: int, after: str, limit: int) -> list[SigningState]:
        """Returns states of one tenant or of all with a rotation at `since` or later; by tenant, only those `after`."""

    async def list_subscriptions(self, tenant: str | None, limit: int) -> list[SubscriptionRecord]:
        """Returns subscriptions of one tenant or of all, oldest first."""

    async def get_connection(self, tenant: str, name: str) -> ConnectionRecord | None: ...

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        """Returns connections of one tenant or of all, in order of their names."""

    async def list_alerts(self, tenant: str, limit: int) -> list[Alert]:
        """Returns the open alerts of a tenant, oldest first."""

    async def list_alert_history(
        self, tenant: str, limit: int, rule: str | None = None, before: tuple[int, str] | None = None
    ) -> list[Alert]:
        """Returns alerts of a tenant that are over, latest first. `before`: only those that resolved before that
        (instant, id)."""

    async def get_channel(self, tenant: str, name: str) -> ChannelRecord | None:
        """Returns an alert channel. The engine reads it for an attempt, so it does not wait behind users' reads."""

    async def list_channels(self, tenant: str | None, limit: int, after: str = "") -> list[ChannelRecord]:
        """Returns alert channels of one tenant or of all, in order of (tenant, name). Only those of tenants `after`."""

    async def list_audit(self, query: AuditQuery) -> Page[AuditRecord]: ...

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        """Returns pages of all chains after `after`, in order of (chain, link), so that they can be verified."""

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        """Returns the checkpoints of pruned chains. The rest of a chain begins with the link after its checkpoint."""

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        """Returns (job id, tenant, version, definition) of jobs with ids after `after`, except unreadable ones."""

    async def check(self) -> str | None:
        """Returns None if a read and the last write succeeded; otherwise a sentence that says what is wrong."""

    async def get_backlog(self, tenants: int, dead_letters: int) -> BacklogRecord:
        """Returns what the store holds, over all tenants: by state, and for the `tenants` with the most waiting
        executions. Counts up to `dead_letters` dead letters."""

    def writes(self) -> Writes:
        """Returns the results of the last writes, from memory: a node that can't write gives up its shards."""

    def usage(self) -> StoreUsage:
        """Returns how much of its room the store uses, from memory."""

    def on_commit(self, call: Callable[[int, float], None]) -> None:
        """Registers `call(commands, seconds)`, which is called on the event loop after each commit of the writer."""
