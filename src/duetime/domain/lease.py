"""The rules of leases: who should own which shard, and how long a node may believe that it does.

Pure: a view of the cluster and a reading of the monotonic clock come in, a decision goes out. How a lease is kept is
told in `duetime.registry`.

A node's standing, from its own side:

    JOINED     it has asked for a lease, and has no answer yet: it owns nothing
    TRUSTED    a renewal was answered, and `Trust.until` has not come: it owns the shards that the view says it owns
    DOUBTFUL   `Trust.until` has passed, and the registry has not said that the lease is over. Another node may own its
               shards by now, so it drops the timers that it has read ahead and fires nothing. It goes on renewing. A
               renewal that succeeds makes it TRUSTED again: its lease never lapsed, so no shard has a new owner
    LOST       the registry has refused the renewal: the lease lapsed, or a newer node has the name. That is final.
               The process starts anew under another id, and forgets what it held
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from duetime.domain.ids import SHARDS
from duetime.domain.instants import DAY, SECOND, format_instant

NODE_LEASE_SECONDS = 5.0
MARGIN_SHARE = 0.2  # of the ttl
TIMER = "timer"  # the role that owns shards
HOUSEKEEPING_SHARD = 0
DRIFT = 0.001  # how much faster or slower one clock runs than another, at worst
CLOCK_OFF = SECOND  # from the registry's clock: somebody should know
MOST_COUNTED_SECONDS = 1.5  # of silence for one look at workers, which are a second apart
AFTER_LAPSE = 10  # ms: instants in a view are rounded


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A node whose lease is alive."""

    node: int
    name: str
    roles: frozenset[str]
    lapses_at: int  # ms on the registry's clock, which is no other's


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """Who took a shard last. It is free if that is None (given up), or a node that is not alive."""

    owner: int | None
    epoch: int


class View(msgspec.Struct, frozen=True, array_like=True):
    """The cluster as of one instant: living nodes in order of their ids, and what holds each shard, by its number."""

    now: int  # ms on the registry's clock, since 1970: nodes compare theirs with it. 0 where there is no such clock
    members: tuple[Member, ...]
    shards: tuple[Holding, ...]
    # Nodes whose lease has lapsed or ended, remembered for about a day: what they left in the store is to be taken
    # over. One that a newer node of its name has replaced is not among them; the store voided it at that one's start.
    gone: tuple[int, ...] = ()

    def held_by(self, node: int) -> dict[int, int]:
        """Shards and their epochs."""
        return {shard: holding.epoch for shard, holding in enumerate(self.shards) if holding.owner == node}

    def without(self, node: int, shards: Collection[int]) -> View:
        """As it will be once `node` has given these up."""
        changed = tuple(
            Holding(None, holding.epoch) if holding.owner == node and shard in shards else holding
            for shard, holding in enumerate(self.shards)
        )
        return View(self.now, self.members, changed, self.gone)


class Moves(msgspec.Struct, frozen=True):
    """What a node is to do now: first give up, then take."""

    give_up: dict[int, int]  # shard: epoch
    take: tuple[int, ...]  # in this order, if not all are to be had


def spread(view: View, node: int) -> Moves:
    """Give up what is above the quota, take what is free up to it.

    All nodes see the same quotas in the same view. A free shard is nobody's before it is taken, so two may want the
    same; each begins where those before it end, and in the same view they meet only if too few are free.
    """
    held = view.held_by(node)
    quotas = quotas_of(view)
    quota = quotas.get(node, 0)
    # The highest go: shard 0, and with it housekeeping, moves as seldom as can be.
    surplus = sorted(held)[quota:]
    return Moves({shard: held[shard] for shard in surplus}, _to_take(view, node, quotas))


def quotas_of(view: View) -> dict[int, int]:
    """How many shards each living timer should own: even to within one.

    The odd ones go to those who hold more than an even share, who need not give it up then, and at a tie to the lower
    id. By how much more, or less, does not count: the quotas must not change while nodes move towards them.
    """
    timers = [member.node for member in view.members if TIMER in member.roles]
    if not timers:
        return {}
    each, odd = divmod(len(view.shards), len(timers))
    counts = dict.fromkeys(timers, 0)
    for holding in view.shards:
        if holding.owner in counts:
            counts[holding.owner] += 1
    ranked = sorted(timers, key=lambda node: (counts[node] <= each, node))
    return {node: each + (rank < odd) for rank, node in enumerate(ranked)}


