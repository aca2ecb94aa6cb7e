"""Subscribers: all subscriptions, kept in memory because they are looked up at every end of an execution.

They are read again each second if there may be other nodes, and at once after a change through this node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from duetime.domain.instants import LATEST, SECOND
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store, SubscriptionRecord

MOST = 100_000


class Subscribers(Service):
    def __init__(self, store: Store, clock: Clock, *, alone: bool) -> None:
        super().__init__("subscribers", clock)
        self._store = store
        self._alone = alone
        self._of: dict[str, list[SubscriptionRecord]] = {}

    async def run_once(self) -> int:
        found = defaultdict[str, list[SubscriptionRecord]](list)
        for record in await self._store.list_subscriptions(None, MOST):
            found[record.tenant].append(record)
        self._of = dict(found)
        return LATEST if self._alone else self._clock.now() + SECOND

    def of(self, tenant: str) -> Sequence[SubscriptionRecord]:
        return self._of.get(tenant, ())
