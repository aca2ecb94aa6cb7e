"""How the jobs with an `slo` meet their objectives: read a few jobs a turn, for metrics and burn-rate alerts.

Runs on one node for the whole cluster. A job's rows of thirty days take some milliseconds to read, so a turn reads
`JOBS_OF_A_TURN` of them, in turn, and at most `MOST_JOBS` are known.
"""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.budgets import JobStanding, rows_wanted, standings
from duetime.domain.instants import SECOND
from duetime.domain.job import JobStatus
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store, WatchedJob
from duetime.telemetry.emitted import ObjectivesRead
from duetime.telemetry.hub import Telemetry

TURN = 10 * SECOND
JOBS_OF_A_TURN = 20
PAGE = 1000  # jobs that are looked at in one turn
MOST_JOBS = 1000
OVER = (JobStatus.COMPLETED, JobStatus.CANCELLED)


class Objectives(Service):
    """`runs_here()`: this node is the one that reads them."""

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, runs_here: Callable[[], bool]) -> None:
        super().__init__("objectives", clock)
        self._store = store
        self._telemetry = telemetry
        self._runs_here = runs_here
        self._after = ""  # the last job of the turn before
        self._known: dict[str, list[JobStanding]] = {}
        self._seen: set[str] = set()  # in this pass over all jobs

    def known(self) -> list[JobStanding]:
        return [one for some in self._known.values() for one in some]

    def burning(self) -> list[JobStanding]:
        """Returns the objectives for which a rule of the burn rate holds."""
        return [one for one in self.known() if one.standing.burning is not None]

    async def run_once(self) -> int:
        if self._runs_here():
            await self._read_some()
        elif self._known:
            self._forget_all()
        else:
            return self._clock.now() + TURN
        self._telemetry.emit(ObjectivesRead(self.known()))
        return self._clock.now() + TURN

    def _forget_all(self) -> None:
        self._known, self._seen, self._after = {}, set(), ""

    async def _read_some(self) -> None:
        """Reads a turn's objectives. Jobs with `expect_every` alone take no part of it, however many a tenant has."""
        left = JOBS_OF_A_TURN
        for job in (jobs := await self._store.list_watched_jobs(self._after, PAGE)):
            if left == 0:
                return
            self._after = job.job_id
            if job.slo is not None and job.status not in OVER and len(self._seen) < MOST_JOBS:
                self._known[job.job_id] = await self._read(job)
                self._seen.add(job.job_id)
                left -= 1
        if len(jobs) < PAGE:  # the pass is over: what was not seen is gone
            self._known = {job_id: some for job_id, some in self._known.items() if job_id in self._seen}
            self._after, self._seen = "", set()

    async def _read(self, job: WatchedJob) -> list[JobStanding]:
        assert job.slo is not None
        now = self._clock.now()
        rows = await self._store.list_statistics(rows_wanted(job.tenant, job.job_id, job.slo, now))
        return [JobStanding(job.tenant, job.job_id, job.name, one) for one in standings(job.slo, rows, now)]
