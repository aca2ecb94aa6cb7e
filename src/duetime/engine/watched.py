"""Tells the statistics which jobs to keep tallies of: those with an `slo`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic, TypeVar

from duetime.domain.budgets import subject_of
from duetime.domain.instants import SECOND
from duetime.engine.service import Service
from duetime.engine.statistics import Collected
from duetime.ports.clock import Clock
from duetime.ports.store import Store

TURN = 10 * SECOND  # until another node watches a new job, too
PAGE = 1000
MOST_RULES = 20_000  # of alerts, that are read in one turn; the next turn reads on
MOST_JOBS = 20_000  # with `slo` or `expect_every`, likewise

K = TypeVar("K")


class WatchedSubjects(Service):
    """A job with an `slo` that is written here wakes it."""

    def __init__(self, store: Store, clock: Clock, collected: Collected) -> None:
        super().__init__("watched subjects", clock)
        self._store = store
        self._collected = collected
        self._rules, self._jobs = _Pass[tuple[str, str]](), _Pass[str]()
        collected.on_promise = self.wake

    async def run_once(self) -> int:
        self._collected.watch(await self._of_jobs(), "objectives")
        self._collected.watch(await self._of_rules(), "alerts")
        return self._clock.now() + TURN

    async def _of_rules(self) -> Collection[tuple[str, str]]:
        for _ in range(0, MOST_RULES, PAGE):
            records = await self._store.list_alert_rules(None, PAGE, self._rules.after or ("", ""))
            self._rules.add(
                [(it.tenant, it.rule.scope) for it in records if it.rule.enabled and it.rule.scope != "all"],
                (records[-1].tenant, records[-1].rule.name) if len(records) == PAGE else None,
            )
            if self._rules.after is None:
                break
        return self._rules.found()

    async def _of_jobs(self) -> Collection[tuple[str, str]]:
        for _ in range(0, MOST_JOBS, PAGE):
            jobs = await self._store.list_watched_jobs(self._jobs.after or "", PAGE)
            self._jobs.add(
                [(job.tenant, subject_of(job.job_id)) for job in jobs if job.slo is not None],
                jobs[-1].job_id if len(jobs) == PAGE else None,
            )
            if self._jobs.after is None:
                break
        return self._jobs.found()


class _Pass(Generic[K]):
    """A list that may be too long for one turn. Until its end is read, what was read the last time counts."""

    def __init__(self) -> None:
        self.after: K | None = None  # where the next turn reads on; None: at the beginning
        self._before: set[tuple[str, str]] = set()
        self._now: set[tuple[str, str]] = set()

    def add(self, page: Iterable[tuple[str, str]], after: K | None) -> None:
        """Adds a page. `after`: its last key; None if it was the last page."""
        if self.after is None:
            self._before, self._now = self._now, set()
        self._now.update(page)
        self.after = after
        if after is None:
            self._before = set()

    def found(self) -> Collection[tuple[str, str]]:
        return self._before | self._now
