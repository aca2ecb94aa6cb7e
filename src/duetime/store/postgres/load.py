"""Writes the rows that a promotion reads from another store, by COPY, all in one transaction.

So the database is never half filled: until the commit a node that starts here finds nothing, and an interrupted copy
leaves nothing. The row in `promotions` is committed with the others, and shows later whether the copy is complete.
Meanwhile `jobs` is locked against new rows; all other rows depend on a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec
from asyncpg.pgproto.pgproto import UUID

from duetime.domain.audit import PROMOTED
from duetime.domain.instants import DAY, format_instant
from duetime.domain.states import OPEN
from duetime.postgres import TROUBLE, Servers
from duetime.store import StoreUnusable
from duetime.store.postgres.blocks import load_blocks
from duetime.store.postgres.connections import Address, close, describe
from duetime.store.postgres.partitions import make_day
from duetime.store.postgres.schema import migrate
from duetime.store.totals import ALL, BYTES, JOBS, moved_jobs

CONNECT_SECONDS = 10.0
LOCK_SECONDS = 30  # until then the server has released the locks of an interrupted copy
SILENCE_SECONDS = 600  # allowed between two statements, while the source is read
MOST_DAYS = 400  # that get a partition each; older rows share one
SLOT = -1  # of the counters; writers use slots from 0 on
SUMS = ("jobs", "timers", "executions", "attempts", "audit", "keys")

Row = tuple[Any, ...]
Facts = dict[str, int | str]

# The columns that each table needs from the source. The column that may be long comes last.
WANTED: dict[str, tuple[str, ...]] = {
    "jobs": ("id", "tenant", "key", "name", "type", "owner", "created_at", "updated_at", "paused_by", "paused_at",
             "pause_reason", "size", "spec"),
    "timers": ("job", "tenant", "shard", "status", "version", "recurs", "due_at", "resume_at", "fired", "runs",
               "successes", "failures", "busy_ms", "last_run_at", "last_state", "last_success_at"),
    "executions": ("id", "job", "tenant", "scheduled_at", "extra", "trigger", "state", "reason", "priority", "endpoint",
                   "due_at", "held", "attempt", "token", "node", "started_at", "ended_at", "cancel_requested", "dead"),
    "attempts": ("execution", "attempt", "node", "started_at", "ended_at", "error_type", "http_status",
                 "exit_code", "error_message", "response"),
    "progress": ("execution", "value"),
    "chains": ("job", "tenant", "key", "ends", "is_done"),
    "watched_jobs": ("job", "tenant", "since", "expect_every", "slo"),
    "skips": ("job", "tenant", "first_at", "until_at", "count", "reason", "decided_at"),
    "idempotency_keys": ("tenant", "key", "fingerprint", "created_at", "response"),
    "api_keys": ("id", "tenant", "user_id", "name", "role", "tier", "secret_hash", "created_at", "created_by",
                 "expires_at", "last_used_at", "revoked_at", "scopes"),
    "subscriptions": ("id", "tenant", "created_at", "created_by", "events", "url"),
    "signing_keys": ("tenant", "version", "previous_until", "rotated_at", "rotated_by"),
    "connections": ("tenant", "name", "shown", "created_at", "created_by", "url"),
    "alert_channels": ("tenant", "name", "kind", "shown", "created_at", "created_by", "url"),
    "alert_rules": ("tenant", "name", "changed_at", "changed_by", "rule"),
    "alerts": ("id", "tenant", "rule", "is_open", "at", "alert"),
    "silences": ("id", "tenant", "rule", "subject", "begins_at", "ends_at", "created_at", "created_by", "reason"),
    "statistics": ("span", "bucket_at", "tenant", "type", "subject", "node", "tally"),
    "limits": ("full_at", "tenant", "user_id", "name"),
    "audit": ("number", "tenant", "resource", "entry"),
    "audit_links": ("link", "hash"),
    "audit_checkpoints": ("chain", "link", "hash", "at"),
}  # fmt: skip
NODES = ("id", "name", "started_at", "ended_at")
_EXECUTIONS = ("scheduled_at", "id", "job", "endpoint", "due_at", "started_at", "ended_at", "extra", "attempt", "token",
               "node", "priority", "dead", "state", "trigger", "tenant", "reason")  # fmt: skip
_AUDIT = ("chain", "link", "position", "tenant", "resource", "entry")
_OPEN_RUNS = ("job", "execution", "scheduled_at", "endpoint", "due_at", "started_at", "extra", "attempt", "token",
              "node", "priority", "held", "cancel_requested", "state", "trigger", "tenant")  # fmt: skip


class Promoted(NamedTuple):
    """A promotion that is complete here."""

    at: int
    nodes: list[int]
    facts: Facts


class _Tagged(msgspec.Struct):
    tags: msgspec.Raw = msgspec.Raw()


class Load:
    """One connection to the target. `open` first; then `begin`, the tables, and `commit`."""

    def __init__(self, url: str) -> None:
        self._address = Address(url)
        self.shown = describe(url)
        self._sql = load_blocks("promotion.sql")
        self._nodes: dict[int, int] = {}
        self._totals: Counter[tuple[str, str, int]] = Counter()
        self._job_totals: Counter[tuple[str, str]] = Counter()

    async def open(self) -> None:
        """Brings the schema up to date. Raises StoreUnusable if it is newer than ours, or no server responds."""
        try:
            await migrate(self._address)
            self._connection = await Servers(self._address.url).connect(
                CONNECT_SECONDS, statement_cache_size=0,
                server_settings={} if self._address.is_pooled else {"application_name": "duetime promote"},
            )  # fmt: skip
        except (*TROUBLE, ValueError) as error:
            raise StoreUnusable(
                f"the database {self.shown} can't be used: {error or type(error).__name__}. "
                "Is the server running, is the URL right, and may this user create tables there?"
            ) from error

    async def close(self) -> None:
        await close(self._connection, CONNECT_SECONDS)

    def cut(self) -> None:
        """Closes the connection at once, even within a statement. Uncommitted rows are lost."""
        self._connection.terminate()

    async def get_promotion(self, promotion_id: str) -> Promoted | None:
        if not await self._value("has_promotions"):
            return None
        rows = await self._rows("get_promotion", id=promotion_id)
        return Promoted(rows[0][0], rows[0][1], msgspec.json.decode(rows[0][2])) if rows else None

    async def check_empty(self) -> None:
        """Raises StoreUnusable if the database has jobs or history already."""
        ((jobs, has_history),) = await self._rows("get_own_rows")
        if jobs or has_history:
            what = f"{jobs:,} jobs" if jobs else "history"
            raise StoreUnusable(
                f"the database {self.shown} has {what} already, and two databases can't be merged. "
                "Create an empty database and promote to that."
            )

    async def make_days(self, days: Sequence[int]) -> None:
        """Creates partitions for days of history, each in its own transaction: empty ones do no harm."""
        for day in sorted(days)[-MOST_DAYS:]:
            await make_day(self._connection, "BEGIN", day)

    async def begin(self) -> None:
        """Begins the transaction and locks out other writers of jobs. Waits for an interrupted copy to end."""
        try:
            await self._connection.execute(
                f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_SECONDS}s';"
                "SET LOCAL statement_timeout = 0; SET LOCAL synchronous_commit = on;"
                f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE_SECONDS}s';"
                "LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE"
            )
        except asyncpg.LockNotAvailableError:
            raise StoreUnusable(
                f"something else is writing jobs to {self.shown}: another promotion, or a node. Run this again when it "
                "has ended."
            ) from None
        await self._rows("create_promotions")

    async def add_nodes(self, rows: Sequence[Row]) -> None:
        """Adds the source's nodes under new ids. They have ended; their executions count as lost."""
        ids = await self._rows("list_new_node_ids", count=len(rows))
        self._nodes |= {row[0]: new for row, (new,) in zip(rows, ids, strict=True)}
        await self._copy(
            "nodes", NODES,
            # SQLite may have computed the end of a node that crashed, down to parts of a millisecond.
            [(self._nodes[number], name, began_at, int(ended_at)) for number, name, began_at, ended_at in rows],
        )  # fmt: skip

    def convert(self, table: str, page: Sequence[Row]) -> list[tuple[str, tuple[str, ...], list[Row]]]:
        """Converts a page of WANTED columns to rows of this database: (table, columns, rows). Does no I/O."""
        make: dict[str, Callable[[Sequence[Row]], list[Row]]] = {
            "jobs": self._jobs, "timers": self._timers, "attempts": self._attempts, "skips": _skips,
            "progress": _progress, "chains": _chains, "watched_jobs": _skips, "statistics": self._statistics,
        }  # fmt: skip
        if table == "executions":
            ended, opened = self._executions(page)
            return [("executions", _EXECUTIONS, ended), ("open_runs", _OPEN_RUNS, opened)]
        if table == "audit":
            return [(table, _AUDIT, [(PROMOTED, row[0] >> 20, (row[0] & 0xFFFFF) + 1, *row[1:]) for row in page])]
        if table == "audit_links":
            return [(table, ("chain", *WANTED[table]), [(PROMOTED, *row) for row in page])]
        added = {"jobs": ("tags",), "attempts": ("scheduled_at",), "progress": ("scheduled_at",)}.get(table, ())
        return [(table, WANTED[table] + added, make.get(table, list)(page))]

    async def add(self, converted: Sequence[tuple[str, tuple[str, ...], list[Row]]]) -> None:
        for table, columns, rows in converted:
            await self._copy(table, columns, rows)

    async def add_totals(self) -> None:
        """Writes totals counted from the copied rows, so that they match."""
        rows = [(*key, SLOT, value) for key, value in sorted(self._totals.items())]
        await self._copy("counters", ("tenant", "name", "day", "slot", "value"), rows)
        jobs = [(*key, SLOT, value) for key, value in sorted(self._job_totals.items()) if value]
        await self._copy("job_totals", ("tenant", "status", "slot", "value"), jobs)

    async def begin_events(self, number: int) -> None:
        """Goes on with the numbers of events after those of the source, whose events are not copied."""
        await self._rows("begin_events", number=number)

    async def list_facts(self) -> Facts:
        rows = await self._rows("list_facts", nodes=list(self._nodes.values()))
        facts: Facts = {name: int(count) for name, count in rows}
        for place, (due_at, job) in enumerate(await self._rows("list_soonest"), 1):
            facts[f"earliest due {place}"] = f"{format_instant(due_at)} {job}"
        for table in SUMS:
            facts[f"checksum of {table}"] = f"{int(await self._value(f'sum_{table}') or 0):x}"
        return facts

    async def commit(self, promotion_id: str, source: str, now: int, facts: Facts) -> None:
        await self._rows(
            "add_promotion", id=promotion_id, source=source, now=now, nodes=list(self._nodes.values()),
            facts=msgspec.json.encode(facts).decode(),
        )  # fmt: skip
        await self._connection.execute(
            "ANALYZE jobs, timers, executions, open_runs, attempts, skips, idempotency_keys, audit"
        )
        await self._commit()

    async def remove(self, promotion_id: str, promoted: Promoted) -> None:
        """Empties the database after a promotion. Raises StoreUnusable if a node has run here since."""
        await self.begin()
        later = await self._value("get_later_node", nodes=promoted.nodes, at=promoted.at)
        if later is not None:
            raise StoreUnusable(
                f"the node {later} has run on {self.shown} since the promotion: what it did is not in the folder, and "
                "would be lost. Go on there; or stop it for good, and undo without --to."
            )
        await self._rows("empty")
        await self._rows("empty_audit")
        await self._rows("remove_promotion", id=promotion_id)
        await self._commit()

    async def _commit(self) -> None:
        status = await self._connection.execute("COMMIT")
        if status != "COMMIT":
            raise asyncpg.InterfaceError(f"the server answered COMMIT with {status}")

    def _jobs(self, page: Sequence[Row]) -> list[Row]:
        for row in page:
            self._totals[row[1], JOBS, 0] += 1
            self._totals[row[1], BYTES, 0] += row[-2]
            self._totals[ALL, JOBS, 0] += 1
            self._totals[ALL, BYTES, 0] += row[-2]
        return [(UUID(row[0]), *row[1:], _tags(row[-1])) for row in page]

    def _timers(self, page: Sequence[Row]) -> list[Row]:
        for (tenant, status), number in Counter((row[1], row[3]) for row in page).items():
            self._job_totals.update(moved_jobs(tenant, None, status, number))
        return [(UUID(row[0]), *row[1:5], bool(row[5]), *row[6:]) for row in page]

    def _statistics(self, page: Sequence[Row]) -> list[Row]:
        """A node keeps its rows apart from those of new nodes, also if its own row has been pruned."""
        return [(*row[:5], self._nodes.get(row[5], -row[5]), row[6]) for row in page]

    def _executions(self, page: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Returns rows of `executions` and `open_runs`. An open execution has its state in `open_runs` only."""
        executions: list[Row] = []
        opened: list[Row] = []
        nodes, totals = self._nodes.get, self._totals
        for (
            number, job_number, tenant, scheduled_at, extra, trigger, state, reason, priority, endpoint, due_at, held,
            attempt, token, node, started_at, ended_at, cancel_requested, dead,
        ) in page:  # fmt: skip
            id, job = UUID(number), UUID(job_number)
            totals[tenant, state, scheduled_at // DAY] += 1
            if state in OPEN:
                opened.append((job, id, scheduled_at, endpoint, due_at, started_at, extra, attempt, token, nodes(node),
                               priority, bool(held), bool(cancel_requested), state, trigger, tenant))  # fmt: skip
                executions.append((scheduled_at, id, job, endpoint, None, None, None, extra, 0, 0, None, priority,
                                   False, None, trigger, tenant, None))  # fmt: skip
            else:
                executions.append((scheduled_at, id, job, endpoint, due_at, started_at, ended_at, extra, attempt, token,
                                   nodes(node), priority, bool(dead), state, trigger, tenant, reason))  # fmt: skip
        return executions, opened

    def _attempts(self, page: Sequence[Row]) -> list[Row]:
        nodes = self._nodes.get
        return [
            (UUID(id), attempt, nodes(node), started_at, ended_at, error_type, http_status, exit_code, _clean(message),
             _clean(response), _instant_of(id))
            for id, attempt, node, started_at, ended_at, error_type, http_status, exit_code, message, response in page
        ]  # fmt: skip

    async def _copy(self, table: str, columns: Sequence[str], rows: list[Row]) -> None:
        if rows:
            await self._connection.copy_records_to_table(table, columns=columns, records=rows)

    async def _rows(self, block: str, **values: Any) -> list[asyncpg.Record]:
        sql = self._sql[block]
        found: list[asyncpg.Record] = await self._connection.fetch(sql.sql, *sql.arguments(values))
        return found

    async def _value(self, block: str, **values: Any) -> Any:
        rows = await self._rows(block, **values)
        return rows[0][0] if rows else None


def _skips(page: Sequence[Row]) -> list[Row]:
    return [(UUID(row[0]), *row[1:]) for row in page]


def _chains(page: Sequence[Row]) -> list[Row]:
    return [(UUID(row[0]), *row[1:4], bool(row[4])) for row in page]


def _progress(page: Sequence[Row]) -> list[Row]:
    return [(UUID(id), value, _instant_of(id)) for id, value in page]


def _instant_of(id: bytes) -> int:
    """An execution's id begins with its instant."""
    return int.from_bytes(id[:6], "big")


def _tags(spec: str) -> str | None:
    if '"tags"' not in spec:
        return None
    try:
        text = bytes(msgspec.json.decode(spec, type=_Tagged).tags).decode()
    except msgspec.MsgspecError:
        return None  # a definition that can't be read is moved as it is
    return text if text not in ("", "{}", "null") else None


def _clean(text: str | None) -> str | None:
    return text.replace("\0", "\ufffd") if text is not None and "\0" in text else text
