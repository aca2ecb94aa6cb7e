"""Tells the statistics which jobs to keep tallies of: those with an `slo`."""

from __future__ import annotations

from duetime.domain.budgets import subject_of
from duetime.domain.instants import SECOND
from duetime.engine.service import Service
from duetime.engine.statistics import Collected
from duetime.ports.clock import Clock
from duetime.ports.store import Store

TURN = 10 * SECOND  # until another node watches a new job, too
PAGE = 1000
MOST_RULES = 20_000  # of alerts, of all tenants
MOST_JOBS = 20_000  # with `slo` or `expect_every` that are looked at; a tenant has few


class WatchedSubjects(Service):
    """A job with an `slo` that is written here wakes it."""

    def __init__(self, store: Store, clock: Clock, collected: Collected) -> None:
        super().__init__("watched subjects", clock)
        self._store = store
        self._collected = collected
        collected.on_promise = self.wake

    async def run_once(self) -> int:
        self._collected.watch(await self._of_jobs(), "objectives")
        self._collected.watch(await self._of_rules(), "alerts")
        return self._clock.now() + TURN

    async def _of_rules(self) -> list[tuple[str, str]]:
        found, after = [], ("", "")
        for _ in range(0, MOST_RULES, PAGE):
            records = await self._store.list_alert_rules(None, PAGE, after)
            found += [(it.tenant, it.rule.scope) for it in records if it.rule.enabled and it.rule.scope != "all"]
            if len(records) < PAGE:
                break
            after = records[-1].tenant, records[-1].rule.name
        return found

    async def _of_jobs(self) -> list[tuple[str, str]]:
        found, after, looked_at = [], "", 0
        while looked_at < MOST_JOBS:
            jobs = await self._store.list_watched_jobs(after, PAGE)
            found += [(job.tenant, subject_of(job.job_id)) for job in jobs if job.slo is not None]
            looked_at += len(jobs)
            if len(jobs) < PAGE:
                break
            after = jobs[-1].job_id
        return found
