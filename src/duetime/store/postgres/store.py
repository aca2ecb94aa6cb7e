"""PostgresStore: several nodes, one database. Writes and reads use separate connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import asyncpg

from duetime.domain.capacity import UNBOUNDED, Capacity
from duetime.domain.commands import AddEvents, Command
from duetime.domain.execution import Claim
from duetime.domain.ids import SHARDS, instant_of, is_id
from duetime.domain.lease import Writes
from duetime.domain.plan import DueTimer, Place
from duetime.domain.upkeep import Upkeep
from duetime.ports.pages import PAGE_BYTES, DueTimers, Page
from duetime.ports.store import AttemptRecord, AuditPage, ExecutionRecord, JobQuery, JobRecord
from duetime.ports.usage import StoreUsage
from duetime.postgres import TROUBLE
from duetime.settings.table import DEFAULTS
from duetime.store import StoreUnusable
from duetime.store.decoding import bounded, decode_held, decode_page, due_timers
from duetime.store.filtering import Sql
from duetime.store.postgres import faults, filters
from duetime.store.postgres.blocks import Statement, load_blocks, statement
from duetime.store.postgres.connections import PLANS, Address, Connections, Connector
from duetime.store.postgres.on_events import values_of
from duetime.store.postgres.schema import migrate
from duetime.store.postgres.writer import MOST_WAITING, WRITER_CONNECTIONS, Writer
from duetime.store.reads import StoreReads, single

T = TypeVar("T")

MOST_PASSED_OVER = 64  # groups of timers (by tenant and instant) that a page `without` tenants skips, a shard
ENGINE_CONNECTIONS = 2  # a user's slow list must not delay an execution
FEW_CONNECTIONS = 3  # for users; with fewer, none is reserved for the node
FIRST_ID = "00000000-0000-0000-0000-000000000000"
DEFAULT_UPKEEP = Upkeep(DEFAULTS.db_max_idle_conns, DEFAULTS.db_conn_max_idle_time, DEFAULTS.db_conn_max_lifetime)


class PostgresStore(StoreReads[Connections, Statement]):
    """`url`: postgresql://…; with `?pgbouncer=true` no session state is kept between transactions."""

    _filters = filters

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
        self._add_events_block = load_blocks("events.sql")["add_events"]
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
        if len(commands) == 1 and isinstance(commands[0], AddEvents):
            return [await self._add_events(commands[0])]
        return await self._writer.submit(commands) if commands else []

    async def _add_events(self, command: AddEvents) -> int | None:
        """Appends a page in one statement that commits by itself: the lock on the head ends with it, even if this node
        stands still meanwhile. A group commit would hold the lock until its last command is applied."""
        rows = await self._fetch(self._own_reads, self._add_events_block, values_of(command))
        return int(rows[0][0]) if rows else None

    async def list_due_timers(
        self, until: int, limit: int, after: Place | None = None, shards: Sequence[int] | None = None,
        without: Sequence[str] = (),
    ) -> DueTimers:  # fmt: skip
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
        return due_timers((timers, apart))

    async def next_due_at(self, shards: Sequence[int] | None = None) -> int | None:
        wanted = list(range(SHARDS)) if shards is None else list(shards)
        return await self._instant(self._engine_reads, "next_due_at", shards=wanted)

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        block = "next_waiting_at_only" if only else "next_waiting_at"
        return await self._instant(self._engine_reads, block, tenant=tenant, only=only)

    async def get_claims(self, node: int, execution_ids: Sequence[str], tenant: str | None = None) -> list[Claim]:
        values = {"worker": node, "ids": [id for id in execution_ids if is_id(id)], "tenant": tenant}
        return decode_held(Claim, await self._text(self._engine_reads, self._sql["get_claims"], values))[0]

    async def list_node_claims(self, node: int, limit: int) -> list[tuple[str, int]]:
        return await self._read(self._engine_reads, "list_node_claims", tuple[str, int], node=node, limit=limit)

    async def get_progress(self, execution_ids: Sequence[str], tenant: str | None = None) -> dict[str, str]:
        group, row, ats = self._reads_of(tenant), tuple[str, str], list(map(instant_of, execution_ids))
        return dict(await self._read(group, "get_progress", row, ids=execution_ids, ats=ats, tenant=tenant))

    async def list_tenants(self, execution_ids: Sequence[str]) -> dict[str, str]:
        ids = [one for one in execution_ids if is_id(one)]
        ats = list(map(instant_of, ids))
        return dict(await self._read(self._engine_reads, "list_tenants", tuple[str, str], ids=ids, ats=ats))

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        if not is_id(job_id):
            return None
        return await self._ask_job(filters.get_job(job_id, tenant))

    async def get_job_by_key(self, tenant: str, key: str) -> JobRecord | None:
        return await self._ask_job(filters.get_job_by_key(key, tenant))

    async def list_jobs(self, query: JobQuery) -> Page[JobRecord]:
        return await self._page(filters.list_jobs(query), JobRecord)

    async def get_execution(self, tenant: str, execution_id: str) -> ExecutionRecord | None:
        if not is_id(execution_id):
            return None
        return single(await self._ask(filters.get_execution(execution_id, tenant), ExecutionRecord))

    async def _total(self, tenant: str, names: Sequence[str]) -> int:
        (count,) = await self._read(self._people_reads, "get_counter", int, tenant=tenant, names=names)
        return cast(int, count)

    async def list_attempts(self, execution_id: str, tenant: str = "") -> list[AttemptRecord]:
        at = instant_of(execution_id)
        return await self._read(
            self._people_reads, "list_attempts", AttemptRecord, execution=execution_id, at=at, tenant=tenant
        )

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        chain, link = after
        return await self._read(self._people_reads, "list_audit_pages", AuditPage, chain=chain, link=link, limit=limit)

    def writes(self) -> Writes:
        return Writes(self._writer.committed, self._writer.last_error)

    def usage(self) -> StoreUsage:
        pools = {"engine": self._engine_reads.usage(), "people": self._people_reads.usage()}
        if self._own_reads is not self._people_reads:
            pools["own"] = self._own_reads.usage()
        return StoreUsage(self._writer.waiting(), MOST_WAITING, pools)

    def on_commit(self, call: Callable[[int, float], None]) -> None:
        self._writer.on_commit(call)

    def _leave_readers(self) -> None:
        """Drops connections to a server that is not the primary (any more): it would return old rows."""
        self._engine_reads.drop_idle()
        self._own_reads.drop_idle()
        self._people_reads.drop_idle()

    def _list(self, values: Sequence[str]) -> list[str]:
        return list(values)

    def _statement(self, sql: str) -> Statement:
        return statement(sql)

    async def _page(self, sql: Sql, row: type[T]) -> Page[T]:
        """Returns a page. The server sends the rows that fit, and one more. (It still reads the others.)"""
        inner = statement(sql[0])
        window = "OVER (ROWS UNBOUNDED PRECEDING)"
        sized = f"SELECT found.row, sum(octet_length(found.row)) {window} AS bytes, row_number() {window} AS place"
        fits = f"bytes - octet_length(sized.row) <= {PAGE_BYTES} OR place <= 2"
        fitting = f"SELECT sized.row FROM ({sized} FROM ({inner.sql}) AS found) AS sized WHERE {fits}"
        rows = await self._fetch(self._people_reads, Statement(fitting, inner.names), sql[1])
        return decode_page(row, bounded(one["row"] for one in rows))

    async def _text(self, group: Connections, sql: Statement, values: dict[str, Any]) -> str | None:
        together = Statement(f"SELECT '[' || string_agg(row, ',') || ']' FROM ({sql.sql}) AS found", sql.names)
        ((text,),) = await self._fetch(group, together, values)
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
