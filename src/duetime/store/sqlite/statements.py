"""What all commands are made of: named statements, pages of rows, counters, room, quotas, the audit, and the fence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

import apsw
import msgspec

from duetime.domain import audit, limits
from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import NotFound, QuotaExceeded, StaleEpoch, StaleWrite
from duetime.store.ended import Ended
from duetime.store.sqlite.blocks import load_blocks

_encode = msgspec.json.Encoder().encode


def page(rows: object) -> str:
    """Rows as one JSON parameter. (Bytes would be taken for SQLite's own binary JSON.)"""
    return _encode(rows).decode()


def encoded(value: object) -> bytes:
    return _encode(value)


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


JOBS, BYTES = "jobs", "bytes"  # the names that jobs and their sizes are counted under
ALL = ""  # the tenant that the totals of all are counted under


LimitKey = tuple[str, str, str]  # tenant, user, limit
Mark = tuple[int, dict[LimitKey, int], Ended]


class Statements:
    def __init__(self, connection: apsw.Connection, capacity: Capacity) -> None:
        self.connection = connection
        self._capacity = capacity
        self._sql = {**load_blocks("commands.sql"), **load_blocks("chains.sql")}
        # Of the commit that is under way, written at its end: the audit's entries, and limits that were taken from.
        self.entries: list[audit.Entry] = []
        self._full_at: dict[LimitKey, int] = {}
        self.ended = Ended()

    def mark(self) -> Mark:
        """Where a command begins, to go back to if it is refused."""
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

    def row(self, block: str, **values: Any) -> tuple[Any, ...] | None:
        rows = self.rows(block, **values)
        return rows[0] if rows else None

    def timer(self, tenant: str, job_id: str) -> tuple[Any, ...]:
        """(status, version, due_at, resume_at). Raises NotFound."""
        row = self.row("get_timer", job=job_id, tenant=tenant)
        if row is None:
            raise no_job(job_id)
        return row

    def check_node(self, node: int) -> None:
        row = self.row("get_node", node=node)
        if row is None or not row[0]:
            raise StaleWrite(f"node {node} is void: another process has taken its place")

    def check_worker(self, node: int, tenant: str) -> None:
        """A worker of another tenant is nobody here, whatever its endpoints are. Raises StaleWrite."""
        if self.row("is_worker_of_another", node=node, tenant=tenant) is not None:
            raise StaleWrite(f"worker {node} is not a worker of this tenant")

    def check_epochs(self, block: str, **values: Any) -> None:
        """`block` looks for a shard that another owner has."""
        if (row := self.row(block, **values)) is not None:
            raise StaleEpoch(*row)

    def release_held(self, job_ids: Iterable[str]) -> None:
        """Let the oldest that waits for one of these jobs' ends go on, if nothing of its job is open any more."""
        if self.row("has_held") is not None:
            self.run("release_held", jobs=page(list(job_ids)))

    def remove_executions(self, ids: str) -> int:
        """With their attempts. Answers how many there were."""
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
        """Totals are counters, in the same transaction as what they count."""
        for (tenant, name), delta in deltas.items():
            if delta:
                self.run("add_to_counter", tenant=tenant, name=name, delta=delta)

    def make_room(self, added: Mapping[str, Load]) -> None:
        """Count each tenant's jobs and bytes in, or out. Raises InsufficientStorage if a tenant has no room."""
        for tenant, more in added.items():
            rows = self.rows("add_to_loads", tenant=tenant, jobs=more.jobs, bytes=more.bytes)
            found = {(of, name): value for of, name, value in rows}
            load, held = (Load(found[of, JOBS] - more.jobs, found[of, BYTES] - more.bytes) for of in (ALL, tenant))
            self._capacity.check(load, held, more.jobs, more.bytes)  # a refused command is rolled back, with its counts

    def take_quota(self, quota: limits.Quota, count: int, now: int) -> None:
        """Raises QuotaExceeded."""
        full_at = self.full_at(quota)
        moved = limits.take(quota.limit, full_at, now, count)
        if moved is None:
            raise QuotaExceeded(*limits.refusal(quota.limit, full_at, now, count))
        self.set_full_at(quota, moved)

    def full_at(self, quota: limits.Quota) -> int:
        if (known := self._full_at.get(quota.key)) is not None:
            return known
        tenant, user_id, name = quota.key
        row = self.row("get_limit", tenant=tenant, user_id=user_id, name=name)
        return 0 if row is None else cast(int, row[0])

    def set_full_at(self, quota: limits.Quota, full_at: int) -> None:
        self._full_at[quota.key] = full_at

    def write_limits(self) -> None:
        for (tenant, user_id, name), full_at in self._full_at.items():
            self.run("set_limit", tenant=tenant, user_id=user_id, name=name, full_at=full_at)
        self._full_at.clear()

    def note(self, entry: audit.Entry | None, before: object = None, after: object = None) -> None:
        """For the audit, with this commit. `before` and `after` where the entry does not have them."""
        if entry is not None:
            self.entries.append(entry.filled(before, after))

    def write_audit(self) -> None:
        """The last of a commit: its entries and the link over them."""
        if not self.entries:
            return
        texts = [entry.text for entry in self.entries]
        row = self.row("get_last_link")
        last, before = (0, audit.FIRST_LINK) if row is None else row
        self.run("add_audit_link", link=last + 1, hash=audit.link(before, audit.digest(texts)))
        rows = [(entry.tenant, entry.resource, text) for entry, text in zip(self.entries, texts, strict=True)]
        self.run("add_audit", link=last + 1, entries=page(rows))
        self.entries.clear()
