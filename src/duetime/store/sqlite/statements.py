"""The parts that all commands share: named statements, pages, counters, capacity, quotas, the audit, the fence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import apsw
import msgspec

from duetime.domain import audit, limits
from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import StaleEpoch, StaleWrite, fenced, no_job
from duetime.domain.job import JobStatus
from duetime.domain.limits import LimitKey
from duetime.domain.overlap import Uncounted
from duetime.domain.plan import Skipped
from duetime.domain.stored_jobs import StoredTimer
from duetime.store.blocks import COMMANDS
from duetime.store.ended import Ended
from duetime.store.sqlite.blocks import load_blocks
from duetime.store.totals import ALL, BYTES, JOBS, moved_jobs

_encode = msgspec.json.Encoder().encode


def page(rows: object) -> str:
    """Returns rows as one JSON parameter. (SQLite would read bytes as its own binary JSON.)"""
    return _encode(rows).decode()


def encoded(value: object) -> bytes:
    return _encode(value)


Mark = tuple[int, dict[LimitKey, int], Ended]


class Statements:
    def __init__(self, connection: apsw.Connection, capacity: Capacity) -> None:
        self.connection = connection
        self._capacity = capacity
        self._sql = load_blocks(*COMMANDS)
        # Written at the end of the current commit: audit entries, and limits that were taken from.
        self.entries: list[audit.Entry] = []
        self._full_at: dict[LimitKey, int] = {}
        self.ended = Ended()

    def mark(self) -> Mark:
        """Returns the state before a command, for `go_back` if the command is refused."""
        return len(self.entries), self._full_at.copy(), self.ended.copy()

    def go_back(self, mark: Mark) -> None:
        del self.entries[mark[0] :]
        self._full_at = mark[1]
        self.ended = mark[2]

    def forget(self) -> None:
        self.entries.clear()
        self._full_at.clear()
        self.ended = Ended()

    def run(self, block: str, **values: Any) -> None:
        self.connection.execute(self._sql[block], values)

    def rows(self, block: str, **values: Any) -> list[tuple[Any, ...]]:
        return cast("list[tuple[Any, ...]]", self.connection.execute(self._sql[block], values).fetchall())

    def remove(self, block: str, **values: Any) -> int:
        """Runs a DELETE. Returns how many rows it removed."""
        self.run(block, **values)
        return self.connection.changes()

    def row(self, block: str, **values: Any) -> tuple[Any, ...] | None:
        rows = self.rows(block, **values)
        return rows[0] if rows else None

    def value(self, block: str, **values: Any) -> Any:
        """Returns the first column of the first row; None if there is no row."""
        row = self.row(block, **values)
        return None if row is None else row[0]

    def timer(self, tenant: str, job_id: str) -> StoredTimer:
        row = self.row("get_timer", job=job_id, tenant=tenant)
        if row is None:
            raise no_job(job_id)
        return StoredTimer(*row)

    def check_node(self, node: int) -> None:
        row = self.row("get_node", node=node)
        if row is None or not row[0]:
            raise fenced(node)

    def check_worker(self, node: int, tenant: str) -> None:
        """Raises StaleWrite if the worker belongs to another tenant, whatever its endpoints are."""
        if self.row("is_worker_of_another", node=node, tenant=tenant) is not None:
            raise StaleWrite(f"worker {node} is not a worker of this tenant")

    def check_epochs(self, block: str, **values: Any) -> None:
        """Raises StaleEpoch if `block` finds a shard of another owner."""
        if (row := self.row(block, **values)) is not None:
            raise StaleEpoch(*row)

    def release_held(self, job_ids: Iterable[str]) -> None:
        """Releases each job's oldest held execution, if no other execution of the job is open."""
        if self.row("has_held") is not None:
            self.run("release_held", jobs=page(list(job_ids)))

    def add_skips(self, skips: Sequence[Skipped], now: int) -> None:
        if skips:
            self.run("add_skips", skips=page(skips), now=now)

    def uncount(self, executions: Sequence[Uncounted]) -> None:
        if not executions:
            return
        jobs = page(executions)
        for tenant, number in self.rows("count_reopened", jobs=jobs):
            self.count_jobs(tenant, JobStatus.COMPLETED, JobStatus.PENDING, number)
        self.run("uncount_executions", jobs=jobs)

    def remove_executions(self, ids: str) -> int:
        """Removes executions with their attempts and progress. Returns how many there were."""
        states = self.states(ids)
        self.run("remove_attempts", ids=ids)
        self.run("remove_progress", ids=ids)
        self.run("remove_executions", ids=ids)
        self.count({key: -number for key, number in states.items()})
        return sum(states.values())

    def states(self, ids: str) -> dict[tuple[str, str], int]:
        return {(tenant, state): count for tenant, state, count in self.rows("count_states", ids=ids)}

    def count_change(self, before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> None:
        moved = Counter(after)
        moved.subtract(before)
        self.count(moved)

    def count(self, deltas: dict[tuple[str, str], int]) -> None:
        """Changes totals, in the same transaction as the rows they count."""
        for (tenant, name), delta in deltas.items():
            if delta:
                self.run("add_to_counter", tenant=tenant, name=name, delta=delta)

    def count_jobs(self, tenant: str, before: str | None, after: str | None, number: int = 1) -> None:
        """Changes the totals of jobs by status, in the same transaction as the timers that they count."""
        for (of, status), delta in moved_jobs(tenant, before, after, number).items():
            self.run("add_to_job_total", tenant=of, status=status, delta=delta)

    def complete_jobs(self, job_ids: Iterable[str]) -> None:
        completed = self.rows("complete_jobs", jobs=page(list(job_ids)))
        for (tenant,), number in Counter(completed).items():
            self.count_jobs(tenant, JobStatus.PENDING, JobStatus.COMPLETED, number)

    def count_completing(self) -> None:
        """Counts the jobs that the page of a Finish completes. `finish_timers` follows."""
        for tenant, number in self.rows("count_completing"):
            self.count_jobs(tenant, JobStatus.PENDING, JobStatus.COMPLETED, number)

    def make_room(self, added: Mapping[str, Load]) -> None:
        """Adds to (or subtracts from) each tenant's jobs and bytes. Raises InsufficientStorage if there is no room."""
        for tenant, more in added.items():
            rows = self.rows("add_to_loads", tenant=tenant, jobs=more.jobs, bytes=more.bytes)
            found = {(of, name): value for of, name, value in rows}
            load, held = (Load(found[of, JOBS] - more.jobs, found[of, BYTES] - more.bytes) for of in (ALL, tenant))
            self._capacity.check(load, held, more.jobs, more.bytes)  # a refused command's counts are rolled back

    def take_quota(self, quota: limits.Quota, count: int, now: int) -> None:
        """Takes `count` from the quota. Raises QuotaExceeded."""
        self.set_full_at(quota, limits.take_or_refuse(quota.limit, self.full_at(quota), now, count))

    def full_at(self, quota: limits.Quota) -> int:
        if (known := self._full_at.get(quota.key)) is not None:
            return known
        tenant, user_id, name = quota.key
        return cast(int, self.value("get_limit", tenant=tenant, user_id=user_id, name=name) or 0)

    def set_full_at(self, quota: limits.Quota, full_at: int) -> None:
        self._full_at[quota.key] = full_at

    def write_limits(self) -> None:
        for (tenant, user_id, name), full_at in self._full_at.items():
            self.run("set_limit", tenant=tenant, user_id=user_id, name=name, full_at=full_at)
        self._full_at.clear()

    def note(self, entry: audit.Entry | None, before: object = None, after: object = None) -> None:
        """Adds an audit entry to this commit. `before` and `after` fill in what the entry lacks."""
        if entry is not None:
            self.entries.append(entry.filled(before, after))

    def write_audit(self) -> None:
        """Writes the commit's audit entries and the link over them, as its last rows."""
        if not self.entries:
            return
        texts = [entry.text for entry in self.entries]
        row = self.row("get_last_link")
        last, before = (0, audit.FIRST_LINK) if row is None else row
        self.run("add_audit_link", link=last + 1, hash=audit.link(before, audit.digest(texts)))
        rows = [(entry.tenant, entry.resource, text) for entry, text in zip(self.entries, texts, strict=True)]
        self.run("add_audit", link=last + 1, entries=page(rows))
        self.entries.clear()
