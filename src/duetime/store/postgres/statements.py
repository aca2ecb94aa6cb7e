"""What all commands are made of: named statements, columns of rows, totals, and the fence of a void node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from duetime.domain import limits
from duetime.domain.audit import Entry
from duetime.domain.capacity import UNBOUNDED, Capacity, Load, size_of
from duetime.domain.errors import NotFound, QuotaExceeded, StaleWrite
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY
from duetime.domain.job import JobSpec
from duetime.domain.plan import Skipped
from duetime.store.ended import Ended
from duetime.store.postgres.blocks import load_blocks

_encode = msgspec.json.Encoder().encode

Tally = dict[tuple[str, str, int], int]  # by tenant, state and day
JOBS, BYTES = "jobs", "bytes"  # the names that jobs and their sizes are counted under
ALL = ""  # the tenant that the totals of all are counted under
LimitKey = tuple[str, str, str]  # tenant, user, limit


def text_of(spec: JobSpec) -> tuple[str, int]:
    """The definition as it is stored, and what it counts for."""
    text = _encode(spec)
    return text.decode(), size_of(text)


def tags_of(spec: JobSpec) -> str | None:
    return _encode(spec.tags).decode() if spec.tags else None


def day_of(execution_id: str) -> int:
    return instant_of(execution_id) // DAY


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


class SlowPathNeeded(Exception):
    """A page did not go the way that nearly all go. Roll back, and look at each of its rows (`on_slow_path`)."""


class Pending:
    """What a transaction writes with its last statement, so that nobody waits for it longer than that."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[str, str, int]] = Counter()  # totals
        self.entries: list[Entry] = []  # of the audit
        self.full_at: dict[LimitKey, int] = {}  # limits that were locked and taken from
        self.takes: dict[limits.Quota, tuple[int, int]] = {}  # what is taken of others: (now, count)
        self.ended = Ended()

    def copy(self) -> Pending:
        copy = Pending()
        copy.moved, copy.entries = self.moved.copy(), self.entries.copy()
        copy.full_at, copy.takes = self.full_at.copy(), self.takes.copy()
        copy.ended = self.ended.copy()
        return copy


