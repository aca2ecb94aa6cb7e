"""PostgresStore: several nodes, one database. Writes and reads use separate connections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import asyncpg

from duetime.domain import worker_limits
from duetime.domain.breaker import Circuit, CircuitChanges
from duetime.domain.capacity import UNBOUNDED, Capacity, Load
from duetime.domain.commands import Command, Finish, PauseJob
from duetime.domain.errors import Conflict, Overloaded
from duetime.domain.execution import Run
from duetime.domain.history import Held
from duetime.domain.ids import SHARDS, instant_of, is_id
from duetime.domain.job import JobSpec
from duetime.domain.lease import Writes
from duetime.domain.plan import DueTimer, Place
from duetime.domain.signing import SigningState
from duetime.domain.upkeep import Upkeep
from duetime.ports.pages import PAGE_BYTES, Page
from duetime.ports.store import (
    AttemptRecord,
    AuditCheckpoint,
    AuditPage,
    AuditQuery,
    AuditRecord,
    ConnectionRecord,
    ExecutionQuery,
    ExecutionRecord,
    JobQuery,
    JobRecord,
    KeyRecord,
    LinkRecord,
    SkippedRecord,
    SubscriptionRecord,
    WorkerRecord,
)
from duetime.postgres import TROUBLE
from duetime.settings.table import DEFAULTS
from duetime.store import StoreUnusable
from duetime.store.decoding import bounded, decode, decode_held, decode_page, given_up, read_specs
from duetime.store.postgres import faults, filters
from duetime.store.postgres.blocks import Statement, load_blocks, statement
from duetime.store.postgres.connections import PLANS, Address, Connections, Connector
from duetime.store.postgres.schema import migrate
from duetime.store.postgres.writer import WRITER_CONNECTIONS, Writer

T = TypeVar("T")

MOST_PASSED_OVER = 64  # groups of timers (by tenant and instant) that a page `without` tenants skips, a shard
ENGINE_CONNECTIONS = 2  # a user's slow list must not delay an execution
FEW_CONNECTIONS = 3  # for users; with fewer, none is reserved for the node
FIRST_ID = "00000000-0000-0000-0000-000000000000"
DEFAULT_UPKEEP = Upkeep(DEFAULTS.db_max_idle_conns, DEFAULTS.db_conn_max_idle_time, DEFAULTS.db_conn_max_lifetime)


class PostgresStore:
    """`url`: postgresql://…; with `?pgbouncer=true` no session state is kept between transactions."""

    def __init__(
        self, url: str, *, max_connections: int = DEFAULTS.db_max_open_conns,
        op_timeout_seconds: float = DEFAULTS.db_op_timeout, capacity: Capacity = UNBOUNDED,
        upkeep: Upkeep = DEFAULT_UPKEEP,
    ) -> None:  # fmt: skip
        people = max_connections - WRITER_CONNECTIONS - ENGINE_CONNECTIONS
        if people < 1:
            raise ValueError(f"a node needs {WRITER_CONNECTIONS + ENGINE_CONNECTIONS + 1} connections at least")
        self._address = Address(url)
        engine = Connector(self._address, op_timeout_seconds, PLANS, upkeep)
        self._writer = Writer(engine, op_timeout_seconds, capacity)
        self._engine_reads = Connections(engine, ENGINE_CONNECTIONS, op_timeout_seconds)
        readers = Connector(self._address, op_timeout_seconds, {"jit": "off"}, upkeep)
        # The node's own reads (health, API keys) do not wait for tenants' reads, if there are enough connections.
        own = 1 if people >= FEW_CONNECTIONS else 0
        self._people_reads = Connections(readers, people - own, op_timeout_seconds, shared=True)
        self._own_reads = Connections(readers, own, op_timeout_seconds) if own else self._people_reads
        self._sql = load_blocks("reads.sql")
        self._writer.on_read_only(self._leave_readers)

    async def start(self) -> None:
        try:
            await migrate(self._address)
        except (*TROUBLE, ValueError) as error:
            raise StoreUnusable(
                f"the database {self._address.shown} can't be used: {error or type(error).__name__}. "
                "Is the server running, is the URL right, and may this user create tables there?"
            ) from error
        self._writer.start()

    async def stop(self) -> None:
        await self._writer.stop()
        await self._engine_reads.close()
        await self._own_reads.close()
        await self._people_reads.close()

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        return await self._writer.submit(commands) if commands else []

    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> list[DueTimer]:  # fmt: skip
        wanted = list(range(SHARDS)) if shards is None else list(shards)
        due_at, tenant, job_id = after or (-1, "", FIRST_ID)
        each = min(limit, max(16, 2 * limit // max(1, len(wanted)))) + (MOST_PASSED_OVER if without else 0)
        values: dict[str, Any] = {
            "until": until, "limit": limit, "bytes": PAGE_BYTES, "after_due_at": due_at, "after_tenant": tenant,
            "after_job": job_id, "shards": wanted, "each": each, "without": list(without),
        }  # fmt: skip
        block = "list_due_timers_beside" if without else "list_due_timers"
        (row,) = await self._fetch(self._engine_reads, self._sql[block], values)
        timers, apart = decode_held(DueTimer, row["rows"])
        if row["is_cut"] and len(timers) < limit // 4:  # a few shards have most due timers
            (row,) = await self._fetch(self._engine_reads, self._sql[block], values | {"each": each + limit})
            timers, apart = decode_held(DueTimer, row["rows"])
        if row["is_cut"] and without and not timers and not apart:  # all skipped so far: read without a limit
            (row,) = await self._fetch(self._engine_reads, self._sql[block], values | {"each": 2**62})
            timers, apart = decode_held(DueTimer, row["rows"])
        if apart:
            now = _wall_clock()
            await self.apply([PauseJob(now, row.fields[1], row.fields[0], "duetime", row.error) for row in apart])
        return timers

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        values = {"shards": list(range(SHARDS)) if shards is None else list(shards)}
        ((found,),) = await self._fetch(self._engine_reads, self._sql["next_due_at"], values)
        return None if found is None else int(found)

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        block = "next_waiting_at_only" if only else "next_waiting_at"
        rows = await self._fetch(self._engine_reads, self._sql[block], {"tenant": tenant, "only": only})
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        values = {"now": now, "after": after, "limit": limit}
        return [row[0] for row in await self._fetch(self._engine_reads, self._sql["list_waiting_tenants"], values)]

    async def next_waiting_of(self, job_id: str, tenant: str = "") -> int | None:
        values = {"job": job_id, "tenant": tenant}
        ((found,),) = await self._fetch(self._people_reads, self._sql["next_waiting_of"], values)
        return None if found is None else int(found)

    async def list_lapsed_runs(self, node: int, limit: int) -> list[Run]:
        values = {"node": node, "limit": limit, "bytes": PAGE_BYTES}
        text = await self._text(self._engine_reads, self._sql["list_lapsed_runs"], values)
        runs, apart = decode_held(Run, text)
        if apart:
            now = _wall_clock()
            await self.apply([Finish(node, now, tuple(given_up(row, now) for row in apart))])
        return runs

    async def list_to_stop(self, node: int, limit: int) -> list[str]:
        values = {"node": node, "limit": limit}
        return [row[0] for row in await self._fetch(self._engine_reads, self._sql["list_to_stop"], values)]

    async def list_workers(
        self, tenant: str | None, limit: int, before: int | None = None, function: str | None = None
    ) -> list[WorkerRecord]:
        values = {
            "tenant": tenant, "limit": limit, "before": before, "function": function, "bytes": worker_limits.PAGE_BYTES
        }  # fmt: skip
        return await self._read(self._reads_of(tenant), self._sql["list_workers"], WorkerRecord, values)

    async def list_beats(self, after: int, limit: int) -> list[tuple[int, int]]:
        values = {"after": after, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_beats"], tuple[int, int], values)

    async def get_worker(self, worker_id: int) -> WorkerRecord | None:
        if not 0 < worker_id < 2**31:
            return None
        return _only(await self._read(self._engine_reads, self._sql["get_worker"], WorkerRecord, {"worker": worker_id}))

    async def list_runs_of(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Run]:
        values = {"worker": node, "ids": [id for id in execution_ids if is_id(id)], "tenant": tenant}
        return decode_held(Run, await self._text(self._engine_reads, self._sql["list_runs_of"], values))[0]

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        values = {"worker": worker_id, "tenant": tenant, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_claims"], tuple[str, int, int, bool], values)

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        values = {"node": node, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_node_claims"], tuple[str, int], values)

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        values = {"ids": execution_ids, "ats": list(map(instant_of, execution_ids)), "tenant": tenant}
        return dict(await self._read(self._reads_of(tenant), self._sql["get_progress"], tuple[str, str], values))

    async def list_circuits(self, tenant: str | None, limit: int) -> list[Circuit]:
        if tenant is None:
            return await self._read(self._engine_reads, self._sql["list_circuits"], Circuit, {"limit": limit})
        values = {"tenant": tenant, "limit": limit}
        return await self._read(self._people_reads, self._sql["list_circuits_of"], Circuit, values)

    async def list_changed_circuits(self, since: int | None, limit: int) -> CircuitChanges:
        sql = self._sql["load_circuits" if since is None else "list_changed_circuits"]
        values = {"limit": limit} if since is None else {"since": since, "limit": limit}
        found = await self._read(self._engine_reads, sql, tuple[int, list[Circuit]], values)
        return CircuitChanges(*found[0])

    async def get_circuit(self, circuit: int, tenant: str = "") -> Circuit | None:
        values = {"circuit": circuit, "tenant": tenant}
        return _only(await self._read(self._people_reads, self._sql["get_circuit"], Circuit, values))

    async def count_history(self) -> int:
        found: list[int] = await self._read(self._engine_reads, self._sql["count_history"], int, {})
        return found[0]

    async def list_history(self) -> list[Held]:
        return await self._read(self._engine_reads, self._sql["list_history"], Held, {})

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        ids = [one for one in execution_ids if is_id(one)]
        values = {"ids": ids, "ats": [instant_of(one) for one in ids]}
        return dict(await self._read(self._engine_reads, self._sql["list_tenants"], tuple[str, str], values))

    async def newest_at(self) -> int | None:
        return _only(await self._read(self._engine_reads, self._sql["newest_at"], int | None, {}))

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        if not is_id(job_id):
            return None
        return await self._ask_job("j.id = :job::uuid", {"job": job_id, "tenant": tenant})

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        return await self._ask_job("j.key = :key::text", {"key": key, "tenant": tenant})

    async def _ask_job(self, where: str, values: dict[str, Any]) -> JobRecord | None:
        text = await self._text(self._people_reads, statement(filters.get_job(where)), values)
        found, apart = decode_held(JobRecord, text)
        if apart:
            job_id, error = apart[0].fields[0], apart[0].error
            raise Conflict(f"job {job_id} can't be shown or changed, {error}; install the version that wrote it")
        return _only(found)

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        return await self._page(filters.list_jobs(query), JobRecord)

    async def count_jobs(self, query: JobQuery) -> int:
        if query == JobQuery(query.tenant, sort=query.sort, order=query.order, limit=query.limit,
                             offset=query.offset, after=query.after):  # fmt: skip
            return await self._counter(query.tenant, ["jobs"])
        return (await self._ask(filters.count_jobs(query), int))[0]

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None:
        if not is_id(execution_id):
            return None
        return _only(await self._ask(filters.get_execution(execution_id, tenant), ExecutionRecord))

    async def list_executions(self, query: ExecutionQuery) -> Page[ExecutionRecord]:
        return await self._page(filters.list_executions(query), ExecutionRecord)

    async def count_executions(self, query: ExecutionQuery) -> int:
        if (names := filters.counter_for(query)) is not None:
            return await self._counter(query.tenant, names)
        return (await self._ask(filters.count_executions(query), int))[0]

    async def _counter(self, tenant: str, names: Sequence[str]) -> int:
        values = {"tenant": tenant, "names": names}
        found: list[int] = await self._read(self._people_reads, self._sql["get_counter"], int, values)
        return found[0]

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]:
        values = {"execution": execution_id, "at": instant_of(execution_id), "tenant": tenant}
        return await self._read(self._people_reads, self._sql["list_attempts"], AttemptRecord, values)

    async def list_skipped(self, job_id: str, limit: int, tenant: str = "") -> list[SkippedRecord]:
        values = {"job": job_id, "limit": limit, "tenant": tenant}
        return await self._read(self._people_reads, self._sql["list_skipped"], SkippedRecord, values)

    async def list_links(self, job_id: str, tenant: str = "") -> list[LinkRecord]:
        values = {"job": job_id, "tenant": tenant}
        return await self._read(self._people_reads, self._sql["list_links"], LinkRecord, values)

    async def list_lateness(self, job_id: str, limit: int, tenant: str = "") -> list[int]:
        values = {"job": job_id, "limit": limit, "tenant": tenant}
        return await self._read(self._people_reads, self._sql["list_lateness"], int, values)

    async def get_response(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        values = {"tenant": tenant, "key": idempotency_key}
        return _only(await self._read(self._people_reads, self._sql["get_response"], tuple[str, str], values))

    async def get_load(self) -> Load:
        (load,) = await self._read(self._own_reads, self._sql["get_load"], Load, {})
        return cast(Load, load)

    async def get_key(self, key_id: str) -> KeyRecord | None:
        return _only(await self._read(self._own_reads, self._sql["get_key"], KeyRecord, {"id": key_id}))

    async def list_keys(self, tenant: str, limit: int) -> list[KeyRecord]:
        values = {"tenant": tenant, "limit": limit}
        return await self._read(self._people_reads, self._sql["list_keys"], KeyRecord, values)

    async def list_signing_states(self, tenant: str | None, since: int, after: str, limit: int) -> list[SigningState]:
        values = {"tenant": tenant, "since": since, "after": after, "limit": limit}
        return await self._read(self._reads_of(tenant), self._sql["list_signing_states"], SigningState, values)

    async def list_subscriptions(self, tenant: str | None, limit: int) -> list[SubscriptionRecord]:
        values = {"tenant": tenant, "limit": limit}
        return await self._read(self._reads_of(tenant), self._sql["list_subscriptions"], SubscriptionRecord, values)

    async def get_connection(self, tenant: str, name: str) -> ConnectionRecord | None:
        values = {"tenant": tenant, "name": name}
        return _only(await self._read(self._people_reads, self._sql["get_connection"], ConnectionRecord, values))

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        values = {"tenant": tenant, "limit": limit}
        return await self._read(self._people_reads, self._sql["list_connections"], ConnectionRecord, values)

    async def list_audit(self, query: AuditQuery) -> Page[AuditRecord]:
        return await self._page(filters.list_audit(query), AuditRecord)

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        values = {"chain": after[0], "link": after[1], "limit": limit}
        return await self._read(self._people_reads, self._sql["list_audit_pages"], AuditPage, values)

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        return await self._read(self._people_reads, self._sql["list_audit_checkpoints"], AuditCheckpoint, {})

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        sql = self._sql["list_specs"]
        return await read_specs(
            lambda last: self._text(self._people_reads, sql, {"after": last, "limit": limit}), after
        )

    def writes(self) -> Writes:
        return Writes(self._writer.committed, self._writer.last_error)

    def _leave_readers(self) -> None:
        """Drops connections to a server that is not the primary (any more): it would return old rows."""
        self._engine_reads.drop_idle()
        self._own_reads.drop_idle()
        self._people_reads.drop_idle()

    async def check(self) -> str | None:
        if (error := self._writer.last_error) is not None:
            return f"the last write failed: {error}"
        try:
            await self._read(self._own_reads, self._sql["check"], int, {})
        except Overloaded as error:
            return f"the database can't be read: {error}"
        return None

    def _reads_of(self, tenant: str | None) -> Connections:
        """Reads of one tenant are for users; reads of all tenants are for the engine."""
        return self._engine_reads if tenant is None else self._people_reads

    async def _ask(self, sql: filters.Sql, row: type[T]) -> list[T]:
        return await self._read(self._people_reads, statement(sql[0]), row, sql[1])

    async def _page(self, sql: filters.Sql, row: type[T]) -> Page[T]:
        """Returns a page. The server sends the rows that fit, and one more. (It still reads the others.)"""
        inner = statement(sql[0])
        window = "OVER (ROWS UNBOUNDED PRECEDING)"
        sized = f"SELECT found.row, sum(octet_length(found.row)) {window} AS bytes, row_number() {window} AS place"
        fits = f"bytes - octet_length(sized.row) <= {PAGE_BYTES} OR place <= 2"
        fitting = f"SELECT sized.row FROM ({sized} FROM ({inner.sql}) AS found) AS sized WHERE {fits}"
        rows = await self._fetch(self._people_reads, Statement(fitting, inner.names), sql[1])
        return decode_page(row, bounded(one["row"] for one in rows))

    async def _read(self, connections: Connections, sql: Statement, row: Any, values: dict[str, Any]) -> list[Any]:
        return decode(row, await self._text(connections, sql, values))

    async def _text(self, connections: Connections, sql: Statement, values: dict[str, Any]) -> str | None:
        """Returns all rows as one JSON text: one value to receive for any number of rows."""
        together = Statement(f"SELECT '[' || string_agg(row, ',') || ']' FROM ({sql.sql}) AS found", sql.names)
        ((text,),) = await self._fetch(connections, together, values)
        return None if text is None else str(text)

    async def _fetch(self, connections: Connections, sql: Statement, values: dict[str, Any]) -> list[asyncpg.Record]:
        tenant = values.get("tenant") or ""
        try:
            try:
                return await connections.fetch(sql.sql, sql.arguments(values), tenant)
            except Exception as error:
                if not faults.is_lost(error):
                    raise
                connections.drop_idle()  # they were opened before the server failed or restarted
                return await connections.fetch(sql.sql, sql.arguments(values), tenant)
        except faults.AWAY as error:
            if faults.is_refusal(error):
                raise
            raise faults.unavailable(error, "nothing was read") from error


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _only(found: list[T]) -> T | None:
    return found[0] if found else None