def _to_take(view: View, node: int, quotas: Mapping[int, int]) -> tuple[int, ...]:
    alive = {member.node for member in view.members}
    free = [shard for shard, holding in enumerate(view.shards) if holding.owner not in alive]
    needs = {other: max(0, quota - len(view.held_by(other))) for other, quota in sorted(quotas.items())}
    need = needs.get(node, 0)
    if not free or not need:
        return ()
    begin = sum(count for other, count in needs.items() if other < node) % len(free)
    return tuple((free[begin:] + free[:begin])[:need])


def next_look_in(view: View, node: int, heartbeat: int) -> int:
    """In how many ms a node should renew and look again: after a heartbeat, or when another's lease may have lapsed.

    A node that dies is replaced when its lease lapses, then, not a heartbeat later. While all renew in time it makes
    no difference: each has more than a heartbeat left.
    """
    left = [member.lapses_at - view.now for member in view.members if member.node != node]
    return min([heartbeat, *(max(0, lapse) + AFTER_LAPSE for lapse in left)])


def believed(view: View, node: int, given_up: Mapping[int, int]) -> dict[int, int]:
    """What of a view a node may take for its own: all that it holds, but for what it gave up at that very epoch.

    A release whose answer was lost may still be on its way: the view that came in between shows the shard as ours,
    and a moment later it is somebody else's. So a shard once given up comes back only by being taken anew.
    """
    return {shard: epoch for shard, epoch in view.held_by(node).items() if given_up.get(shard) != epoch}


def runs_housekeeping(owned: Collection[int]) -> bool:
    """Is the owner of these the one that runs what must run once in the cluster (reconciler, retention)?"""
    return HOUSEKEEPING_SHARD in owned


class Trust(msgspec.Struct, frozen=True):
    """How long a node may act on its lease, in seconds on its own monotonic clock.

    The registry counts the ttl from when it wrote the renewal, and that was after it was sent: by the node's own
    clock, the lease can't lapse before `sent_at + ttl`, however slow the answer was. The margin is for two clocks that
    don't run at quite the same rate, and for what happens between a look at the clock and the deed. It can't be
    enough for a process that is stopped in between; for that there is the fence in the store.
    """

    sent_at: float
    ttl: float
    margin: float

    @property
    def until(self) -> float:
        return self.sent_at + self.ttl - self.margin

    def holds(self, monotonic: float) -> bool:
        return monotonic < self.until


class Writes(msgspec.Struct, frozen=True):
    """What a store says of its writes: how many commits there were, and why the last write failed, if it did."""

    committed: int = 0
    failure: str | None = None


class Writing(msgspec.Struct, frozen=True):
    """Since when a node has not been able to write, by its own monotonic clock, as seen at its heartbeats.

    Only heartbeats that were answered count: while the registry is away, too, trust ends by itself.
    """

    committed: int = 0
    failing_since: float | None = None

    def seen(self, writes: Writes, monotonic: float) -> Writing:
        """As of a heartbeat at which the store said this of its writes."""
        if writes.failure is None:
            return Writing(writes.committed)
        if self.failing_since is None or writes.committed != self.committed:
            return Writing(writes.committed, monotonic)
        return self

    def may_own(self, ttl: float, monotonic: float) -> bool:
        """A node that could not write for as long as a lease lives owns no shards.

        Its heartbeat and its writes take different connections. A node whose heartbeat alone gets through would keep
        its shards, and nothing of them would fire; another node may be able to write.
        """
        return self.failing_since is None or monotonic - self.failing_since < ttl


class Standing(StrEnum):
    JOINED = "joined"
    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    LOST = "lost"


def standing(trust: Trust | None, refused: bool, monotonic: float) -> Standing:
    """Where a node stands: `trust` of its last answered renewal, and whether one has been refused."""
    if refused:
        return Standing.LOST
    if trust is None:
        return Standing.JOINED
    return Standing.TRUSTED if trust.holds(monotonic) else Standing.DOUBTFUL


