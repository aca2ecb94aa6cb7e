"""Claims handed to workers, remembered with their log writers only to save reads: any may be forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import msgspec

from duetime.domain.execution import Claim
from duetime.domain.work import WorkClaim
from duetime.ports.logs import LogWriter

MOST_REMEMBERED = 50_000  # claims handed out by this node; one with large arguments that hold secrets counts as several


class HandedClaim(msgspec.Struct, gc=False):
    claim: Claim
    worker_id: int
    log: LogWriter | None = None

    async def close_log(self) -> None:
        if self.log is not None:
            await self.log.close()
            self.log = None


class HandedClaims:
    def __init__(self) -> None:
        self._handed: OrderedDict[str, HandedClaim] = OrderedDict()
        self._places = 0  # sum of `claim.places` over `_handed`

    def __len__(self) -> int:
        return len(self._handed)

    def add(self, claim: Claim, worker_id: int) -> HandedClaim:
        """Remembers the claim without its arguments. The oldest claims are forgotten, to stay below MOST_REMEMBERED."""
        claim = claim.without_arguments()
        self.drop(claim.execution_id)
        handed = self._handed[claim.execution_id] = HandedClaim(claim, worker_id)
        self._places += claim.places
        while self._places > MOST_REMEMBERED and len(self._handed) > 1:
            self.drop(next(iter(self._handed)))
        return handed

    def get(self, worker_id: int, key: WorkClaim) -> HandedClaim | None:
        """Returns the claim with this key that was handed to this worker; None if this node does not remember it."""
        handed = self._handed.get(key.execution_id)
        is_held = handed is not None and handed.worker_id == worker_id and claim_of(handed.claim) == key
        return handed if is_held else None

    def drop(self, execution_id: str) -> HandedClaim | None:
        if (handed := self._handed.pop(execution_id, None)) is not None:
            self._places -= handed.claim.places
        return handed

    async def drop_of(self, worker_ids: Collection[int]) -> None:
        """Forgets the claims of workers that have ended, and closes their logs."""
        for execution_id in [id for id, handed in self._handed.items() if handed.worker_id in worker_ids]:
            if (dropped := self.drop(execution_id)) is not None:
                await dropped.close_log()


def claim_of(claim: Claim) -> WorkClaim:
    return WorkClaim(claim.execution_id, claim.attempt, claim.token)
