"""Runs that were handed to workers, remembered with their log writers only to save reads: any may be forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import msgspec

from duetime.domain.execution import Run
from duetime.domain.work import WorkClaim
from duetime.ports.logs import LogWriter

MOST_REMEMBERED = 50_000  # runs handed out by this node; one with large arguments that hold secrets counts as several


class HandedRun(msgspec.Struct, gc=False):
    run: Run
    worker_id: int
    log: LogWriter | None = None

    async def close_log(self) -> None:
        if self.log is not None:
            await self.log.close()
            self.log = None


class HandedRuns:
    def __init__(self) -> None:
        self._handed: OrderedDict[str, HandedRun] = OrderedDict()
        self._places = 0  # sum of `run.places` over `_handed`

    def add(self, run: Run, worker_id: int) -> HandedRun:
        """Remembers the run without its arguments. The oldest runs are forgotten, to stay below MOST_REMEMBERED."""
        run = run.without_arguments()
        self.drop(run.execution_id)
        handed = self._handed[run.execution_id] = HandedRun(run, worker_id)
        self._places += run.places
        while self._places > MOST_REMEMBERED and len(self._handed) > 1:
            self.drop(next(iter(self._handed)))
        return handed

    def get(self, worker_id: int, claim: WorkClaim) -> HandedRun | None:
        """Returns the run of a claim that was handed to this worker; None if this node does not remember it."""
        handed = self._handed.get(claim.execution_id)
        is_held = handed is not None and handed.worker_id == worker_id and claim_of(handed.run) == claim
        return handed if is_held else None

    def drop(self, execution_id: str) -> HandedRun | None:
        if (handed := self._handed.pop(execution_id, None)) is not None:
            self._places -= handed.run.places
        return handed

    async def drop_of(self, worker_ids: Collection[int]) -> None:
        """Forgets the runs of workers that have ended, and closes the logs of these runs."""
        for execution_id in [id for id, handed in self._handed.items() if handed.worker_id in worker_ids]:
            if (dropped := self.drop(execution_id)) is not None:
                await dropped.close_log()


def claim_of(run: Run) -> WorkClaim:
    return WorkClaim(run.execution_id, run.attempt, run.token)
