"""Retention: removes old history in small pages, by age and by size, so that it never gets in anyone's way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from duetime.domain.commands import Command, Prune, SweepCounters, SweepJobs, SweepLimits, TrimHistory
from duetime.domain.errors import DuetimeError
from duetime.domain.history import to_trim
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.engine.audit_retention import AuditRetention
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
TRIM_LOOK = 2000  # executions of a tenant at once: dead letters, and open ones, are passed over
TRIM_TENANTS = 16  # at once
TRIM_ANEW = HOUR  # what was open when it was passed over is found then
FIRST_ID = "00000000-0000-0000-0000-000000000000"  # comes before every job's
IDEMPOTENCY_KEYS_KEPT = DAY
CIRCUITS_KEPT = DAY  # that nobody calls any more
DELIVERED_KEPT = DAY  # notifications, unless history is kept for less
LIMITS_KEPT = HOUR  # after their bucket is full again: clocks may differ
NODES_KEPT = DAY  # beyond the history that names them: a store may keep that for the rest of its day
FIRST: dict[str, Any] = {"jobs": FIRST_ID, "limits": ("", "", ""), "counters": ("", "", 0)}  # where sweeps begin


class Retention(Service):
    """One node does it for all: while `runs_housekeeping` says so."""

    def __init__(
        self, store: Store, clock: Clock, age_seconds: float, most_executions: int,
        runs_housekeeping: Callable[[], bool], logs: LogStore | None = None, most_log_bytes: int = 0,
        audit: AuditRetention | None = None,
    ) -> None:  # fmt: skip
        super().__init__("retention", clock)
        self._runs_housekeeping = runs_housekeeping
        self._store = store
        self._age = int(age_seconds * 1000)
        self._most = most_executions
        self._logs = logs
        self._most_log_bytes = most_log_bytes
        self._logs_pruned_at = 0
        self._audit = audit
        self._swept_up_to = dict(FIRST)  # what was looked at last, of the sweeps that are not through
        self._sweep_at = 0
        self._trimmed_up_to: dict[str, str] = {}  # by tenant, the execution that was looked at last
        self._trimming_since = 0
        self.is_clock_right: Callable[[], bool] = always
        self.rests_until = -math.inf  # on the monotonic clock: somebody may want to set the other one first

    async def run_once(self) -> int:
        now = self._clock.now()
        # What is pruned by a clock that is ahead, nobody brings back.
        if self._clock.monotonic() < self.rests_until or not self.is_clock_right():
            return now + MINUTE
        if self._logs is not None and abs(now - self._logs_pruned_at) >= MINUTE:  # each node has its own, or all share
            self._logs_pruned_at = now
            await self._logs.prune(now - self._age, self._most_log_bytes, self._store.list_tenants)
        if not self._runs_housekeeping():
            return now + MINUTE
        over = now - self._age
        prune = Prune(
            over, over, now - IDEMPOTENCY_KEYS_KEPT, PAGE, now - CIRCUITS_KEPT,
            nodes_before=over - NODES_KEPT, revoked_before=over,
        )  # fmt: skip
        (pruned,) = await self._store.apply([prune])
        if isinstance(pruned, DuetimeError):
            raise pruned
        if pruned >= PAGE or await self._trim(now):
            return now + PAUSE_BETWEEN_PAGES
        next_at = await self._sweep(now)
        is_more = self._audit is not None and await self._audit.prune(now)
        return now + PAUSE_BETWEEN_PAGES if is_more else next_at

    async def _trim(self, now: int) -> bool:
        """Remove a page of what is over the size cap, whatever its age. Returns whether there may be more to remove."""
        if await self._store.count_history() <= self._most:
            return False
        if not now - TRIM_ANEW < self._trimming_since <= now:
            self._trimmed_up_to, self._trimming_since = {}, now
        trims = to_trim(await self._store.list_history(), self._most, PAGE)
        commands = [
            TrimHistory(tenant, number, self._trimmed_up_to.get(tenant, FIRST_ID), TRIM_LOOK)
            for tenant, number in trims[:TRIM_TENANTS]
        ]
        is_more = False
        for command, trimmed in zip(commands, await self._store.apply(commands), strict=True):
            if isinstance(trimmed, DuetimeError):
                raise trimmed
            self._trimmed_up_to[command.tenant] = trimmed.last
            is_more = is_more or trimmed.removed > 0 or not trimmed.is_end
        return is_more

    async def _sweep(self, now: int) -> int:
        """What has no index by age: a page of each table a turn, and a rest when all were looked at."""
        if now < self._sweep_at <= now + SWEEP_REST:  # further ahead: the clock was set back
            return now + MINUTE
        commands = self._sweeps(now)
        for table, swept in zip(commands, await self._store.apply(list(commands.values())), strict=True):
            if isinstance(swept, DuetimeError):
                raise swept
            last = swept.last_job_id if table == "jobs" else swept.last
            if last is None:
                del self._swept_up_to[table]
            else:
                self._swept_up_to[table] = last
        if self._swept_up_to:
            return now + SWEEP_PAUSE
        self._swept_up_to, self._sweep_at = dict(FIRST), now + SWEEP_REST
        return now + MINUTE

    def _sweeps(self, now: int) -> dict[str, Command]:
        over, delivered = now - self._age, now - min(self._age, DELIVERED_KEPT)
        make: dict[str, Callable[[Any], Command]] = {
            "jobs": lambda after: SweepJobs(now, over, after, SWEEP_PAGE, delivered),
            "limits": lambda after: SweepLimits(now - LIMITS_KEPT, after, SWEEP_PAGE),
            "counters": lambda after: SweepCounters(over - DAY, after, SWEEP_PAGE),
        }
        return {table: make[table](after) for table, after in self._swept_up_to.items()}
