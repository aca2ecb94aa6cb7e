"""Ownership: the shards that this node may fire for: its own by the lease, and fenced in the store.

Membership says what is owned; before the first timer of a shard is read, its epoch is fenced into the store, so that no
fire of an earlier owner can come after. A new owner starts from the store and from nothing that it held before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from duetime.domain.commands import FenceShards
from duetime.domain.errors import DuetimeError
from duetime.domain.ids import SHARDS, shard_of
from duetime.ports.clock import Clock
from duetime.ports.store import Store
from duetime.telemetry.debugging import debug

# A page with more jobs than this has most shards anyway: it names all that are owned, and none is looked up.
_FEW = 32


class Ownership:
    """`owned_now(monotonic)`: shard and epoch of what is owned then. `fenced`: another node may come to own them."""

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
        """Fence the shards that were gained. Returns True if the shards to fire for have changed."""
        owned = self._owned_now(self._clock.monotonic())
        if owned is self._fenced_epochs or owned == self._fenced_epochs:
            return False
        gained = tuple(
            sorted((shard, epoch) for shard, epoch in owned.items() if self._fenced_epochs.get(shard) != epoch)
        )
        if gained:
            (refused,) = await self._store.apply([FenceShards(self._node, gained)])
            if isinstance(refused, DuetimeError):
                raise refused
        debug(
            "shards were handed over", node=self._node, gained=[shard for shard, _ in gained],
            lost=sorted(self._fenced_epochs.keys() - owned.keys()), owned=len(owned),
        )  # fmt: skip
        self._fenced_epochs = owned
        self._all = tuple(sorted(owned.items()))
        return True

    def doubt(self) -> None:
        """The store knows another owner: nothing is fired before all is fenced again."""
        self._fenced_epochs = {}

    def shards(self) -> tuple[int, ...] | None:
        """Those to read timers of; None stands for all."""
        return None if len(self._fenced_epochs) == SHARDS else tuple(sorted(self._fenced_epochs))

    def is_held(self) -> bool:
        """Is what was fenced still trusted to be ours? A process that was stopped in between finds out here."""
        owned = self._owned_now(self._clock.monotonic())
        return owned is self._fenced_epochs or owned == self._fenced_epochs

    def epochs(self, job_ids: Collection[str]) -> tuple[tuple[int, int], ...]:
        """What a fire of these jobs is fenced by."""
        if not self._fenced:
            return ()  # the store refuses a node whose place another has taken
        if len(job_ids) > _FEW:
            return self._all
        return tuple(sorted({(shard, self._fenced_epochs[shard]) for shard in map(shard_of, job_ids)}))
