"""Sweeping: jobs whose one run is long over, and of whose history nothing is left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import asyncpg

from duetime.domain import commands as c
from duetime.domain.audit import own_entry
from duetime.store.postgres.statements import Statements


class SweepCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def sweep_jobs(self, command: c.SweepJobs) -> c.Swept:
        page = await self._db.row(
            "lock_to_sweep", after=command.after_job_id, limit=command.limit, before=command.before
        )
        assert page is not None
        rows = await self._db.rows("sweep_jobs", jobs=page["jobs"]) if page["jobs"] else []
        if rows:
            tenants = Counter(row["tenant"] for row in rows)
            self._db.make_room({tenant: -count for tenant, count in tenants.items()}, -sum(row["size"] for row in rows))
            self._note(rows, command.now)
        return c.Swept(len(rows), page["last"] if page["number"] == command.limit else None)

    def _note(self, removed: Sequence[asyncpg.Record], now: int) -> None:
        """One entry of the audit for all that a tenant loses."""
        by_tenant = defaultdict[str, list[str]](list)
        for job_id, tenant, _ in removed:
            by_tenant[tenant].append(job_id)
        for tenant, jobs in by_tenant.items():
            self._db.note(own_entry(now, tenant, "job.sweep", "", {"count": len(jobs), "jobs": jobs}))
