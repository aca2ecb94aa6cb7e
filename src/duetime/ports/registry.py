"""The registry port: which nodes live, and which of them owns which shard. A backend is what passes
tests/contract/registry; the protocol is told in `duetime.registry`.

Three promises that everything rests on:

1. While a node's lease is alive, nobody but itself takes a shard from it.
2. A shard's epoch grows with every take, and never otherwise; no two takes of a shard have the same epoch.
3. A lease that has ended never comes back. "Ended" is: left, voided by a newer node of the same name, or lapsed and
   then found so by anyone.

Each call is bounded in time, by less than half the ttl. `StaleWrite` says no; any other error says only that it is not
known what became of the call: it may have done nothing, or all it should, and may even be done later. So a caller
believes the next view, not its own memory of what it asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from duetime.domain.lease import Holding, Member, View

__all__ = ["Holding", "Member", "Registry", "View"]


class Registry(Protocol):
    @property
    def ttl_seconds(self) -> float:
        """How long a lease lives without a renewal; infinite if it needs none."""

    async def start(self) -> None:
        """Open, and make what is missing. Several at once converge."""

    async def stop(self) -> None:
        """Close. Leases stay as they are: see `leave`."""

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        """A lease for a node whose id the store gave out. An earlier node of this name ends at once.

        Joining again while the lease is alive renews it. Refused with StaleWrite if this node's lease has ended, or if
        a node with a higher id has joined by this name since: whoever is late must not void its successor.
        """

    async def renew(self, node: int) -> View:
        """The lease lives for another ttl from now on. The view is of an instant at which it was alive.

        Refused with StaleWrite if it has lapsed or ended.
        """

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        """Own those of the shards that are free: given up, or the owner's lease has lapsed or ended.

        Answers what was got, with each one's new epoch; nothing if the taker's own lease is not alive. What the node
        owns already is not free, hence not in the answer.
        """

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        """Give up those (shard: epoch) that are still the node's own at that epoch. They are free at once."""

    async def leave(self, node: int) -> None:
        """Give up all, and end the lease. Leaving twice, or without having joined, does nothing."""

    async def view(self) -> View:
        """The cluster as of now."""
