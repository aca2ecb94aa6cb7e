"""Reads worker records from the store, round-robin by tenant. A made-up id costs one read, in its tenant's own turn."""

from __future__ import annotations

from collections import OrderedDict

from duetime.engine.turn_gate import TurnGate
from duetime.ports.clock import Clock
from duetime.ports.store import Store, WorkerRecord

ABSENT_SECONDS = 1.0  # how long an id that was not found is not looked up again
MOST_ABSENT = 4096  # absent ids that are remembered


class WorkerRecords:
    """`reads`: the gate that every read passes."""

    def __init__(self, store: Store, clock: Clock, reads: TurnGate) -> None:
        self._store = store
        self._clock = clock
        self._reads = reads
        # Until when, by tenant and id. By tenant too, because an id that one tenant guesses may soon be another's.
        self._absent: OrderedDict[tuple[str, int], float] = OrderedDict()

    async def get(self, tenant: str, worker_id: int) -> WorkerRecord | None:
        """Returns the worker's record; None if the tenant has no such worker."""
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
