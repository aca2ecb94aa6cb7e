"""Node reports: every two seconds each node writes what it knows about itself, so that any node can tell of all."""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.commands import ReportNode
from duetime.domain.node_report import EVERY, NodeFacts
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one


class NodeReports(Service):
    """Runs only where several nodes share a store: a single node is asked itself."""

    def __init__(self, store: Store, clock: Clock, node: int, facts: Callable[[], NodeFacts]) -> None:
        super().__init__("node reports", clock)
        self._store = store
        self._node = node
        self._facts = facts

    async def run_once(self) -> int:
        await apply_one(self._store, ReportNode(self._clock.now(), self._node, self._facts()))
        return self._clock.now() + EVERY