class Statements:
    """The statements of one transaction, and what it will have written at its end."""

    on_slow_path = False
    load: Load | None = None  # what there was when the transaction began; None: there is room enough not to look

    def __init__(self, connection: asyncpg.Connection, capacity: Capacity = UNBOUNDED) -> None:
        self.connection = connection
        self.capacity = capacity
        self._sql = load_blocks("jobs.sql", "runs.sql", "nodes.sql", "identity.sql", "circuits.sql", "chains.sql")
        self.pending = Pending()
        self._held: dict[str, Load] = {}  # by tenant, as `load`
        self.taken: dict[LimitKey, int] = {}  # limits as they were when they were locked

    @property
    def moved(self) -> Counter[tuple[str, str, int]]:
        return self.pending.moved

    @property
    def added(self) -> tuple[int, int]:
        """Jobs and bytes that this transaction adds."""
        return self._added_by(ALL)

    def _added_by(self, tenant: str) -> tuple[int, int]:
        return self.moved[tenant, JOBS, 0], self.moved[tenant, BYTES, 0]

    async def rows(self, block: str, **values: Any) -> list[asyncpg.Record]:
        sql = self._sql[block]
        found: list[asyncpg.Record] = await self.connection.fetch(sql.sql, *sql.arguments(values))
        return found

    async def run(self, block: str, **values: Any) -> None:
        await self.rows(block, **values)

    async def remove(self, block: str, **values: Any) -> int:
        """How many rows a DELETE removed."""
        sql = self._sql[block]
        status: str = await self.connection.execute(sql.sql, *sql.arguments(values))
        return int(status.rpartition(" ")[2])

    async def row(self, block: str, **values: Any) -> asyncpg.Record | None:
        rows = await self.rows(block, **values)
        return rows[0] if rows else None

    async def value(self, block: str, **values: Any) -> Any:
        """The first column of the first row."""
        row = await self.row(block, **values)
        return None if row is None else row[0]

    async def timer(self, tenant: str, job_id: str) -> asyncpg.Record:
        """(status, version, due_at, resume_at), locked until the commit. Raises NotFound."""
        row = await self.row("lock_timer", job=job_id, tenant=tenant)
        if row is None:
            raise no_job(job_id)
        return row

    async def lock_room(self, tenants: Iterable[str]) -> None:
        """Near a limit, those who add jobs take turns: from here to the commit, what there is only changes by us.

        `tenants`: those whose jobs are added.
        """
        await self.run("lock_room")
        rows = await self.rows("get_loads", tenants=[ALL, *tenants])
        self._held = {tenant: Load(jobs, size) for tenant, jobs, size in rows}
        self.load = self._held.get(ALL, Load())

    def make_room(self, added: Mapping[str, Load]) -> None:
        """Count each tenant's jobs and bytes in, or out. Raises InsufficientStorage if a tenant has no room."""
        for tenant, more in added.items():
            if self.load is not None:
                held = self._held.get(tenant, Load())
                load, held = self.load.plus(*self.added), held.plus(*self._added_by(tenant))
                self.capacity.check(load, held, more.jobs, more.bytes)
            for of in (tenant, ALL):
                self.moved[of, JOBS, 0] += more.jobs
                self.moved[of, BYTES, 0] += more.bytes

    async def lock_limits(self, keys: Iterable[LimitKey]) -> None:
        """Nobody else takes from these until the commit."""
        wanted = sorted(set(keys))
        columns = {name: [key[place] for key in wanted] for place, name in enumerate(("tenants", "user_ids", "names"))}
        rows = await self.rows("lock_limits", **columns)
        while len(rows) < len(wanted):  # the first time; or it was just swept
            await self.run("add_limits", **columns)
            rows = await self.rows("lock_limits", **columns)
        self.taken = {(tenant, user_id, name): full_at for tenant, user_id, name, full_at in rows}

    def full_at(self, key: LimitKey) -> int:
        return self.pending.full_at.get(key, self.taken[key])

    def take_quota(self, quota: limits.Quota, count: int, now: int) -> None:
        """Raises QuotaExceeded, if the quota is locked; else whether there is enough shows with the last statement.

        (A lock from here on would make writers wait for each other's commits who create jobs of one user.)
        """
        if quota.key not in self.taken:
            before, taken = self.pending.takes.get(quota, (0, 0))
            self.pending.takes[quota] = max(before, now), taken + count
            return
        full_at = self.full_at(quota.key)
        moved = limits.take(quota.limit, full_at, now, count)
        if moved is None:
            raise QuotaExceeded(*limits.refusal(quota.limit, full_at, now, count))
        self.pending.full_at[quota.key] = moved

    def note(self, entry: Entry | None, before: object = None, after: object = None) -> None:
        """For the audit, with this commit. `before` and `after` where the entry does not have them."""
        if entry is not None:
            self.pending.entries.append(entry.filled(before, after))

    async def check_node(self, node: int) -> None:
        if not await self.value("get_node", node=node):
            raise void(node)

    async def release_held(self, job_ids: Iterable[str]) -> None:
        """Let the oldest that waits for one of these jobs' ends go on, if nothing of its job is open any more."""
        if (jobs := sorted(set(job_ids))) and await self.value("has_held"):
            await self.run("release_held", jobs=jobs)

    async def complete_jobs(self, job_ids: Iterable[str]) -> None:
        await self.run("complete_jobs", jobs=sorted(set(job_ids)))

    async def cancel_waiting(self, jobs: Sequence[str], ids: Sequence[str], reason: str, now: int | None) -> None:
        for tenant, state, day, count in await self.rows("cancel_waiting", jobs=jobs, ids=ids, reason=reason, now=now):
            self.moved[tenant, state, day] -= count
            self.moved[tenant, "CANCELLED", day] += count

    async def add_skips(self, skips: Sequence[Skipped], now: int) -> None:
        await self.run(
            "add_skips", now=now, jobs=[s.job_id for s in skips], tenants=[s.tenant for s in skips],
            first_ats=[s.first_at for s in skips], until_ats=[s.until_at for s in skips],
            counts=[s.count for s in skips], reasons=[s.reason for s in skips],
        )  # fmt: skip


def void(node: int) -> StaleWrite:
    return StaleWrite(f"node {node} is void: another process has taken its place")
