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

PAGE = 10_000


class WorkerWatch(Service):
    """One node does it for all: while `runs_housekeeping` says so."""

    def __init__(self, store: Store, clock: Clock, lease_seconds: float, runs_housekeeping: Callable[[], bool]) -> None:
        super().__init__("worker watch", clock)
        self._store = store
        self._lease = lease_seconds
        self._runs_housekeeping = runs_housekeeping
        self._heard: dict[int, Silence] = {}
        self._looked_at = 0.0  # when the last look was over

    async def run_once(self) -> int:
        if not self._runs_housekeeping():
            self._heard.clear()  # whoever does it meanwhile; here it begins anew
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
        """Of all workers, however many one tenant has: those of the others must not be overlooked."""
        beats: dict[int, int] = {}
        while page := await self._store.list_beats(max(beats, default=0), PAGE):
            beats.update(page)
            if len(page) < PAGE:
                break
        return beats

    def silent(self) -> Mapping[int, int]:
        """Workers that were silent for longer than their lease, with the beats that they were last seen with."""
        return {worker: heard.beats for worker, heard in self._heard.items() if heard.seconds > self._lease}
