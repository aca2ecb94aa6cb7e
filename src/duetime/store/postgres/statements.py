"""What all commands are made of: named statements, columns of rows, totals, and the fence of a void node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import msgspec

from duetime.domain.errors import NotFound, StaleWrite
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY
from duetime.domain.job import JobSpec
from duetime.domain.plan import Skipped
from duetime.store.postgres.blocks import load_blocks

_encode = msgspec.json.Encoder().encode

Tally = dict[tuple[str, str, int], int]  # by tenant, state and day
JOBS = "jobs"  # the name that jobs are counted under


def text_of(spec: JobSpec) -> str:
    return _encode(spec).decode()


def tags_of(spec: JobSpec) -> str | None:
    return _encode(spec.tags).decode() if spec.tags else None


def day_of(execution_id: str) -> int:
    return instant_of(execution_id) // DAY


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


class TakeCare(Exception):
    """A page did not go the way that nearly all go. Roll back, and look at each of its rows (`is_careful`)."""


class Statements:
    """The statements of one transaction, and the totals that it moves."""

    is_careful = False

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self._sql = load_blocks("jobs.sql", "runs.sql", "nodes.sql")
        self.moved: Counter[tuple[str, str, int]] = Counter()

    async def rows(self, block: str, **values: Any) -> list[asyncpg.Record]:
        sql = self._sql[block]
        found: list[asyncpg.Record] = await self.connection.fetch(sql.sql, *sql.arguments(values))
        return found

    async def run(self, block: str, **values: Any) -> None:
        await self.rows(block, **values)

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
