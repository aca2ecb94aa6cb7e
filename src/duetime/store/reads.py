"""The reads that differ between the stores only in their SQL.

A store names its SQL blocks and its filters as the others do, and runs them on three groups of connections: for the
engine, for the node itself, and for users. A block selects one column, `row`: JSON in the order of the record's fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from msgspec.structs import asdict

from duetime.domain import worker_limits
from duetime.domain.alerts import Alert
from duetime.domain.breaker import Circuit, CircuitChanges
from duetime.domain.capacity import Load
from duetime.domain.commands import Command
from duetime.domain.errors import Conflict, Overloaded
from duetime.domain.event_log import EventPages
from duetime.domain.execution import Claim
from duetime.domain.history import Held
from duetime.domain.instants import LATEST
from duetime.domain.job import JobSpec
from duetime.domain.lease import Writes
from duetime.domain.node_report import NodeReport
from duetime.domain.signing import SigningState
from duetime.domain.silences import Silence
from duetime.domain.states import State
from duetime.domain.statistics import StatisticsQuery, StatisticsRow
from duetime.ports.pages import PAGE_BYTES, ExpiredClaims, Page
from duetime.ports.store import (
    AlertRuleRecord,
    AuditCheckpoint,
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
from duetime.store.decoding import decode, decode_held, expired_claims, read_specs
from duetime.store.filtering import Sql
from duetime.store.totals import ALL, JOBS, read_totals, totals_of

T = TypeVar("T")
Group = TypeVar("Group")  # of connections
Block = TypeVar("Block")  # of SQL

NO_ID = "00000000-0000-0000-0000-000000000000"  # before all
MOST_WORKERS = 2**31  # a worker's id is below


class Filters(Protocol):
    """The module `filters` of a store."""

    def count_jobs(self, query: JobQuery) -> Sql: ...

    def list_executions(self, query: ExecutionQuery) -> Sql: ...

    def count_executions(self, query: ExecutionQuery) -> Sql: ...

    def list_audit(self, query: AuditQuery) -> Sql: ...


class StoreReads(ABC, Generic[Group, Block]):
    _engine_reads: Group
    _own_reads: Group
    _people_reads: Group
    _sql: Mapping[str, Block]
    _filters: Filters
    _read_errors: ClassVar[tuple[type[Exception], ...]] = (Overloaded,)

    @abstractmethod
    async def apply(self, commands: Sequence[Command]) -> list[Any]: ...

    @abstractmethod
    def writes(self) -> Writes: ...

    @abstractmethod
    def _text(self, group: Group, sql: Block, values: dict[str, Any]) -> Awaitable[str | None]:
        """Returns all rows as one JSON text: one value to receive and to decode, for any number of rows."""

    @abstractmethod
    def _list(self, values: Sequence[str]) -> object:
        """Returns a list as a block takes it."""

    @abstractmethod
    def _statement(self, sql: str) -> Block:
        """Returns SQL that a filter built as a block."""

    @abstractmethod
    async def _page(self, sql: Sql, row: type[T]) -> Page[T]:
        """Returns the rows of a filter that fit into a page, for users."""

    @abstractmethod
    async def _total(self, tenant: str, names: Sequence[str]) -> int:
        """Returns the sum of these totals."""

    async def _read(self, group: Group, block: str, row: Any, /, **values: Any) -> list[Any]:
        return decode(row, await self._text(group, self._sql[block], values))

    async def _ask(self, sql: Sql, row: type[T]) -> list[T]:
        """Returns the rows of a filter, for users."""
        return decode(row, await self._text(self._people_reads, self._statement(sql[0]), sql[1]))

    async def _find(self, group: Group, block: str, row: type[T], /, **values: Any) -> T | None:
        """Returns the only row; None if there is none."""
        return single(await self._read(group, block, row, **values))

    async def _instant(self, group: Group, block: str, /, **values: Any) -> int | None:
        return single(await self._read(group, block, int | None, **values))

    def _reads_of(self, tenant: str | None) -> Group:
        """Reads of one tenant are for users; reads of all tenants are for the engine."""
        return self._engine_reads if tenant is None else self._people_reads

    # For the engine.
    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        return await self._read(self._engine_reads, "list_waiting_tenants", str, now=now, after=after, limit=limit)

    async def list_expired_claims(self, node: int, limit: int) -> ExpiredClaims:
        values = {"node": node, "limit": limit, "bytes": PAGE_BYTES}
        text = await self._text(self._engine_reads, self._sql["list_expired_claims"], values)
        return expired_claims(decode_held(Claim, text))

    async def list_to_stop(self, node: int, limit: int) -> list[str]:
        return await self._read(self._engine_reads, "list_to_stop", str, node=node, limit=limit)

    async def list_workers(
        self, tenant: str | None, limit: int, before: int | None = None, function: str | None = None
    ) -> list[WorkerRecord]:
        return await self._read(
            self._reads_of(tenant), "list_workers", WorkerRecord, tenant=tenant, limit=limit, before=before,
            function=function, bytes=worker_limits.PAGE_BYTES,
        )  # fmt: skip

    async def list_beats(self, after: int, limit: int) -> list[tuple[int, int]]:
        return await self._read(self._engine_reads, "list_beats", tuple[int, int], after=after, limit=limit)

    async def get_worker(self, worker_id: int) -> WorkerRecord | None:
        if not 0 < worker_id < MOST_WORKERS:
            return None
        return await self._find(self._engine_reads, "get_worker", WorkerRecord, worker=worker_id)

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        row = tuple[str, int, int, bool]
        return await self._read(self._engine_reads, "list_claims", row, worker=worker_id, tenant=tenant, limit=limit)

    async def list_changed_circuits(self, since: int | None, limit: int) -> CircuitChanges:
        row = tuple[int, list[Circuit]]
        if since is None:
            (found,) = await self._read(self._engine_reads, "load_circuits", row, limit=limit)
        else:
            (found,) = await self._read(self._engine_reads, "list_changed_circuits", row, since=since, limit=limit)
        return CircuitChanges(*found)

    async def list_watched_jobs(self, after: str, limit: int) -> list[WatchedJob]:
        values = {"after": after or NO_ID, "limit": limit}
        return await self._read(self._engine_reads, "list_watched_jobs", WatchedJob, **values)

    async def count_history(self) -> int:
        (count,) = await self._read(self._engine_reads, "count_history", int)
        return cast(int, count)

    async def list_history(self) -> list[Held]:
        return await self._read(self._engine_reads, "list_history", Held)

    async def list_events(
        self, after: int, tenants: Sequence[str], limit: int, tenant: str | None = None
    ) -> EventPages:  # fmt: skip
        group = self._own_reads if tenant is None else self._people_reads
        values = {"after": after, "tenants": self._list(tenants), "limit": limit, "tenant": tenant}
        (pages,) = await self._read(group, "list_events", EventPages, **values)
        return cast(EventPages, pages)

    async def newest_at(self) -> int | None:
        return await self._instant(self._engine_reads, "newest_at")

    # For the node.
    async def list_statistics(self, query: StatisticsQuery) -> list[StatisticsRow]:
        block = "list_statistics" if query.tenant is None else "list_statistics_of"
        return await self._read(self._own_reads, block, StatisticsRow, **asdict(query))

    async def list_node_reports(self, limit: int) -> list[NodeReport]:
        return await self._read(self._own_reads, "list_node_reports", NodeReport, limit=limit)

    async def count_due_timers(self, since: int, until: int, limit: int) -> dict[str, int]:
        values = {"since": since, "until": until, "limit": limit}
        return dict(await self._read(self._own_reads, "count_due_timers", tuple[str, int], **values))

    async def count_due_timers_of(self, tenant: str, since: int, until: int, limit: int) -> tuple[int, bool]:
        values = {"tenant": tenant, "since": since, "until": until, "limit": limit}
        ((count, seen),) = await self._read(self._people_reads, "count_due_timers_of", tuple[int, int], **values)
        return count, seen >= limit

    async def count_waiting(self, tenant: str, until: int, limit: int) -> int:
        values = {"tenant": tenant, "until": until, "limit": limit}
        (count,) = await self._read(self._people_reads, "count_waiting", int, **values)
        return cast(int, count)

    async def get_all_totals(self) -> Totals:
        return read_totals(await self._read(self._own_reads, "get_totals", tuple[str, int], tenant=ALL))

    async def get_load(self) -> Load:
        (load,) = await self._read(self._own_reads, "get_load", Load)
        return cast(Load, load)

    async def get_backlog(self, tenants: int, dead_letters: int) -> BacklogRecord:
        group, row = self._own_reads, tuple[str, State, int]
        states = await self._read(group, "list_state_totals", tuple[State, int])
        waiting = await self._read(group, "list_waiting_totals", row, limit=tenants)
        (dead,) = await self._read(group, "count_dead", int, limit=dead_letters)
        return BacklogRecord(dict(states), waiting, dead)

    async def get_key(self, key_id: str) -> KeyRecord | None:
        return await self._find(self._own_reads, "get_key", KeyRecord, id=key_id)

    async def check(self) -> str | None:
        if (failure := self.writes().failure) is not None:
            return f"the last write failed: {failure}"
        try:
            await self._read(self._own_reads, "check", int)
        except self._read_errors as error:
            return f"the database can't be read: {error}"
        return None

    # For users.
    async def _ask_job(self, sql: Sql) -> JobRecord | None:
        text = await self._text(self._people_reads, self._statement(sql[0]), sql[1])
        found, apart = decode_held(JobRecord, text)
        if apart:
            job_id, error = apart[0].fields[0], apart[0].error
            raise Conflict(f"job {job_id} can't be shown or changed, {error}; install the version that wrote it")
        return single(found)

    async def count_jobs(self, query: JobQuery) -> int:
        if query == JobQuery(query.tenant, sort=query.sort, order=query.order, limit=query.limit,
                             offset=query.offset, after=query.after):  # fmt: skip
            return await self._total(query.tenant, [JOBS])
        return (await self._ask(self._filters.count_jobs(query), int))[0]

    async def list_executions(self, query: ExecutionQuery) -> Page[ExecutionRecord]:
        return await self._page(self._filters.list_executions(query), ExecutionRecord)

    async def count_executions(self, query: ExecutionQuery) -> int:
        if (names := totals_of(query)) is not None:
            return await self._total(query.tenant, names)
        return (await self._ask(self._filters.count_executions(query), int))[0]

    async def next_waiting_of(self, job_id: str, tenant: str = "") -> int | None:
        return await self._instant(self._people_reads, "next_waiting_of", job=job_id, tenant=tenant)

    async def list_skipped(self, job_id: str, limit: int, tenant: str = "") -> list[SkippedRecord]:
        return await self._read(
            self._people_reads, "list_skipped", SkippedRecord, job=job_id, limit=limit, tenant=tenant
        )

    async def list_links(self, job_id: str, tenant: str = "") -> list[LinkRecord]:
        return await self._read(self._people_reads, "list_links", LinkRecord, job=job_id, tenant=tenant)

    async def list_lateness(self, job_id: str, limit: int, tenant: str = "") -> list[int]:
        return await self._read(self._people_reads, "list_lateness", int, job=job_id, limit=limit, tenant=tenant)

    async def list_ends(self, job_id: str, since: int, until: int, limit: int, tenant: str = "") -> list[EndRecord]:
        return await self._read(
            self._people_reads, "list_ends", EndRecord, job=job_id, since=since, until=until, limit=limit, tenant=tenant
        )  # fmt: skip

    async def get_totals(self, tenant: str) -> Totals:
        return read_totals(await self._read(self._people_reads, "get_totals", tuple[str, int], tenant=tenant))

    async def get_response(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        row = tuple[str, str]
        return single(await self._read(self._people_reads, "get_response", row, tenant=tenant, key=idempotency_key))

    async def list_circuits(self, tenant: str | None, limit: int) -> list[Circuit]:
        if tenant is None:
            return await self._read(self._engine_reads, "list_circuits", Circuit, limit=limit)
        return await self._read(self._people_reads, "list_circuits_of", Circuit, tenant=tenant, limit=limit)

    async def list_open_circuits(self, most: int, limit: int) -> list[Circuit]:
        return await self._read(self._engine_reads, "list_open_circuits", Circuit, most=most, limit=limit)

    async def get_circuit(self, circuit: int, tenant: str = "") -> Circuit | None:
        return await self._find(self._people_reads, "get_circuit", Circuit, circuit=circuit, tenant=tenant)

    async def list_keys(self, tenant: str, limit: int) -> list[KeyRecord]:
        return await self._read(self._people_reads, "list_keys", KeyRecord, tenant=tenant, limit=limit)

    async def list_signing_states(self, tenant: str | None, since: int, after: str, limit: int) -> list[SigningState]:
        return await self._read(
            self._reads_of(tenant), "list_signing_states", SigningState, tenant=tenant, since=since, after=after,
            limit=limit,
        )  # fmt: skip

    async def list_subscriptions(self, tenant: str | None, limit: int) -> list[SubscriptionRecord]:
        group = self._reads_of(tenant)
        return await self._read(group, "list_subscriptions", SubscriptionRecord, tenant=tenant, limit=limit)

    async def get_connection(self, tenant: str, name: str) -> ConnectionRecord | None:
        return await self._find(self._people_reads, "get_connection", ConnectionRecord, tenant=tenant, name=name)

    async def get_channel(self, tenant: str, name: str) -> ChannelRecord | None:
        return await self._find(self._engine_reads, "get_channel", ChannelRecord, tenant=tenant, name=name)

    async def list_channels(self, tenant: str | None, limit: int, after: str = "") -> list[ChannelRecord]:
        values = {"tenant": tenant, "limit": limit, "after": after}
        return await self._read(self._reads_of(tenant), "list_channels", ChannelRecord, **values)

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        return await self._read(self._people_reads, "list_connections", ConnectionRecord, tenant=tenant, limit=limit)

    # Alerts
    async def list_open_alerts(self, after: tuple[str, str], limit: int) -> list[Alert]:
        tenant, alert_id = after
        return await self._read(
            self._engine_reads, "list_open_alerts", Alert, after_tenant=tenant, after_id=alert_id, limit=limit
        )

    async def list_alert_rules(
        self, tenant: str | None, limit: int, after: tuple[str, str] = ("", "")
    ) -> list[AlertRuleRecord]:
        return await self._read(
            self._reads_of(tenant), "list_alert_rules", AlertRuleRecord, tenant=tenant, after_tenant=after[0],
            after_name=after[1], limit=limit,
        )  # fmt: skip

    async def list_silences(self, tenant: str | None, now: int, limit: int, after: str = "") -> list[Silence]:
        values = {"tenant": tenant, "now": now, "limit": limit, "after": after}
        return await self._read(self._reads_of(tenant), "list_silences", Silence, **values)

    async def list_alerts(self, tenant: str, limit: int) -> list[Alert]:
        return await self._read(self._people_reads, "list_alerts_of", Alert, tenant=tenant, limit=limit)

    async def list_alert_history(
        self, tenant: str, limit: int, rule: str | None = None, before: tuple[int, str] | None = None
    ) -> list[Alert]:
        at, alert_id = before or (LATEST, "")
        return await self._read(
            self._people_reads, "list_alert_history", Alert, tenant=tenant, rule=rule, before_at=at,
            before_id=alert_id, limit=limit,
        )  # fmt: skip

    async def list_audit(self, query: AuditQuery) -> Page[AuditRecord]:
        return await self._page(self._filters.list_audit(query), AuditRecord)

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        return await self._read(self._people_reads, "list_audit_checkpoints", AuditCheckpoint)

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        def fetch(last: str) -> Awaitable[str | None]:
            return self._text(self._people_reads, self._sql["list_specs"], {"after": last, "limit": limit})

        return await read_specs(fetch, after)


def single(found: list[T]) -> T | None:
    return found[0] if found else None
