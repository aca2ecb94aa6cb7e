"""Retention: removes old history by age and by size, in small pages so that it does not delay other writes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from duetime.domain import event_log
from duetime.domain.commands import (
    Command,
    Prune,
    PruneEvents,
    SweepCounters,
    SweepJobs,
    SweepLimits,
    Swept,
    SweptRows,
    TrimHistory,
)
from duetime.domain.history import to_trim
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.engine.audit_retention import AuditRetention
from duetime.engine.service import Service
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.logs import LogStore
from duetime.ports.store import Store, apply_one, result_of

PAGE = 500
PAUSE_BETWEEN_PAGES = 50  # ms
SWEEP_PAGE = 1000
SWEEP_PAUSE = SECOND
SWEEP_REST = HOUR
TRIM_LOOK = 2000  # executions of a tenant read at once: dead letters and open ones are skipped
TRIM_TENANTS = 16  # at once
TRIM_ANEW = HOUR  # trimming then restarts at the oldest, to find executions that were open when they were skipped
FIRST_ID = "00000000-0000-0000-0000-000000000000"  # sorts before every job's id
IDEMPOTENCY_KEYS_KEPT = DAY
CIRCUITS_KEPT = DAY  # that are no longer called
DELIVERED_KEPT = DAY  # notifications, unless history is kept for less
LIMITS_KEPT = HOUR  # after their bucket is full again: clocks may differ
NODES_KEPT = DAY  # longer than the history that names them: a store may keep history until the end of its day
FIRST: dict[str, Any] = {"jobs": FIRST_ID, "limits": ("", "", ""), "counters": ("", "", 0)}  # where sweeps begin


class Retention(Service):
    """Runs on one node for the whole cluster: the one where `runs_housekeeping` returns True.

    `rests_until`: by the monotonic clock, because an operator may have to set the wall clock first.
    """

    def __init__(
        self, store: Store, clock: Clock, age_seconds: float, most_executions: int,
        runs_housekeeping: Callable[[], bool], logs: LogStore | None = None, most_log_bytes: int = 0,
        audit: AuditRetention | None = None, events: EventHub | None = None, *,
        is_clock_right: Callable[[], bool] = always, rests_until: float = -math.inf,
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
        self._events = EventHub() if events is None else events
        self._events_pruned_at = 0
        self._swept_up_to = dict(FIRST)  # the last row looked at, by table, of unfinished sweeps
        self._sweep_at = 0
        self._trimmed_up_to: dict[str, str] = {}  # the last execution looked at, by tenant
        self._trimming_since = 0
        self._is_clock_right = is_clock_right
        self._rests_until = rests_until

    async def run_once(self) -> int:
        now = self._clock.now()
        # With a clock that is ahead, history would be pruned too early, and pruning can't be undone.
        if self._clock.monotonic() < self._rests_until or not self._is_clock_right():
            return now + MINUTE
        if self._logs is not None and abs(now - self._logs_pruned_at) >= MINUTE:  # on every node: logs may be per node
            self._logs_pruned_at = now
            await self._logs.prune(now - self._age, self._most_log_bytes, self._store.list_tenants)
        if not self._runs_housekeeping():
            return now + MINUTE
        over = now - self._age
        prune = Prune(
            over, over, now - IDEMPOTENCY_KEYS_KEPT, PAGE, now - CIRCUITS_KEPT,
            nodes_before=over - NODES_KEPT, revoked_before=over,
        )  # fmt: skip
        if await apply_one(self._store, prune) >= PAGE or await self._trim(now):
            return now + PAUSE_BETWEEN_PAGES
        if await self._prune_events(now):
            return now + PAUSE_BETWEEN_PAGES
        next_at = await self._sweep(now)
        is_more = self._audit is not None and await self._audit.prune(now)
        return now + PAUSE_BETWEEN_PAGES if is_more else next_at

    async def _trim(self, now: int) -> bool:
        """Removes a page of history beyond the size cap, whatever its age. Returns whether there may be more."""
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
        for command, answer in zip(commands, await self._store.apply(commands), strict=True):
            trimmed = result_of(command, answer)
            self._trimmed_up_to[command.tenant] = trimmed.last
            is_more = is_more or trimmed.removed > 0 or not trimmed.is_end
        return is_more

    async def _prune_events(self, now: int) -> bool:
        """Removes a page of old events from the log. Returns whether there may be more."""
        if now - MINUTE < self._events_pruned_at <= now:
            return False
        prune = PruneEvents(now - event_log.WINDOW, event_log.MOST_BYTES, PAGE)
        if await apply_one(self._store, prune) >= PAGE:
            return True
        self._events_pruned_at = now
        return False

    async def _sweep(self, now: int) -> int:
        """Sweeps tables that have no index by age: one page of each per turn, then a rest. Returns the next instant."""
        if now < self._sweep_at <= now + SWEEP_REST:  # (if it is further ahead, the clock was set back: sweep now)
            return now + MINUTE
        commands = self._sweeps(now)
        answers = await self._store.apply(list(commands.values()))
        for (table, command), answer in zip(commands.items(), answers, strict=True):
            swept = result_of(command, answer)
            if isinstance(swept, Swept):
                self._publish_removed(swept, now)
            last = swept.last_job_id if isinstance(swept, Swept) else swept.last
            if last is None:
                del self._swept_up_to[table]
            else:
                self._swept_up_to[table] = last
        if self._swept_up_to:
            return now + SWEEP_PAUSE
        self._swept_up_to, self._sweep_at = dict(FIRST), now + SWEEP_REST
        return now + MINUTE

    def _publish_removed(self, swept: Swept, now: int) -> None:
        jobs = swept.jobs
        self._events.publish_all(
            [(tenant, "job.removed") for _, tenant in jobs], lambda place: (now, {"job_id": jobs[place][0]})
        )

    def _sweeps(self, now: int) -> dict[str, Command[Swept | SweptRows]]:
        over, delivered = now - self._age, now - min(self._age, DELIVERED_KEPT)
        make: dict[str, Callable[[Any], Command[Swept | SweptRows]]] = {
            "jobs": lambda after: SweepJobs(now, over, after, SWEEP_PAGE, delivered),
            "limits": lambda after: SweepLimits(now - LIMITS_KEPT, after, SWEEP_PAGE),
            "counters": lambda after: SweepCounters(over - DAY, after, SWEEP_PAGE),
        }
        return {table: make[table](after) for table, after in self._swept_up_to.items()}
