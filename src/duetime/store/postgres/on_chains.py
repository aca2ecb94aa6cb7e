"""Chains: the links of jobs that run after other jobs, and how the ends of executions mark links and start jobs.

A job's links are read and marked under the lock of its timer. If two transactions together complete a chain, the second
one sees the mark of the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import asyncpg

from duetime.domain import commands as c
from duetime.domain.chains import MOST_LINKS, Link, check_loops, check_missing, follow, ids_in, skipped
from duetime.domain.execution import Attempted
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.states import OPEN
from duetime.store.ended import ends_in_order
from duetime.store.postgres.statements import SlowPathNeeded, Statements


class Chains:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def add(self, jobs: Sequence[c.NewJob]) -> None:
        """Adds the links of new jobs that run after others. Raises InvalidRequest if a job would wait for itself."""
        if not (chained := [job for job in jobs if job.spec.after]):
            return
        of_tenant = defaultdict[str, list[c.NewJob]](list)
        for job in chained:
            of_tenant[job.tenant].append(job)
        for tenant, new in of_tenant.items():
            await self._check_missing(tenant, None, [name for job in new for name in job.spec.after])
        await self._add_links([link for job in chained for link in _links(job.job_id, job.tenant, job.spec)])
        for tenant, new in of_tenant.items():  # no job waits for a new job by id: ids were unknown
            await self._check_loops(tenant, [(job.job_id, job.key) for job in new if job.key is not None])

    async def change(self, job_id: str, tenant: str, spec: JobSpec) -> None:
        if spec.after:
            await self._check_missing(tenant, job_id, spec.after)
        await self._db.run("drop_links", job=job_id, but=spec.after)
        if spec.after:
            await self._add_links(_links(job_id, tenant, spec))
            await self._check_loops(tenant, [(job_id, spec.key)])

    async def remove(self, job_id: str) -> None:
        await self._db.run("drop_links", job=job_id, but=())

    async def _add_links(self, links: Sequence[tuple[str, str, str, str]]) -> None:
        jobs, tenants, keys, ends = zip(*links, strict=True)
        await self._db.run("add_links", jobs=jobs, tenants=tenants, keys=keys, ends=ends)

    async def _check_missing(self, tenant: str, job_id: str | None, names: Iterable[str]) -> None:
        if ids := ids_in(names):
            rows = await self._db.rows("list_missing", tenant=tenant, job=job_id, names=ids)
            check_missing([name for (name,) in rows])

    async def _check_loops(self, tenant: str, jobs: Sequence[tuple[str, str | None]]) -> None:
        """Raises if a job would wait for itself. `jobs`: (id, key)."""
        names = [name for job in jobs for name in job if name is not None]
        if not await self._db.value("is_awaited", tenant=tenant, names=names):
            return  # without a job that waits for these, there is no loop
        found = await self._db.rows("list_chain", jobs=[job_id for job_id, _ in jobs], most=MOST_LINKS + 1)
        check_loops([key or job_id for job_id, key in jobs], [(name, awaited, owner) for name, awaited, owner in found])

    async def lock(self, attempts: Sequence[Attempted]) -> None:
        """Locks the timers of these jobs and of the jobs that wait for them, before any other row of the page."""
        await self._db.run("lock_with_followers", jobs=sorted({attempt.job_id for attempt in attempts}))

    async def follow(self, ended: Sequence[Attempted], now: int) -> None:
        """Starts the jobs that have waited for these ends."""
        ends = ends_in_order(attempt for attempt in ended if attempt.state not in OPEN)
        followers = await self._lock_followers(sorted({attempt.job_id for attempt in ends}))
        if not followers:
            return
        links = [
            Link(job_id, tenant, key, on, is_done, JobStatus(status), due_at, awaited)
            for job_id, tenant, key, on, is_done, status, due_at, awaited in await self._db.rows(
                "list_links", jobs=followers
            )
        ]
        marks, starts, skips = follow([(attempt.job_id, attempt.state) for attempt in ends], links)
        if marks:
            jobs, keys, dones = zip(*marks, strict=True)
            await self._db.run("mark_links", jobs=jobs, keys=keys, dones=dones)
        if starts:
            await self._db.run("start_followers", jobs=starts, now=now)
        await self._db.add_skips(skipped(skips, now), now)

    async def _lock_followers(self, jobs: Sequence[str]) -> list[str]:
        if self._db.on_slow_path:  # `lock` has locked them, except one that was added since
            locked: list[str] = await self._db.value("lock_with_followers", jobs=jobs) or []
            return locked
        try:
            return await self._db.value("lock_followers", jobs=jobs) or []
        except asyncpg.LockNotAvailableError:
            raise SlowPathNeeded from None


def _links(job_id: str, tenant: str, spec: JobSpec) -> list[tuple[str, str, str, str]]:
    return [(job_id, tenant, key, spec.on) for key in spec.after]
