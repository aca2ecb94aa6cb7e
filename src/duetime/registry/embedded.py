"""The registry of a single node. The store's lock allows one process per data folder (docs/decisions/0007).

No lease expires, so there is no clock and no ttl. Nothing is stored either: the epoch is the node's id. The store hands
out growing ids, so a later process has a higher epoch than any before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.instants import LATEST
from duetime.domain.lease import Holding, Member, View, empty_view


class EmbeddedRegistry:
    ttl_seconds = math.inf

    def __init__(self) -> None:
        self._view = empty_view()
        self._latest = 0  # the highest id that has joined

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        if node == self._latest:
            return await self.renew(node)
        if node < self._latest:
            raise StaleWrite(f"node {node} can't join: node {self._latest} has since")
        self._latest = node
        free = (Holding(None, node - 1),) * SHARDS
        self._view = View(0, (Member(node, name, frozenset(roles), LATEST),), free)
        return self._view

    async def renew(self, node: int) -> View:
        if not self._is_alive(node):
            raise StaleWrite(f"the lease of node {node} has ended: start anew")
        return self._view

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        # A node has one epoch. Shards that it gave up have that epoch already, and stay free until a newer node joins.
        taken = [shard for shard in shards if self._is_alive(node) and self._view.shards[shard].epoch < node]
        self._set(taken, Holding(node, node))
        return dict.fromkeys(taken, node)

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        held = self._view.held_by(node)
        self._set([shard for shard, epoch in shards.items() if held.get(shard) == epoch], Holding(None, node))

    async def leave(self, node: int) -> None:
        if self._is_alive(node):
            self._set(self._view.held_by(node), Holding(None, node))
            self._view = View(0, (), self._view.shards)

    async def view(self) -> View:
        return self._view

    def _is_alive(self, node: int) -> bool:
        return any(member.node == node for member in self._view.members)

    def _set(self, shards: Collection[int], holding: Holding) -> None:
        changed = tuple(holding if shard in shards else before for shard, before in enumerate(self._view.shards))
        self._view = View(0, self._view.members, changed)
