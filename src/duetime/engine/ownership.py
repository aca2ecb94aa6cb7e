"""Ownership: the shards that this node may fire for. It owns them by its lease, and has fenced them in the store.

Membership says which shards are owned. The epoch of a shard is fenced in the store before its first timer is read, so
that no fire of an earlier owner succeeds afterwards. A new owner reads from the store, and reuses nothing from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from duetime.domain.commands import FenceShards
from duetime.domain.ids import SHARDS, shard_of
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one
from duetime.telemetry.debugging import debug

# A page with more jobs than this touches most shards anyway: it names all owned shards without looking them up.
_FEW = 32


class Ownership:
    """`owned_now(monotonic)`: the epochs of the shards owned then. `fenced`: another node can become their owner."""

    def __init__(
        self, store: Store, clock: Clock, node: int, owned_now: Callable[[float], Mapping[int, int]], *, fenced: bool
    ) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._owned_now = owned_now
        self._fenced = fenced
        self._fenced_epochs: Mapping[int, int] = {}
        self._all: tuple[tuple[int, int], ...] = ()

    async def settle(self) -> bool:
        """Fences the shards that were gained. Returns True if the shards to fire for have changed."""
        owned = self._owned_now(self._clock.monotonic())
        if owned is self._fenced_epochs or owned == self._fenced_epochs:
            return False
        gained = tuple(
            sorted((shard, epoch) for shard, epoch in owned.items() if self._fenced_epochs.get(shard) != epoch)
        )
        if gained:
            await apply_one(self._store, FenceShards(self._node, gained))
        debug(
            "shards were handed over", node=self._node, gained=[shard for shard, _ in gained],
            lost=sorted(self._fenced_epochs.keys() - owned.keys()), owned=len(owned),
        )  # fmt: skip
        self._fenced_epochs = owned
        self._all = tuple(sorted(owned.items()))
        return True

    def doubt(self) -> None:
        """Forgets all fenced shards, because the store has another owner: nothing fires until they are fenced again."""
        self._fenced_epochs = {}

    def shards(self) -> tuple[int, ...] | None:
        """Returns the shards to read timers of; None means all."""
        return None if len(self._fenced_epochs) == SHARDS else tuple(sorted(self._fenced_epochs))

    def is_held(self) -> bool:
        """Returns whether this node still owns what it fenced. A process that was suspended in between notices here."""
        owned = self._owned_now(self._clock.monotonic())
        return owned is self._fenced_epochs or owned == self._fenced_epochs

    def epochs(self, job_ids: Collection[str]) -> tuple[tuple[int, int], ...]:
        """Returns the shards and epochs that a fire of these jobs is checked against."""
        if not self._fenced:
            return ()  # the store refuses a node that another one has replaced
        if len(job_ids) > _FEW:
            return self._all
        return tuple(sorted({(shard, self._fenced_epochs[shard]) for shard in map(shard_of, job_ids)}))
