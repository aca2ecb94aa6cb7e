"""The watch: notices workers that have fallen silent, so that the reconciler gives what they run to others.

It looks for a change of their beats, by its own monotonic clock: no two clocks are compared, and one that was set makes
nobody die. What counts as silence, `domain.lease.listen` says; a worker is silent as of a look, and not as of now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from duetime.domain.instants import SECOND
from duetime.domain.lease import Silence, listen
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
        self._heard: dict[int, Silence] = {}
        self._looked_at = 0.0  # when the last look was over

    async def run_once(self) -> int:
        if not self._runs_chores():
            self._heard.clear()  # whoever does it meanwhile; here it begins anew
            return self._clock.now() + SECOND
        began_at, heard = self._clock.monotonic(), self._heard
        workers = await self._store.list_workers(None, MOST_WORKERS)
        ended_at = self._clock.monotonic()
        apart, within = began_at - self._looked_at, ended_at - self._looked_at
        self._heard = {
            worker.worker_id: listen(heard.get(worker.worker_id), worker.beats, apart, within, self._lease)
            for worker in workers
        }
        self._looked_at = ended_at
        return self._clock.now() + SECOND

    def silent(self) -> Mapping[int, int]:
        """Workers that were silent for longer than their lease, with the beats that they were last seen with."""
        return {worker: heard.beats for worker, heard in self._heard.items() if heard.seconds > self._lease}
