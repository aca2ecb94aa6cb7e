"""The parts that all commands share: named statements, locks, totals, quotas, the audit, the check of a fenced node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from duetime.domain import limits
from duetime.domain.audit import Entry
from duetime.domain.capacity import UNBOUNDED, Capacity, Load, size_of
from duetime.domain.errors import fenced, no_job
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.limits import LimitKey
from duetime.domain.overlap import Uncounted
from duetime.domain.plan import Skipped
from duetime.domain.stored_jobs import StoredTimer
from duetime.store.blocks import COMMANDS
from duetime.store.ended import Ended
from duetime.store.postgres.blocks import load_blocks
from duetime.store.totals import ALL, BYTES, JOBS, moved_jobs

_encode = msgspec.json.Encoder().encode

Tally = dict[tuple[str, str, int], int]  # by tenant, state and day


def text_of(value: object) -> str:
    """Returns the value as JSON."""
    return _encode(value).decode()


def sized_text_of(spec: JobSpec) -> tuple[str, int]:
    """Returns the definition as it is stored, and the size it is counted with."""
    text = _encode(spec)
    return text.decode(), size_of(text)


def tags_of(spec: JobSpec) -> str | None:
    return text_of(spec.tags) if spec.tags else None


def day_of(execution_id: str) -> int:
    return instant_of(execution_id) // DAY


class SlowPathNeeded(Exception):
    """The fast path can't write this page. Roll back, then write it row by row (`on_slow_path`)."""


