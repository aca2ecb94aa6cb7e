"""The jobs with `slo` or `expect_every`, in a table of their own: whoever watches them finds them without a search."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.job import JobSpec
from duetime.domain.objectives import check_watched, is_watched, watched_row
from duetime.store.sqlite.statements import Statements, page


class WatchedJobs:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def add(self, jobs: Sequence[tuple[str, str, int, JobSpec]]) -> None:
        """Adds the watched ones of new jobs: (id, tenant, now, definition). Raises Conflict if they are too many."""
        if rows := [watched_row(*job) for job in jobs if is_watched(job[3])]:
            self._db.run("set_watched", jobs=page(rows))
            for tenant in {row[1] for row in rows}:
                check_watched(tenant, *(self._db.row("count_watched", tenant=tenant) or (0, 0)))

    def change(self, job_id: str, tenant: str, now: int, spec: JobSpec) -> None:
        if is_watched(spec):
            self.add([(job_id, tenant, now, spec)])
        else:
            self.remove([job_id])

    def renew(self, job_id: str, now: int) -> None:
        """The silence of a job that was paused counts from now on."""
        self._db.run("renew_watched", job=job_id, now=now)

    def remove(self, job_ids: Sequence[str]) -> None:
        self._db.run("drop_watched", jobs=page(job_ids))
