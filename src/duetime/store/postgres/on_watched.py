"""The jobs with `slo` or `expect_every`, in a table of their own: whoever watches them finds them without a search."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.job import JobSpec
from duetime.domain.objectives import check_watched, is_watched, watched_row
from duetime.store.postgres.statements import Statements


class WatchedJobs:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def add(self, jobs: Sequence[tuple[str, str, int, JobSpec]]) -> None:
        """Adds the watched ones of new jobs: (id, tenant, now, definition). Raises Conflict if they are too many."""
        if rows := [watched_row(*job) for job in jobs if is_watched(job[3])]:
            ids, tenants, sinces, expectations, slos = zip(*rows, strict=True)
            await self._db.run(
                "set_watched", jobs=ids, tenants=tenants, sinces=sinces, expectations=expectations, slos=slos
            )
            for tenant in set(tenants):
                check_watched(tenant, *(await self._db.row("count_watched", tenant=tenant) or (0, 0)))

    async def change(self, job_id: str, tenant: str, now: int, spec: JobSpec) -> None:
        if is_watched(spec):
            await self.add([(job_id, tenant, now, spec)])
        else:
            await self.remove([job_id])

    async def renew(self, job_id: str, now: int) -> None:
        """The silence of a job that was paused counts from now on."""
        await self._db.run("renew_watched", job=job_id, now=now)

    async def remove(self, job_ids: Sequence[str]) -> None:
        await self._db.run("drop_watched", jobs=job_ids)
