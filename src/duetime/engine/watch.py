"""The watch: detects workers that have fallen silent, so that the reconciler returns their executions.

It checks whether their beats change, and measures time by its own monotonic clock. No two clocks are compared, so
setting a clock ends no worker. `domain.lease.listen` defines silence. A worker is silent as of a look, not as of now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from duetime.domain.instants import SECOND
from duetime.domain.lease import Silence, listen
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

PAGE = 10_000


class WorkerWatch(Service):
    """Runs on one node for the whole cluster: the one where `runs_housekeeping` returns True."""

    def __init__(self, store: Store, clock: Clock, lease_seconds: float, runs_housekeeping: Callable[[], bool]) -> None:
        super().__init__("worker watch", clock)
        self._store = store
        self._lease = lease_seconds
        self._runs_housekeeping = runs_housekeeping
        self._heard: dict[int, Silence] = {}
        self._looked_at = 0.0  # when the last look ended

    async def run_once(self) -> int:
        if not self._runs_housekeeping():
            self._heard.clear()  # another node watches meanwhile; this one starts over later
            return self._clock.now() + SECOND
        began_at, heard = self._clock.monotonic(), self._heard
        beats = await self._list_beats()
        ended_at = self._clock.monotonic()
        apart, within = began_at - self._looked_at, ended_at - self._looked_at
        self._heard = {
            worker: listen(heard.get(worker), number, apart, within, self._lease) for worker, number in beats.items()
        }
        self._looked_at = ended_at
        return self._clock.now() + SECOND

    async def _list_beats(self) -> dict[int, int]:
        """Returns the beats of all workers, page by page: a tenant with many workers must not hide those of others."""
        beats: dict[int, int] = {}
        while page := await self._store.list_beats(max(beats, default=0), PAGE):
            beats.update(page)
            if len(page) < PAGE:
                break
        return beats

    def silent(self) -> Mapping[int, int]:
        """Returns the workers that were silent for longer than their lease, with their last seen beats."""
        return {worker: heard.beats for worker, heard in self._heard.items() if heard.seconds > self._lease}
