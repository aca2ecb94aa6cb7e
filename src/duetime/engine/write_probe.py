"""The write probe: after a failed write, tries a write each second, to detect when writes succeed again.

A node that can't write gives up its shards, and may then have nothing else to write.
"""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.commands import FenceShards
from duetime.domain.instants import SECOND
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one


class WriteProbe(Service):
    """`on_written()` is called when a write succeeds after failed ones."""

    def __init__(self, store: Store, clock: Clock, node: int, on_written: Callable[[], None]) -> None:
        super().__init__("write probe", clock)
        self._store = store
        self._node = node
        self._on_written = on_written

    async def run_once(self) -> int:
        if self._store.writes().failure is not None:
            await apply_one(self._store, FenceShards(self._node, ()))  # a commit that changes nothing
            self._on_written()
        return self._clock.now() + SECOND
