"""Chains: the links of jobs that run after other jobs, and how the ends of executions mark links and start jobs.

A job's links are read and marked under the lock of its timer. If two transactions together complete a chain, the second
one sees the mark of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg

from duetime.domain import commands as c
from duetime.domain.chains import (
    MOST_LINKS,
    chained_by_tenant,
    check_loops,
    check_missing,
    ends_in_order,
    follow,
    ids_in,
    new_links,
    read_link,
    skipped,
)
from duetime.domain.execution import AttemptEnd
from duetime.domain.job import JobSpec
from duetime.store.postgres.statements import SlowPathNeeded, Statements


class Chains:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def add(self, jobs: Sequence[c.NewJob]) -> None:
        """Adds the links of new jobs that run after others. Raises InvalidRequest if a job would wait for itself."""
        if not (of_tenant := chained_by_tenant(jobs)):
            return
        for tenant, new in of_tenant.items():
            await self._check_missing(tenant, None, [name for job in new for name in job.spec.after])
        await self._add_links([link for job in jobs for link in new_links(job.job_id, job.tenant, job.spec)])
        for tenant, new in of_tenant.items():  # no job waits for a new job by id: ids were unknown
            await self._check_loops(tenant, [(job.job_id, job.key) for job in new if job.key is not None])

    async def change(self, job_id: str, tenant: str, spec: JobSpec) -> None:
        if spec.after:
            await self._check_missing(tenant, job_id, spec.after)
        await self._db.run("drop_links", job=job_id, but=spec.after)
        if spec.after:
            await self._add_links(new_links(job_id, tenant, spec))
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
        check_loops([key or job_id for job_id, key in jobs], found)

    async def lock(self, ends: Sequence[AttemptEnd]) -> None:
        """Locks the timers of these jobs and of the jobs that wait for them, before any other row of the page."""
        await self._db.run("lock_with_followers", jobs=sorted({end.job_id for end in ends}))

    async def follow(self, ended: Sequence[AttemptEnd], now: int) -> None:
        """Starts the jobs that have waited for these ends."""
        ends = ends_in_order(ended)
        followers = await self._lock_followers(sorted({job_id for job_id, _ in ends}))
        if not followers:
            return
        rows = await self._db.rows("list_links", jobs=followers)
        marks, starts, skips = follow(ends, list(map(read_link, rows)))
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
