"""The stopper: looks once a second for executions of this node whose cancellation was requested through another node.

A hint usually arrives sooner; the stopper covers lost hints.
"""

from __future__ import annotations

from duetime.domain.instants import SECOND
from duetime.engine.dispatcher import Dispatcher
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store

PAGE = 100


class Stopper(Service):
    def __init__(self, store: Store, clock: Clock, node: int, dispatcher: Dispatcher) -> None:
        super().__init__("stopper", clock)
        self._store = store
        self._node = node
        self._dispatcher = dispatcher

    async def run_once(self) -> int:
        if self._dispatcher.running() or self._dispatcher.waiting():
            for execution_id in await self._store.list_to_stop(self._node, PAGE):
                if execution_id not in self._dispatcher.cancelled:  # cancel each only once
                    self._dispatcher.cancel(execution_id)
        return self._clock.now() + SECOND
