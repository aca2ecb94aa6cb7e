"""A registry in memory, shared by many nodes of one process, on a clock that a test sets by hand.

For simulations. It passes the same contract suite as the other registries. It stores nothing on disk and does not work
across processes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.instants import SECOND
from duetime.domain.lease import Holding, Member, View
from duetime.ports.clock import Clock
from duetime.settings.table import DEFAULTS


class MemoryRegistry:
    def __init__(self, clock: Clock, ttl_seconds: float = DEFAULTS.node_lease_seconds) -> None:
        self.ttl_seconds = ttl_seconds
        self._clock = clock
        self._began_at = clock.now() - round(clock.monotonic() * SECOND)
        self._leases: dict[str, Member] = {}  # the latest lease of each node name; it may have ended
        self._ended: set[int] = set()
        self._shards = [Holding(None, 0)] * SHARDS

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        latest = self._leases.get(name)
        if latest is not None and latest.node >= node and not (latest.node == node and self._is_alive(latest)):
            raise StaleWrite(f"node {node} can't join as {name}: its lease has ended, or node {latest.node} came since")
        if latest is not None and latest.node < node:
            self._ended.add(latest.node)
        self._leases[name] = Member(node, name, frozenset(roles), self._expires_at())
        return await self.view()

    async def renew(self, node: int) -> View:
        member = self._find(node)
        if member is None or not self._is_alive(member):
            raise StaleWrite(f"the lease of node {node} has expired or ended: start anew")
        self._leases[member.name] = Member(node, member.name, member.roles, self._expires_at())
        return await self.view()

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        taker = self._find(node)
        if taker is None or not self._is_alive(taker):
            return {}
        taken: dict[int, int] = {}
        for shard in sorted(set(shards)):
            owner = self._shards[shard].owner
            if owner is None or self._end_if_expired(owner):
                taken[shard] = self._shards[shard].epoch + 1
                self._shards[shard] = Holding(node, taken[shard])
        return taken

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        for shard, epoch in shards.items():
            if self._shards[shard] == Holding(node, epoch):
                self._shards[shard] = Holding(None, epoch)

    async def leave(self, node: int) -> None:
        if self._find(node) is not None:
            self._ended.add(node)
        self._shards = [Holding(None, held.epoch) if held.owner == node else held for held in self._shards]

    async def view(self) -> View:
        leases = sorted(self._leases.values(), key=lambda lease: lease.node)
        alive = tuple(lease for lease in leases if self._is_alive(lease))
        expired = tuple(lease.node for lease in leases if not self._is_alive(lease))
        return View(self._now(), alive, tuple(self._shards), expired)

    def _now(self) -> int:
        # A wall clock may jump; a registry's time may not.
        return self._began_at + round(self._clock.monotonic() * SECOND)

    def _expires_at(self) -> int:
        return self._now() + round(self.ttl_seconds * SECOND)

    def _find(self, node: int) -> Member | None:
        return next((lease for lease in self._leases.values() if lease.node == node), None)

    def _is_alive(self, member: Member) -> bool:
        return member.node not in self._ended and self._now() < member.expires_at

    def _end_if_expired(self, node: int) -> bool:
        member = self._find(node)
        if member is not None and self._is_alive(member):
            return False
        self._ended.add(node)
        return True
