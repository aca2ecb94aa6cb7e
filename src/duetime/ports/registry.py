"""The registry port: which nodes are alive, and which node owns which shard. A backend must pass
tests/contract/registry. The docstring of `duetime.registry` describes the protocol.

Everything rests on three guarantees:

1. While a node's lease is alive, no other node takes a shard from it.
2. A shard's epoch grows with every take, and only then; no two takes of a shard have the same epoch.
3. A lease that has ended never comes back. A lease ends when its node leaves, when a newer node of the same name joins,
   or when it has expired and any node has found that.

Each call takes less than half the ttl. `StaleWrite` means that the call was refused. After any other error the effect
is unknown: the call may have done nothing or everything, or may still take effect later. So a caller trusts the next
view, not its own memory of what it requested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from duetime.domain.lease import View


class Registry(Protocol):
    @property
    def ttl_seconds(self) -> float:
        """How long a lease lives without a renewal; infinite if it needs none."""

    async def start(self) -> None:
        """Opens the registry, and creates its tables if they are missing. Several nodes may do this at once."""

    async def stop(self) -> None:
        """Closes the registry. Leases stay as they are: see `leave`."""

    async def join(self, node: int, name: str, roles: Collection[str]) -> View:
        """Creates a lease for a node whose id came from the store. An earlier node's lease of this name ends at once.

        Joining again while the lease is alive renews it. Raises StaleWrite if this node's lease has ended, or if a node
        with a higher id has joined under this name since: a late node must not end the lease of its successor.
        """

    async def renew(self, node: int) -> View:
        """Extends the lease to one ttl from now. Returns a view from an instant at which the lease was alive.

        Raises StaleWrite if the lease has expired or ended.
        """

    async def take(self, node: int, shards: Collection[int]) -> dict[int, int]:
        """Takes those of the shards that are free: given up, or the owner's lease has expired or ended.

        Returns the shards taken, with their new epochs; an empty dict if the node's own lease is not alive. Shards that
        the node owns already are not free, so they are not in the result.
        """

    async def release(self, node: int, shards: Mapping[int, int]) -> None:
        """Gives up those shards that the node still owns at the given epoch (shard: epoch). They are free at once."""

    async def leave(self, node: int) -> None:
        """Gives up all shards and ends the lease. Leaving twice, or without having joined, does nothing."""

    async def view(self) -> View:
        """Returns the current view of the cluster."""
