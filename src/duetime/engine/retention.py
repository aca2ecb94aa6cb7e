"""Retention: removes old history in small pages, by age and by size, so that it never gets in anyone's way."""

from __future__ import annotations

import math
from collections.abc import Callable

from duetime.domain.commands import Prune, SweepJobs
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.logs import LogStore
from duetime.ports.store import Store

PAGE = 500
PAUSE_BETWEEN_PAGES = 50  # ms
SWEEP_PAGE = 1000
SWEEP_PAUSE = SECOND
SWEEP_REST = HOUR
FIRST_ID = "00000000-0000-0000-0000-000000000000"  # comes before every job's
IDEMPOTENCY_KEYS_KEPT = DAY
CIRCUITS_KEPT = DAY  # that nobody calls any more


class Retention(Service):
    """One node does it for all: while `runs_chores` says so."""

    def __init__(
        self, store: Store, clock: Clock, age_seconds: float, most_executions: int, runs_chores: Callable[[], bool],
        logs: LogStore | None = None, most_log_bytes: int = 0,
    ) -> None:  # fmt: skip
        super().__init__("retention", clock)
        self._runs_chores = runs_chores
        self._store = store
        self._age = int(age_seconds * 1000)
        self._most = most_executions
        self._logs = logs
        self._most_log_bytes = most_log_bytes
        self._logs_pruned_at = 0
        self._swept_up_to = FIRST_ID
        self._sweep_at = 0
        self.is_clock_right: Callable[[], bool] = always
        self.rests_until = -math.inf  # on the monotonic clock: somebody may want to set the other one first

    async def run_once(self) -> int:
        now = self._clock.now()
        # What is pruned by a clock that is ahead, nobody brings back.
        if self._clock.monotonic() < self.rests_until or not self.is_clock_right():
            return now + MINUTE
        if self._logs is not None and abs(now - self._logs_pruned_at) >= MINUTE:  # each node has its own, or all share
            self._logs_pruned_at = now
            await self._logs.prune(now - self._age, self._most_log_bytes)
        if not self._runs_chores():
            return now + MINUTE
        too_many = await self._store.count_history() - self._most
        # Over the size cap, the oldest go whatever their age; a day's work is a few pages a second.
        before = now if too_many > 0 else now - self._age
        limit = min(PAGE, too_many) if too_many > 0 else PAGE
        prune = Prune(before, now - self._age, now - IDEMPOTENCY_KEYS_KEPT, limit, now - CIRCUITS_KEPT)
        (pruned,) = await self._store.apply([prune])
        if isinstance(pruned, DuetimeError):
            raise pruned
        return now + PAUSE_BETWEEN_PAGES if pruned >= limit else await self._sweep(now)

    async def _sweep(self, now: int) -> int:
        """Jobs of one run that is long over go too: a page of all jobs a turn, and a rest when all were looked at."""
        if now < self._sweep_at <= now + SWEEP_REST:  # further ahead: the clock was set back
            return now + MINUTE
        (swept,) = await self._store.apply([SweepJobs(now, now - self._age, self._swept_up_to, SWEEP_PAGE)])
        if isinstance(swept, DuetimeError):
            raise swept
        if swept.last_job_id is not None:
            self._swept_up_to = swept.last_job_id
            return now + SWEEP_PAUSE
        self._swept_up_to, self._sweep_at = FIRST_ID, now + SWEEP_REST
        return now + MINUTE
