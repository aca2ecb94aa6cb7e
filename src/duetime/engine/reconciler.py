"""The reconciler: finds executions whose node is gone and lets the rules decide what becomes of them."""

from __future__ import annotations

import structlog

from duetime.domain.commands import Finish
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import lapse
from duetime.domain.instants import SECOND
from duetime.engine.claimer import Claimer
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

log = structlog.get_logger()


class Reconciler(Service):
    def __init__(
        self, store: Store, clock: Clock, node: int, claimer: Claimer, interval_seconds: float, batch: int
    ) -> None:
        super().__init__("reconciler", clock)
        self._store = store
        self._node = node
        self._claimer = claimer
        self._interval = int(interval_seconds * SECOND)
        self._batch = batch

    async def run_once(self) -> int:
        """All lapsed runs there are, a page at a time."""
        returned = 0
        while lapsed := await self._store.list_lapsed_runs(self._node, self._batch):
            now = self._clock.now()
            (refused,) = await self._store.apply([Finish(self._node, now, tuple(lapse(run, now) for run in lapsed))])
            if isinstance(refused, DuetimeError):
                raise refused
            returned += len(lapsed) - len(refused)
            if len(refused) == len(lapsed):  # somebody else is at it
                break
        if returned:
            log.warning("runs of a lost node were taken over", count=returned)
            self._claimer.hint(0)
        return self._clock.now() + self._interval
