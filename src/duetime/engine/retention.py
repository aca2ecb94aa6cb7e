"""Retention: removes old history in small pages, by age and by size, so that it never gets in anyone's way."""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.commands import Prune
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import DAY, MINUTE
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

PAGE = 500
PAUSE_BETWEEN_PAGES = 50  # ms
IDEMPOTENCY_KEYS_KEPT = DAY


class Retention(Service):
    """One node does it for all: while `runs_chores` says so."""

    def __init__(
        self, store: Store, clock: Clock, age_seconds: float, most_executions: int, runs_chores: Callable[[], bool]
    ) -> None:
        super().__init__("retention", clock)
        self._runs_chores = runs_chores
        self._store = store
        self._age = int(age_seconds * 1000)
        self._most = most_executions

    async def run_once(self) -> int:
        now = self._clock.now()
        if not self._runs_chores():
            return now + MINUTE
        too_many = await self._store.count_history() - self._most
        # Over the size cap, the oldest go whatever their age; a day's work is a few pages a second.
        before = now if too_many > 0 else now - self._age
        limit = min(PAGE, too_many) if too_many > 0 else PAGE
        (pruned,) = await self._store.apply([Prune(before, now - self._age, now - IDEMPOTENCY_KEYS_KEPT, limit)])
        if isinstance(pruned, DuetimeError):
            raise pruned
        return now + (PAUSE_BETWEEN_PAGES if pruned >= limit else MINUTE)
