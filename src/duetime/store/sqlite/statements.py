"""What all commands are made of: named statements, pages of rows, counters, and the fence of a void node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import apsw
import msgspec

from duetime.domain.errors import NotFound, StaleEpoch, StaleWrite
from duetime.store.sqlite.blocks import load_blocks

_encode = msgspec.json.Encoder().encode


def page(rows: object) -> str:
    """Rows as one JSON parameter. (Bytes would be taken for SQLite's own binary JSON.)"""
    return _encode(rows).decode()


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


class Statements:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._sql = load_blocks("commands.sql")

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
