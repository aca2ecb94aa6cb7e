"""Workers that this node remembers, so that a poll or a report needs no read of the worker's record.

Nothing here must survive: any worker may be forgotten, and is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

import msgspec

from duetime.domain.commands import BeatWorkers
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import NotFound
from duetime.domain.work import WorkClaim
from duetime.engine.handed_claims import HandedClaims
from duetime.engine.turn_gate import TurnGate
from duetime.ports.clock import Clock
from duetime.ports.store import Store, WorkerRecord, apply_one

SILENT_SECONDS = 120.0  # after its lease: a worker silent for that long is forgotten, and read again if it comes back
ABSENT_SECONDS = 1.0  # how long an id that was not found is not looked up again
MOST_ABSENT = 4096  # absent ids that are remembered


class KnownWorker(msgspec.Struct):
    record: WorkerRecord
    endpoints: tuple[int, ...]
    beaten_at: float
    looked_at: float
    missing: dict[WorkClaim, float]  # claims in the ledger that the worker does not report, and since when


class KnownWorkers:
    """`handed`: the claims handed to the workers, which are forgotten with them. `reads`: the gate of every read."""

    def __init__(self, store: Store, clock: Clock, lease_seconds: float, handed: HandedClaims, reads: TurnGate) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease_seconds
        self._handed = handed
        self._reads = reads
        self._workers: dict[int, KnownWorker] = {}
        # Until when, by tenant and id. By tenant too, because an id that one tenant guesses may soon be another's.
        self._absent: OrderedDict[tuple[str, int], float] = OrderedDict()

    def count(self) -> tuple[int, int]:
        """Returns how many workers are known, and how many executions they can run at once."""
        return len(self._workers), sum(known.record.slots for known in self._workers.values())

    async def get(self, tenant: str, worker_id: int) -> KnownWorker:
        """Returns the worker, from memory or the store.

        Raises NotFound if its lease has expired, if it never joined, or if it belongs to another tenant.
        """
        known = self._workers.get(worker_id)
        if known is not None and known.record.tenant == tenant:
            return known
        record = None if known is not None else await self._read(tenant, worker_id)
        if record is None:
            raise unknown_worker(worker_id)
        return await self.add(record)

    async def _read(self, tenant: str, worker_id: int) -> WorkerRecord | None:
        """Returns the worker's record; None if the tenant has no such worker.

        Tenants take turns. A made-up id costs one read, in its tenant's own turn.
        """
        if self._is_absent(tenant, worker_id):
            return None
        async with self._reads.turn(tenant):
            if self._is_absent(tenant, worker_id):  # a concurrent read found that
                return None
            record = await self._store.get_worker(worker_id)
        if record is not None and record.tenant == tenant:
            return record
        self._absent.pop((tenant, worker_id), None)
        self._absent[tenant, worker_id] = self._clock.monotonic() + ABSENT_SECONDS
        if len(self._absent) > MOST_ABSENT:
            self._absent.popitem(last=False)
        return None

    def _is_absent(self, tenant: str, worker_id: int) -> bool:
        return self._clock.monotonic() < self._absent.get((tenant, worker_id), 0.0)

    async def add(self, record: WorkerRecord) -> KnownWorker:
        """Remembers a worker. Forgets those that were silent for long: they may have ended or use another node."""
        now = self._clock.monotonic()
        before = now - self._lease - SILENT_SECONDS
        if silent := [id for id, known in self._workers.items() if known.beaten_at < before]:
            await self.forget(silent)
        endpoints = tuple(endpoint_of_function(record.tenant, name) for name in record.functions)
        known = self._workers[record.worker_id] = KnownWorker(record, endpoints, now - self._lease, now, {})
        return known

    async def forget(self, worker_ids: Collection[int]) -> None:
        """Forgets workers that have ended, with the claims handed to them, and closes the logs of those claims."""
        for worker_id in worker_ids:
            self._workers.pop(worker_id, None)
        await self._handed.drop_of(worker_ids)

    async def beat(self, known: KnownWorker) -> None:
        """Stores a sign of life, at most one per quarter of the lease. Raises NotFound if the worker has ended."""
        now = self._clock.monotonic()
        if now - known.beaten_at < self._lease / 4:
            return
        known.beaten_at = now
        if await apply_one(self._store, BeatWorkers(self._clock.now(), (known.record.worker_id,))):
            await self.forget((known.record.worker_id,))
            raise unknown_worker(known.record.worker_id)


def unknown_worker(worker_id: int) -> NotFound:
    return NotFound(f"there is no worker {worker_id}: it was silent for too long, or never joined; join again")
