"""SqliteStore: the embedded store. One file, one writer thread, a few reader threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import apsw

from duetime.domain import audit
from duetime.domain.capacity import UNBOUNDED, Capacity
from duetime.domain.commands import Command
from duetime.domain.errors import Overloaded
from duetime.domain.execution import Claim
from duetime.domain.lease import Writes
from duetime.domain.plan import DueTimer, Place
from duetime.ports.pages import PAGE_BYTES, DueTimers, Page
from duetime.ports.store import AttemptRecord, AuditPage, ExecutionRecord, JobQuery, JobRecord
from duetime.ports.usage import StoreUsage
from duetime.settings.table import DEFAULTS
from duetime.store.decoding import decode_held, decode_page, due_timers
from duetime.store.filtering import Sql
from duetime.store.reads import StoreReads, single
from duetime.store.sqlite import filters
from duetime.store.sqlite.blocks import load_blocks
from duetime.store.sqlite.checkpointer import Checkpointer
from duetime.store.sqlite.connection import (
    SMALL_CACHE_KIB,
    fence_all_nodes,
    lock_folder,
    migrate,
    open_checked,
    open_connection,
)
from duetime.store.sqlite.handover import refuse_promoted
from duetime.store.sqlite.readers import FairReads, Reads, TimedReads
from duetime.store.sqlite.statements import page
from duetime.store.sqlite.writer import MOST_WAITING, Writer

T = TypeVar("T")

OPEN_PAGE = 2_000  # open executions that one read looks at, in a few ms
MOST_PASSED_OVER = 2_000  # groups of timers (by tenant and instant) that a page `without` tenants skips


class SqliteStore(StoreReads[Reads, str]):
    _people_reads: FairReads
    _filters = filters
    _read_errors = (apsw.Error, Overloaded)

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
                fence_all_nodes(connection)
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
    ) -> DueTimers:  # fmt: skip
        due_at, tenant, job_id = after or (-1, "", "")
        values = {
            "until": until, "limit": limit, "bytes": PAGE_BYTES, "after_due_at": due_at, "after_tenant": tenant,
            "after_job": job_id, "shards": _shards(shards), "without": page(without),
            "steps": limit + MOST_PASSED_OVER,
        }  # fmt: skip
        block = "list_due_timers_beside" if without else "list_due_timers"
        text = await self._engine_reads.text(self._sql[block], values)
        if text is None and without:  # all may have been skipped: read without a limit
            text = await self._engine_reads.text(self._sql[block], values | {"steps": -1})
        return due_timers(decode_held(DueTimer, text))

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        return await self._instant(self._engine_reads, "next_due_at", shards=_shards(shards))

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        block = "next_waiting_at_only" if only else "next_waiting_at"
        return await self._instant(self._engine_reads, block, tenant=tenant, only=page(only))

    async def get_claims(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Claim]:
        values = {"worker": node, "ids": page(execution_ids), "tenant": tenant}
        return decode_held(Claim, await self._engine_reads.text(self._sql["get_claims"], values))[0]

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        values: dict[str, Any] = {"node": node, "limit": OPEN_PAGE, "after_job": "", "after_state": "", "after_id": ""}
        while len(found) < limit:  # in pages: the same thread reads due timers
            row = tuple[str, int, str, str, int]
            page = await self._read(self._engine_reads, "list_node_claims", row, **values)
            found += [(id, token) for id, token, _, _, is_claim in page if is_claim]
            if len(page) < OPEN_PAGE:
                break
            values |= {"after_id": page[-1][0], "after_state": page[-1][2], "after_job": page[-1][3]}
        return found[:limit]

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        group, row, ids = self._reads_of(tenant), tuple[str, str], page(execution_ids)
        return dict(await self._read(group, "get_progress", row, ids=ids, tenant=tenant))

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        return dict(await self._read(self._engine_reads, "list_tenants", tuple[str, str], ids=page(execution_ids)))

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        return await self._ask_job(filters.get_job(job_id, tenant))

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        return await self._ask_job(filters.get_job_by_key(key, tenant))

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        if query.sort == "next_run_time" and query.after is None and not filters.is_narrow(query):
            found = await self._page(filters.soonest_jobs(query), JobRecord)
            if found.is_cut or len(found) == query.limit:
                return found
        return await self._page(filters.list_jobs(query), JobRecord)

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None:
        return single(await self._ask(filters.get_execution(execution_id, tenant), ExecutionRecord))

    async def _total(self, tenant: str, names: Sequence[str]) -> int:
        found = [await self._read(self._people_reads, "get_counter", int, tenant=tenant, name=name) for name in names]
        return sum(sum(values) for values in found)

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]:
        return await self._read(
            self._people_reads, "list_attempts", AttemptRecord, execution=execution_id, tenant=tenant
        )

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        chain, link = after  # SQLite has one chain; it keeps its number when it is promoted
        before = link if chain >= audit.PROMOTED else -(2**40)
        return await self._read(self._people_reads, "list_audit_pages", AuditPage, after=before, limit=limit)

    def writes(self) -> Writes:
        return Writes(self._writer.committed, self._writer.last_error)

    def usage(self) -> StoreUsage:
        groups = {"engine": self._engine_reads, "own": self._own_reads, "people": self._people_reads}
        pools = {name: group.usage() for name, group in groups.items()}
        return StoreUsage(self._writer.waiting(), MOST_WAITING, pools)

    def on_commit(self, call: Callable[[int, float], None]) -> None:
        self._writer.on_commit = call

    def _list(self, values: Sequence[str]) -> str:
        return page(values)

    def _statement(self, sql: str) -> str:
        return sql

    def _text(self, group: Reads, sql: str, values: dict[str, Any]) -> Awaitable[str | None]:
        return group.text(sql, values)

    async def _page(self, sql: Sql, row: type[T]) -> Page[T]:
        return decode_page(row, await self._people_reads.page(*sql))


def _shards(shards: Sequence[int] | None) -> str | None:
    return None if shards is None else page(shards)
