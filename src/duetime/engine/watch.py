"""The watch: notices workers that have fallen silent, so that the reconciler gives what they run to others.

It looks for a change of their beats, by its own monotonic clock: no two clocks are compared, and one that was set makes
nobody die.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from duetime.domain.instants import SECOND
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

MOST_WORKERS = 10_000


class WorkerWatch(Service):
    """One node does it for all: while `runs_chores` says so."""

    def __init__(self, store: Store, clock: Clock, lease_seconds: float, runs_chores: Callable[[], bool]) -> None:
        super().__init__("worker watch", clock)
        self._store = store
        self._lease = lease_seconds
        self._runs_chores = runs_chores
        self._seen: dict[int, tuple[int, float]] = {}  # beats, and when they were first that many

    async def run_once(self) -> int:
        if not self._runs_chores():
            self._seen.clear()  # whoever does it meanwhile; here it begins anew
            return self._clock.now() + SECOND
        now, seen = self._clock.monotonic(), self._seen
        workers = await self._store.list_workers(None, MOST_WORKERS)
        self._seen = {
            worker.worker_id: known
            if (known := seen.get(worker.worker_id)) is not None and known[0] == worker.beats
            else (worker.beats, now)
            for worker in workers
        }
        return self._clock.now() + SECOND

    def gone(self) -> Collection[int]:
        """Workers that were silent for longer than their lease."""
        now = self._clock.monotonic()
        return [worker for worker, (_, since) in self._seen.items() if now - since > self._lease]