class ClockState(StrEnum):
    """RIGHT, or OFF by more than a second, or WRONG by more than a lease: such a node decides nothing by its clock."""

    RIGHT = "right"
    OFF = "off"
    WRONG = "wrong"


class Reckoning(msgspec.Struct, frozen=True):
    """The registry's time: what its clock read when it answered, and when that was on the node's own monotonic clock.

    The registry read its clock between the question and the answer. The middle of the two is off by half the round trip
    at most.
    """

    at: int
    monotonic: float
    unsure: float  # ms, either way

    @staticmethod
    def of(at: int, asked_at: float, answered_at: float) -> Reckoning:
        half = (answered_at - asked_at) / 2
        return Reckoning(at, asked_at + half, half * SECOND + 1)  # instants in a view are rounded

    def now(self, monotonic: float) -> int:
        """What the registry's clock reads at that instant."""
        return self.at + round((monotonic - self.monotonic) * SECOND)

    def offset(self, now: int, monotonic: float) -> int:
        """By how many ms a clock that reads `now` at that instant is ahead of the registry's; behind is negative."""
        return now - self.now(monotonic)


def better_reckoning(known: Reckoning | None, new: Reckoning, lease_seconds: float) -> Reckoning | None:
    """The one to go by. An answer that was long under way says little, and less than an older one that came at once.

    One that is unsure by half a lease or more says nothing. The older one loses a thousandth of its age: no two clocks
    run at the same rate, and the registry's may have been set.
    """
    if known is not None and new.unsure > known.unsure + (new.monotonic - known.monotonic) * SECOND * DRIFT:
        return known
    return new if new.unsure < lease_seconds * SECOND / 2 else known


def judge_clock(offset: float, unsure: float, lease_seconds: float, was_wrong: bool = False) -> ClockState:
    """What a node is to think of its clock, by its offset from the registry's (ms), which is known to within `unsure`.

    A clock is judged by what is certain. One that was wrong has to be right for certain, and to within half a lease:
    a clock that drifts about the limit must not make shards move at each heartbeat.
    """
    lease = lease_seconds * SECOND
    certain = abs(offset) - unsure
    if certain > lease or (was_wrong and abs(offset) + unsure > lease / 2):
        return ClockState.WRONG
    return ClockState.OFF if certain > CLOCK_OFF else ClockState.RIGHT


def explain_clock(offset: float) -> str:
    """A sentence for people."""
    way = "ahead of" if offset > 0 else "behind"
    return f"this node's clock is {abs(offset) / SECOND:,.1f} s {way} the database's"


def doubt_clock(newest_at: int | None, now: int) -> str | None:
    """What a node that is alone with its ledger has to say of its clock as it starts; None if there is nothing to say.

    There is no other clock to compare it with, but what the ledger has seen has happened.
    """
    if newest_at is None:
        return None
    newest = format_instant(newest_at)
    if newest_at > now + CLOCK_OFF:
        return f"the clock reads {format_instant(now)}, but the ledger has seen {newest}: was the clock set back?"
    if is_long_after(newest_at, now):
        return f"the ledger has seen nothing since {newest}: was this node off for so long, or is its clock ahead?"
    return None


def is_long_after(newest_at: int | None, now: int) -> bool:
    """May the clock be so far ahead that it would prune what is not old?"""
    return newest_at is not None and now - newest_at > DAY


class Silence(msgspec.Struct, frozen=True):
    """For how long a worker was silent, as far as the node that watches it could have heard it."""

    beats: int
    seconds: float


def listen(known: Silence | None, beats: int, apart: float, within: float, lease: float) -> Silence:
    """A worker's silence after another look at its beats, which found so many.

    The last look and this one were at least `apart` seconds from each other, and lie `within` so many. Workers beat
    by way of nodes. A node that was stopped, or could not reach its store, kept workers from being heard. So a look
    that comes late counts for no more than one in time, and one that comes after a whole lease begins anew.
    """
    if known is None or known.beats != beats or within > max(lease, 2 * MOST_COUNTED_SECONDS):
        return Silence(beats, 0)
    return Silence(beats, known.seconds + min(apart, MOST_COUNTED_SECONDS))


def empty_view(now: int = 0) -> View:
    """A cluster that nobody has joined yet."""
    return View(now, (), (Holding(None, 0),) * SHARDS)
