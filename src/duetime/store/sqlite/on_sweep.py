"""Sweeping: jobs whose one run is long over, and of whose history nothing is left."""

from __future__ import annotations

from collections import Counter, defaultdict

from duetime.domain import commands as c
from duetime.domain.audit import own_entry
from duetime.store.sqlite.statements import Statements, page


class SweepCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def sweep_jobs(self, command: c.SweepJobs) -> c.Swept:
        seen = self._db.row("list_swept_page", after=command.after_job_id, limit=command.limit)
        assert seen is not None
        last, number = seen
        if not number:
            return c.Swept(0, None)
        rows = self._db.rows("list_to_sweep", after=command.after_job_id, last=last, before=command.before)
        if rows:
            ids = page([job_id for job_id, _, _ in rows])
            for name in ("sweep_links", "sweep_timers", "sweep_jobs"):
                self._db.run(name, jobs=ids)
            tenants = Counter(tenant for _, tenant, _ in rows)
            self._db.make_room({tenant: -count for tenant, count in tenants.items()}, -sum(row[2] for row in rows))
            self._note([(job_id, tenant) for job_id, tenant, _ in rows], command.now)
        return c.Swept(len(rows), last if number == command.limit else None)

    def _note(self, removed: list[tuple[str, str]], now: int) -> None:
        """One entry of the audit for all that a tenant loses."""
        by_tenant = defaultdict[str, list[str]](list)
        for job_id, tenant in removed:
            by_tenant[tenant].append(job_id)
        for tenant, jobs in by_tenant.items():
            self._db.note(own_entry(now, tenant, "job.sweep", "", {"count": len(jobs), "jobs": jobs}))
