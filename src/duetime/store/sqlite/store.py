"""SqliteStore: the embedded store. One file, one writer thread, a few reader threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import apsw
import msgspec

from duetime.domain import audit, worker_limits
from duetime.domain.breaker import Circuit, CircuitChanges
from duetime.domain.capacity import UNBOUNDED, Capacity, Load
from duetime.domain.commands import Command, Finish, PauseJob
from duetime.domain.errors import Conflict, Overloaded
from duetime.domain.execution import Run
from duetime.domain.history import Held
from duetime.domain.job import JobSpec
from duetime.domain.lease import Writes
from duetime.domain.plan import DueTimer, Place
from duetime.domain.signing import SigningState
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
from duetime.settings.table import DEFAULTS
from duetime.store.decoding import decode, decode_held, decode_page, given_up, read_specs
from duetime.store.sqlite import filters
from duetime.store.sqlite.blocks import load_blocks
from duetime.store.sqlite.checkpointer import Checkpointer
from duetime.store.sqlite.connection import (
    SMALL_CACHE_KIB,
    lock_folder,
    migrate,
    open_checked,
    open_connection,
    void_nodes,
)
from duetime.store.sqlite.handover import refuse_promoted
from duetime.store.sqlite.readers import FairReads, Reads, TimedReads
from duetime.store.sqlite.statements import page
from duetime.store.sqlite.writer import Writer

T = TypeVar("T")

OPEN_PAGE = 2_000  # open executions that one read looks at, in a few ms
MOST_PASSED_OVER = 2_000  # groups of timers (by tenant and instant) that a page `without` tenants skips


class SqliteStore:
    def __init__(
        self, folder: Path, capacity: Capacity = UNBOUNDED, read_seconds: float = DEFAULTS.db_op_timeout
    ) -> None:
        self._folder = folder
        self._lock: IO[str] | None = None
        self._was_open = False
        checkpointer = Checkpointer(lambda: open_connection(folder, writer=True, cache_kib=SMALL_CACHE_KIB))
        self._writer = Writer(self._open_writer, capacity, checkpointer)
        self._engine_reads = Reads(folder, 1, "duetime-engine-read")
        self._own_reads = TimedReads(folder, 1, "duetime-own-read", read_seconds)
        self._people_reads = FairReads(folder, "duetime-read", read_seconds)
        self._sql = load_blocks("reads.sql")

    async def start(self) -> None:
        self._lock = lock_folder(self._folder)
        try:
            await self._writer.start()
        except BaseException:
            self._lock.close()
            raise

    def _open_writer(self) -> apsw.Connection:
        connection = open_checked(self._folder)
        try:
            migrate(connection)
            if not self._was_open:
                # Only at the first open. After a failure this same process opens the file again: its node is alive, and
                # if it is stopping for a promotion, it still has to write the ends of its executions.
                refuse_promoted(connection, self._folder)
                void_nodes(connection)
            self._was_open = True
        except BaseException:
            connection.close()
            raise
        return connection

    async def stop(self) -> None:
        await self._writer.stop()
        for reads in (self._engine_reads, self._own_reads, self._people_reads):
            await reads.stop()
        if self._lock is not None:
            self._lock.close()

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        return await self._writer.submit(commands)

    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> list[DueTimer]:  # fmt: skip
        due_at, tenant, job_id = after or (-1, "", "")
        values = {
            "until": until, "limit": limit, "bytes": PAGE_BYTES, "after_due_at": due_at, "after_tenant": tenant,
            "after_job": job_id, "shards": _as_json(shards), "without": _as_json(without),
            "steps": limit + MOST_PASSED_OVER,
        }  # fmt: skip
        block = "list_due_timers_beside" if without else "list_due_timers"
        text = await self._engine_reads.text(self._sql[block], values)
        if text is None and without:  # all may have been skipped: read without a limit
            text = await self._engine_reads.text(self._sql[block], values | {"steps": -1})
        timers, apart = decode_held(DueTimer, text)
        if apart:
            now = _wall_clock()
            await self.apply([PauseJob(now, row.fields[1], row.fields[0], "duetime", row.error) for row in apart])
        return timers

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        return await self._soonest("next_due_at", {"shards": _as_json(shards)})

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        if only:
            return await self._soonest("next_waiting_at_only", {"tenant": tenant, "only": _as_json(only)})
        return await self._soonest("next_waiting_at", {})

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        values = {"now": now, "after": after, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_waiting_tenants"], str, values)

    async def next_waiting_of(self, job_id: str, tenant: str = "") -> int | None:
        values = {"job": job_id, "tenant": tenant}
        return _only(await self._read(self._people_reads, self._sql["next_waiting_of"], int | None, values))

    async def _soonest(self, block: str, values: dict[str, Any]) -> int | None:
        return _only(await self._read(self._engine_reads, self._sql[block], int | None, values))

    async def list_lapsed_runs(self, node: int, limit: int) -> list[Run]:
        values = {"node": node, "limit": limit, "bytes": PAGE_BYTES}
        text = await self._engine_reads.text(self._sql["list_lapsed_runs"], values)
        runs, apart = decode_held(Run, text)
        if apart:
            now = _wall_clock()
            await self.apply([Finish(node, now, tuple(given_up(row, now) for row in apart))])
        return runs

    async def list_to_stop(self, node: int, limit: int) -> list[str]:
        values = {"node": node, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_to_stop"], str, values)

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
        return _only(await self._read(self._engine_reads, self._sql["get_worker"], WorkerRecord, {"worker": worker_id}))

    async def list_runs_of(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Run]:
        values = {"worker": node, "ids": page(list(execution_ids)), "tenant": tenant}
        return decode_held(Run, await self._engine_reads.text(self._sql["list_runs_of"], values))[0]

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        values = {"worker": worker_id, "tenant": tenant, "limit": limit}
        return await self._read(self._engine_reads, self._sql["list_claims"], tuple[str, int, int, bool], values)

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        values: dict[str, Any] = {"node": node, "limit": OPEN_PAGE, "after_job": "", "after_state": "", "after_id": ""}
        while len(found) < limit:  # in pages: the same thread reads due timers
            row = tuple[str, int, str, str, int]
            page = await self._read(self._engine_reads, self._sql["list_node_claims"], row, values)
            found += [(id, token) for id, token, _, _, is_claim in page if is_claim]
            if len(page) < OPEN_PAGE:
                break
            values |= {"after_id": page[-1][0], "after_state": page[-1][2], "after_job": page[-1][3]}
        return found[:limit]

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        sql, values = self._sql["get_progress"], {"ids": page(list(execution_ids)), "tenant": tenant}
        return dict(await self._read(self._reads_of(tenant), sql, tuple[str, str], values))

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
        return _only(await self._ask(self._sql["get_circuit"], Circuit, values))

    async def count_history(self) -> int:
        found: list[int] = await self._read(self._engine_reads, self._sql["count_history"], int, {})
        return found[0]

    async def list_history(self) -> list[Held]:
        return await self._read(self._engine_reads, self._sql["list_history"], Held, {})

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        values = {"ids": page(execution_ids)}
        return dict(await self._read(self._engine_reads, self._sql["list_tenants"], tuple[str, str], values))

    async def newest_at(self) -> int | None:
        return _only(await self._read(self._engine_reads, self._sql["newest_at"], int | None, {}))

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        sql = f"{filters.HELD_JOB_ROW} WHERE j.id = unhex(:job, '-') AND j.tenant = :tenant"
        return await self._ask_job(sql, {"job": job_id, "tenant": tenant})

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        sql = f"{filters.HELD_JOB_ROW} WHERE j.tenant = :tenant AND j.key = :key"
        return await self._ask_job(sql, {"key": key, "tenant": tenant})

    async def _ask_job(self, sql: str, values: dict[str, Any]) -> JobRecord | None:
        found, apart = decode_held(JobRecord, await self._people_reads.text(sql, values))
        if apart:
            job_id, error = apart[0].fields[0], apart[0].error
            raise Conflict(f"job {job_id} can't be shown or changed, {error}; install the version that wrote it")
        return _only(found)

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        if query.sort == "next_run_time" and query.after is None and not filters.is_narrow(query):
            found = await self._page(filters.soonest_jobs(query), JobRecord)
            if found.is_cut or len(found) == query.limit:
                return found
        return await self._page(filters.list_jobs(query), JobRecord)

    async def count_jobs(self, query: JobQuery) -> int:
        if query == JobQuery(query.tenant, sort=query.sort, order=query.order, limit=query.limit,
                             offset=query.offset, after=query.after):  # fmt: skip
            return await self._counter(query.tenant, ["jobs"])
        return (await self._ask(*_typed(filters.count_jobs(query), int)))[0]

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None:
        sql = f"{filters.EXECUTION_ROW} WHERE e.id = unhex(:id, '-') AND e.tenant = :tenant"
        return _only(await self._ask(sql, ExecutionRecord, {"id": execution_id, "tenant": tenant}))

    async def list_executions(self, query: ExecutionQuery) -> Page[ExecutionRecord]:
        return await self._page(filters.list_executions(query), ExecutionRecord)

    async def count_executions(self, query: ExecutionQuery) -> int:
        if (names := filters.counter_for(query)) is not None:
            return await self._counter(query.tenant, names)
        return (await self._ask(*_typed(filters.count_executions(query), int)))[0]

    async def _counter(self, tenant: str, names: Sequence[str]) -> int:
        found = [await self._ask(self._sql["get_counter"], int, {"tenant": tenant, "name": name}) for name in names]
        return sum(sum(values) for values in found)

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]:
        values = {"execution": execution_id, "tenant": tenant}
        return await self._ask(self._sql["list_attempts"], AttemptRecord, values)

    async def list_skipped(self, job_id: str, limit: int, tenant: str = "") -> list[SkippedRecord]:
        values = {"job": job_id, "limit": limit, "tenant": tenant}
        return await self._ask(self._sql["list_skipped"], SkippedRecord, values)

    async def list_links(self, job_id: str, tenant: str = "") -> list[LinkRecord]:
        return await self._ask(self._sql["list_links"], LinkRecord, {"job": job_id, "tenant": tenant})

    async def list_lateness(self, job_id: str, limit: int, tenant: str = "") -> list[int]:
        values = {"job": job_id, "limit": limit, "tenant": tenant}
        return await self._ask(self._sql["list_lateness"], int, values)

    async def get_response(self, tenant: str, idempotency_key: str) -> tuple[str, str] | None:
        values = {"tenant": tenant, "key": idempotency_key}
        return _only(await self._ask(self._sql["get_response"], tuple[str, str], values))

    async def get_load(self) -> Load:
        (load,) = await self._read(self._own_reads, self._sql["get_load"], Load, {})
        return cast(Load, load)

    async def get_key(self, key_id: str) -> KeyRecord | None:
        return _only(await self._read(self._own_reads, self._sql["get_key"], KeyRecord, {"id": key_id}))

    async def list_keys(self, tenant: str, limit: int) -> list[KeyRecord]:
        return await self._ask(self._sql["list_keys"], KeyRecord, {"tenant": tenant, "limit": limit})

    async def list_signing_states(self, tenant: str | None, since: int, after: str, limit: int) -> list[SigningState]:
        values = {"tenant": tenant, "since": since, "after": after, "limit": limit}
        return await self._read(self._reads_of(tenant), self._sql["list_signing_states"], SigningState, values)

    async def list_subscriptions(self, tenant: str | None, limit: int) -> list[SubscriptionRecord]:
        values = {"tenant": tenant, "limit": limit}
        return await self._read(self._reads_of(tenant), self._sql["list_subscriptions"], SubscriptionRecord, values)

    async def get_connection(self, tenant: str, name: str) -> ConnectionRecord | None:
        values = {"tenant": tenant, "name": name}
        return _only(await self._ask(self._sql["get_connection"], ConnectionRecord, values))

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        values = {"tenant": tenant, "limit": limit}
        return await self._ask(self._sql["list_connections"], ConnectionRecord, values)

    async def list_audit(self, query: AuditQuery) -> Page[AuditRecord]:
        return await self._page(filters.list_audit(query), AuditRecord)

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        chain, link = after  # SQLite has one chain; it keeps its number when it is promoted
        values = {"after": link if chain >= audit.PROMOTED else -(2**40), "limit": limit}
        return await self._ask(self._sql["list_audit_pages"], AuditPage, values)

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        return await self._ask(self._sql["list_audit_checkpoints"], AuditCheckpoint, {})

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        sql = self._sql["list_specs"]
        return await read_specs(lambda last: self._people_reads.text(sql, {"after": last, "limit": limit}), after)

    def writes(self) -> Writes:
        return Writes(self._writer.committed, self._writer.last_error)

    async def check(self) -> str | None:
        if self._writer.last_error is not None:
            return f"the last write failed: {self._writer.last_error}"
        try:
            await self._read(self._own_reads, self._sql["check"], int, {})
        except (apsw.Error, Overloaded) as error:
            return f"the database can't be read: {error}"
        return None

    def _reads_of(self, tenant: str | None) -> Reads:
        """Reads of one tenant are for users; reads of all tenants are for the engine."""
        return self._engine_reads if tenant is None else self._people_reads

    async def _ask(self, sql: str, row: type[T], values: dict[str, Any]) -> list[T]:
        return await self._read(self._people_reads, sql, row, values)

    async def _read(self, reads: Reads, sql: str, row: Any, values: dict[str, Any]) -> list[Any]:
        return decode(row, await reads.text(sql, values))

    async def _page(self, statement: filters.Sql, row: type[T]) -> Page[T]:
        return decode_page(row, await self._people_reads.page(*statement))


def _as_json(values: Sequence[int] | Sequence[str] | None) -> str | None:
    return None if values is None else msgspec.json.encode(values).decode()


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _only(found: list[T]) -> T | None:
    return found[0] if found else None


def _typed(statement: filters.Sql, row: type[T]) -> tuple[str, type[T], dict[str, Any]]:
    return statement[0], row, statement[1]
