"""Joins of workers: few at a time, shared fairly by tenant. A tenant that was just refused is refused from memory."""

from __future__ import annotations

from duetime.domain.commands import JoinWorker
from duetime.domain.errors import ComeBack
from duetime.domain.work import Joining
from duetime.domain.worker_limits import WorkerLimits
from duetime.places import Places
from duetime.ports.clock import Clock
from duetime.ports.store import Store, result_of

AT_ONCE = 4  # joins being written; a tenant below its share may exceed this
MOST_AT_ONCE = 16
MOST_WAITING = 128  # of one tenant
REFUSED_SECONDS = 1.0  # how long further joins of a refused tenant are refused from memory
MOST_REFUSED = 1000  # refused tenants that are remembered


class Joins:
    def __init__(self, store: Store, clock: Clock, limits: WorkerLimits) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._places = Places(AT_ONCE, MOST_AT_ONCE, MOST_WAITING, "joins")
        self._refused: dict[str, tuple[ComeBack, float]] = {}  # tenant: why, and until when

    async def add(self, tenant: str, user_id: str, joining: Joining, now: int) -> int:
        """Returns the id of the new worker.

        Raises RateLimited or QuotaExceeded beyond the tenant's limits, Overloaded if too many of its joins wait.
        """
        self._check(tenant)
        async with self._places.of(tenant):
            self._check(tenant)
            command = JoinWorker(now, tenant, user_id, joining.name, joining.functions, joining.slots, self._limits)
            (answer,) = await self._store.apply([command])
            if isinstance(answer, ComeBack):
                self._remember(tenant, answer)
            return result_of(command, answer)

    def _check(self, tenant: str) -> None:
        error, until = self._refused.get(tenant, (None, 0.0))
        if error is not None and self._clock.monotonic() < until:
            raise error.with_traceback(None)

    def _remember(self, tenant: str, error: ComeBack) -> None:
        self._refused.pop(tenant, None)
        while len(self._refused) >= MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[tenant] = error, self._clock.monotonic() + REFUSED_SECONDS