class Pending:
    """Rows that a transaction writes with its last statement, to hold their locks as briefly as possible."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[str, str, int]] = Counter()  # totals
        self.entries: list[Entry] = []  # of the audit
        self.full_at: dict[LimitKey, int] = {}  # of locked quotas that were taken from
        self.takes: dict[limits.Quota, tuple[int, int]] = {}  # from quotas that are not locked: (now, count)
        self.ended = Ended()
        self.jobs: Counter[tuple[str, str]] = Counter()  # totals of jobs, by tenant and status

    def copy(self) -> Pending:
        copy = Pending()
        copy.moved, copy.entries = self.moved.copy(), self.entries.copy()
        copy.full_at, copy.takes = self.full_at.copy(), self.takes.copy()
        copy.ended = self.ended.copy()
        copy.jobs = self.jobs.copy()
        return copy


class Statements:
    """The statements of one transaction, and the rows that its last statement will write."""

    on_slow_path = False
    load: Load | None = None  # all jobs, read under `lock_room`; None: far from the limit, not checked

    def __init__(self, connection: asyncpg.Connection, capacity: Capacity = UNBOUNDED) -> None:
        self.connection = connection
        self.capacity = capacity
        self._sql = load_blocks(*COMMANDS)
        self.pending = Pending()
        self._held: dict[str, Load] = {}  # by tenant, as `load`
        self.taken: dict[LimitKey, int] = {}  # quotas as they were when they were locked

    @property
    def moved(self) -> Counter[tuple[str, str, int]]:
        return self.pending.moved

    @property
    def added(self) -> tuple[int, int]:
        """The number of jobs and bytes that this transaction adds."""
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
        """Runs a DELETE. Returns how many rows it removed."""
        sql = self._sql[block]
        status: str = await self.connection.execute(sql.sql, *sql.arguments(values))
        return int(status.rpartition(" ")[2])

    async def row(self, block: str, **values: Any) -> asyncpg.Record | None:
        rows = await self.rows(block, **values)
        return rows[0] if rows else None

    async def value(self, block: str, **values: Any) -> Any:
        """Returns the first column of the first row; None if there is no row."""
        row = await self.row(block, **values)
        return None if row is None else row[0]

    async def timer(self, tenant: str, job_id: str) -> StoredTimer:
        """Returns the job's timer, locked until the commit. Raises NotFound."""
        row = await self.row("lock_timer", job=job_id, tenant=tenant)
        if row is None:
            raise no_job(job_id)
        return StoredTimer(*row)

    async def lock_room(self, tenants: Iterable[str]) -> None:
        """Near the capacity limit, only one transaction at a time adds jobs. Locks until the commit, reads the loads.

        `tenants`: the tenants that jobs are added for.
        """
        await self.run("lock_room")
        rows = await self.rows("get_loads", tenants=[ALL, *tenants])
        self._held = {tenant: Load(jobs, size) for tenant, jobs, size in rows}
        self.load = self._held.get(ALL, Load())

    def count_jobs(self, tenant: str, before: str | None, after: str | None, number: int = 1) -> None:
        """Changes the totals of jobs by status; the last statement writes them."""
        self.pending.jobs.update(moved_jobs(tenant, before, after, number))

    def make_room(self, added: Mapping[str, Load]) -> None:
        """Adds to (or subtracts from) each tenant's jobs and bytes. Raises InsufficientStorage if there is no room."""
        for tenant, more in added.items():
            if self.load is not None:
                held = self._held.get(tenant, Load())
                load, held = self.load.plus(*self.added), held.plus(*self._added_by(tenant))
                self.capacity.check(load, held, more.jobs, more.bytes)
            for of in (tenant, ALL):
                self.moved[of, JOBS, 0] += more.jobs
                self.moved[of, BYTES, 0] += more.bytes

    async def lock_limits(self, keys: Iterable[LimitKey]) -> None:
        """Locks these quotas until the commit."""
        wanted = sorted(set(keys))
        columns = {name: [key[place] for key in wanted] for place, name in enumerate(("tenants", "user_ids", "names"))}
        rows = await self.rows("lock_limits", **columns)
        while len(rows) < len(wanted):  # used for the first time, or just swept
            await self.run("add_limits", **columns)
            rows = await self.rows("lock_limits", **columns)
        self.taken = {(tenant, user_id, name): full_at for tenant, user_id, name, full_at in rows}

    def full_at(self, quota: limits.Quota) -> int:
        return self.pending.full_at.get(quota.key, self.taken[quota.key])

    def set_full_at(self, quota: limits.Quota, full_at: int) -> None:
        self.pending.full_at[quota.key] = full_at

    def take_quota(self, quota: limits.Quota, count: int, now: int) -> None:
        """Takes from a quota. If it is locked, raises QuotaExceeded; otherwise the last statement checks it.

        (A lock held from here on would make writers that create jobs of one user wait for each other's commits.)
        """
        if quota.key not in self.taken:
            before, taken = self.pending.takes.get(quota, (0, 0))
            self.pending.takes[quota] = max(before, now), taken + count
            return
        self.set_full_at(quota, limits.take_or_refuse(quota.limit, self.full_at(quota), now, count))

    def note(self, entry: Entry | None, before: object = None, after: object = None) -> None:
        """Adds an audit entry to this commit. `before` and `after` fill in what the entry lacks."""
        if entry is not None:
            self.pending.entries.append(entry.filled(before, after))

    async def check_node(self, node: int) -> None:
        if not await self.value("get_node", node=node):
            raise fenced(node)

    async def release_held(self, job_ids: Iterable[str]) -> None:
        """Releases each job's oldest held execution, if no other execution of the job is open."""
        if (jobs := sorted(set(job_ids))) and await self.value("has_held"):
            await self.run("release_held", jobs=jobs)

    async def complete_jobs(self, job_ids: Iterable[str]) -> None:
        completed = await self.rows("complete_jobs", jobs=sorted(set(job_ids)))
        self.count_completed(Counter(row[0] for row in completed))

    def count_completed(self, by_tenant: Mapping[str, int]) -> None:
        for tenant, number in by_tenant.items():
            self.count_jobs(tenant, JobStatus.PENDING, JobStatus.COMPLETED, number)

    async def cancel_waiting(self, jobs: Sequence[str], ids: Sequence[str], reason: str, now: int | None) -> None:
        for tenant, state, day, count in await self.rows("cancel_waiting", jobs=jobs, ids=ids, reason=reason, now=now):
            self.moved[tenant, state, day] -= count
            self.moved[tenant, "CANCELLED", day] += count

    async def uncount(self, executions: Sequence[Uncounted]) -> None:
        """Subtracts executions that were counted as runs. Their timers are locked already."""
        if executions:
            jobs, numbers, or_due_ats = (list(column) for column in zip(*executions, strict=True))
            for tenant, number in await self.rows("count_reopened", jobs=jobs, or_due_ats=or_due_ats):
                self.count_jobs(tenant, JobStatus.COMPLETED, JobStatus.PENDING, number)
            await self.run("uncount_executions", jobs=jobs, executions=numbers, or_due_ats=or_due_ats)

    async def add_skips(self, skips: Sequence[Skipped], now: int) -> None:
        if skips:
            await self.run(
                "add_skips", now=now, jobs=[s.job_id for s in skips], tenants=[s.tenant for s in skips],
                first_ats=[s.first_at for s in skips], until_ats=[s.until_at for s in skips],
                counts=[s.count for s in skips], reasons=[s.reason for s in skips],
            )  # fmt: skip
