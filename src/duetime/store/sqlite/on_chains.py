"""Chains: the links of jobs that run after other jobs, and how the ends of executions mark links and start jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from duetime.store.sqlite.statements import Statements, page


class Chains:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def add(self, jobs: Sequence[c.NewJob]) -> None:
        """Adds the links of new jobs that run after others. Raises InvalidRequest if a job would wait for itself."""
        if not (of_tenant := chained_by_tenant(jobs)):
            return
        for tenant, new in of_tenant.items():
            self._check_missing(tenant, None, [name for job in new for name in job.spec.after])
        self._add_links([link for job in jobs for link in new_links(job.job_id, job.tenant, job.spec)])
        for tenant, new in of_tenant.items():  # no job waits for a new job by id: ids were unknown
            self._check_loops(tenant, [(job.job_id, job.key) for job in new if job.key is not None])

    def change(self, job_id: str, tenant: str, spec: JobSpec) -> None:
        if spec.after:
            self._check_missing(tenant, job_id, spec.after)
        self._db.run("drop_links", job=job_id, but=page(spec.after))
        if spec.after:
            self._add_links(new_links(job_id, tenant, spec))
            self._check_loops(tenant, [(job_id, spec.key)])

    def remove(self, job_id: str) -> None:
        self._db.run("drop_links", job=job_id, but="[]")

    def _add_links(self, links: Sequence[tuple[str, ...]]) -> None:
        self._db.run("add_links", links=page(links))

    def _check_missing(self, tenant: str, job_id: str | None, names: Iterable[str]) -> None:
        if ids := ids_in(names):
            rows = self._db.rows("list_missing", tenant=tenant, job=job_id, names=page(ids))
            check_missing([name for (name,) in rows])

    def _check_loops(self, tenant: str, jobs: Sequence[tuple[str, str | None]]) -> None:
        """Raises if a job would wait for itself. `jobs`: (id, key)."""
        names = [name for job in jobs for name in job if name is not None]
        if self._db.row("is_awaited", tenant=tenant, names=page(names)) is None:
            return  # without a job that waits for these, there is no loop
        found = self._db.rows("list_chain", jobs=page([job_id for job_id, _ in jobs]), most=MOST_LINKS + 1)
        check_loops([key or job_id for job_id, key in jobs], found)

    def follow(self, ended: Sequence[AttemptEnd], now: int) -> None:
        """Starts the jobs that have waited for these ends."""
        if self._db.row("has_chains") is None:
            return
        ends = ends_in_order(ended)
        rows = self._db.rows("list_links", jobs=page(sorted({job_id for job_id, _ in ends})))
        if not rows:
            return
        marks, starts, skips = follow(ends, list(map(read_link, rows)))
        self._db.run("mark_links", marks=page(marks))
        self._db.run("start_followers", starts=page([(job_id, self._free_instant(job_id, now)) for job_id in starts]))
        self._db.add_skips(skipped(skips, now), now)

    def _free_instant(self, job_id: str, now: int) -> int:
        """Returns the first instant from `now` on without an execution: clocks can stand still or be set back."""
        while self._db.row("has_instant", job=job_id, at=now) is not None:
            now += 1
        return now
