"""The rules of leases: which node should own which shard, and how long a node may trust its lease.

Pure: functions take a view of the cluster and a reading of the monotonic clock, and return a decision.
`duetime.registry` describes how a lease is kept.

The states of a node, as the node itself sees them:

    JOINED     it has requested a lease, and has no response yet: it owns nothing
    TRUSTED    a renewal succeeded, and `Trust.until` has not passed: it owns the shards that the view says it owns
    DOUBTFUL   `Trust.until` has passed, and the registry has not said that the lease expired. Another node may own its
               shards now, so it drops the timers that it has read ahead and fires nothing. It goes on renewing. A
               renewal that succeeds makes it TRUSTED again: its lease never expired, so no shard has a new owner
    LOST       the registry has refused the renewal: the lease expired, or a newer node has the name. That is final.
               The process restarts under another id, and forgets the shards that it owned
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from duetime.domain.ids import SHARDS
from duetime.domain.instants import DAY, SECOND, format_instant

MARGIN_SHARE = 0.2  # of the ttl
TIMER = "timer"  # the role that owns shards
ALERTS = "alerts"  # the role that evaluates alert rules: one node at a time does
OF_OWNERS = frozenset({TIMER, ALERTS})  # roles that a node gives up while it can't write, or its clock is wrong
HOUSEKEEPING_SHARD = 0
DRIFT = 0.001  # how much faster or slower one clock runs than another, at worst
CLOCK_OFF = SECOND  # difference from the registry's clock beyond which an operator should know
MOST_COUNTED_SECONDS = 1.5  # of silence that one look at workers adds; looks are a second apart
AFTER_EXPIRY = 10  # ms to wait after a lease expires: instants in a view are rounded


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A node whose lease is alive."""

    node: int
    name: str
    roles: frozenset[str]
    expires_at: int  # when the lease expires, in ms on the registry's clock; not comparable with other clocks


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """The node that took a shard last. The shard is free if `owner` is None (given up), or a node that is not alive."""

    owner: int | None
    epoch: int


class View(msgspec.Struct, frozen=True, array_like=True):
    """The cluster at one instant: living nodes in order of their ids, and the holding of each shard by its number."""

    now: int  # ms on the registry's clock, since 1970: nodes compare theirs with it. 0 where there is no such clock
    members: tuple[Member, ...]
    shards: tuple[Holding, ...]
    # Nodes whose lease has expired, or that left, kept for about a day: their executions have to be taken over.
    # A node that a newer node of its name has replaced is not listed: the store fenced it when the newer one started.
    expired: tuple[int, ...] = ()

    def held_by(self, node: int) -> dict[int, int]:
        """Returns the shards that `node` owns, with their epochs."""
        return {shard: holding.epoch for shard, holding in enumerate(self.shards) if holding.owner == node}

    def without(self, node: int, shards: Collection[int]) -> View:
        """Returns the view as it will be once `node` has given up these shards."""
        changed = tuple(
            Holding(None, holding.epoch) if holding.owner == node and shard in shards else holding
            for shard, holding in enumerate(self.shards)
        )
        return View(self.now, self.members, changed, self.expired)


class Moves(msgspec.Struct, frozen=True):
    """The shards that a node should first give up, and then take."""

    give_up: dict[int, int]  # shard: epoch
    take: tuple[int, ...]  # in this order, if not all can be taken


def rebalance(view: View, node: int) -> Moves:
    """Returns the shards above the node's quota to give up, and free shards up to the quota to take.

    All nodes compute the same quotas from the same view. Two nodes may want the same free shard. So each node begins
    where the nodes before it end: with the same view they want the same shard only if too few are free.
    """
    held = view.held_by(node)
    quotas = quotas_of(view)
    quota = quotas.get(node, 0)
    # Give up the highest shards: shard 0, and with it housekeeping, moves as seldom as possible.
    surplus = sorted(held)[quota:]
    return Moves({shard: held[shard] for shard in surplus}, _to_take(view, node, quotas))


def quotas_of(view: View) -> dict[int, int]:
    """Returns how many shards each living timer node should own: numbers differ by at most one.

    The remaining shards go to nodes that own more than an even share, so that they need not give one up, and at a tie
    to the lower id. How many more or fewer a node owns does not count: quotas must not change while shards move.
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
    """Returns in how many ms a node should renew: after a heartbeat, or when another node's lease may have expired.

    So a node that dies is replaced when its lease expires, not a heartbeat later. While all nodes renew in time it
    makes no difference: each lease has more than a heartbeat left.
    """
    left = [member.expires_at - view.now for member in view.members if member.node != node]
    return min([heartbeat, *(max(0, rest) + AFTER_EXPIRY for rest in left)])


def believed(view: View, node: int, given_up: Mapping[int, int]) -> dict[int, int]:
    """Returns the shards that a node may treat as its own: all that the view shows, but those given up at that epoch.

    A release whose response was lost may still be on its way. A view read in between shows the shard as this node's,
    and a moment later another node owns it. So a node gets back a shard it gave up only by taking it again.
    """
    return {shard: epoch for shard, epoch in view.held_by(node).items() if given_up.get(shard) != epoch}


def runs_housekeeping(owned: Collection[int]) -> bool:
    """Returns whether the owner of these shards runs the tasks that run once in the cluster (reconciler, retention)."""
    return HOUSEKEEPING_SHARD in owned


def alerts_owner(view: View | None) -> int | None:
    """Returns the node that should own the alerts: the one of the role `alerts` that has been alive for longest.

    Two nodes with different views may both think so. The store lets only the last one write (`TakeAlerts`).
    """
    return min((member.node for member in view.members if ALERTS in member.roles), default=None) if view else None


def explain_unwatched(view: View | None) -> str | None:
    """Returns a sentence for operators if no living node evaluates the alert rules; None if one does."""
    if view is None or alerts_owner(view) is not None:
        return None
    return "no living node has the role alerts: nobody evaluates the alert rules"


class Trust(msgspec.Struct, frozen=True):
    """How long a node may act on its lease, in seconds on its own monotonic clock.

    The registry counts the ttl from when it wrote the renewal, which is after the node sent it. So by the node's own
    clock, the lease can't expire before `sent_at + ttl`, however slow the response was. The margin covers two clocks
    that run at slightly different rates, and the time between reading the clock and acting. It can't cover a process
    that is stopped in between: the fence in the store does.
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
    """A store's report on its writes: the number of commits, and why the last write failed, if it did."""

    committed: int = 0
    failure: str | None = None


class Writing(msgspec.Struct, frozen=True):
    """Since when a node has not been able to write, by its own monotonic clock, as seen at its heartbeats.

    Only heartbeats that succeeded count: while the registry is unreachable as well, `Trust` ends anyway.
    """

    committed: int = 0
    failing_since: float | None = None

    def seen(self, writes: Writes, monotonic: float) -> Writing:
        """Returns the state after a heartbeat at which the store reported these writes."""
        if writes.failure is None:
            return Writing(writes.committed)
        if self.failing_since is None or writes.committed != self.committed:
            return Writing(writes.committed, monotonic)
        return self

    def may_own(self, ttl: float, monotonic: float) -> bool:
        """Returns whether a node may own shards: not if it could not write for the length of a lease.

        Its heartbeats and its writes use different connections. A node whose heartbeats succeed but whose writes fail
        would keep its shards, and none of their timers would fire; another node may be able to write.
        """
        return self.failing_since is None or monotonic - self.failing_since < ttl


class Standing(StrEnum):
    JOINED = "joined"
    TRUSTED = "trusted"
    DOUBTFUL = "doubtful"
    LOST = "lost"


def standing(trust: Trust | None, refused: bool, monotonic: float) -> Standing:
    """Returns a node's state, from the `trust` of its last successful renewal and whether a renewal was `refused`."""
    if refused:
        return Standing.LOST
    if trust is None:
        return Standing.JOINED
    return Standing.TRUSTED if trust.holds(monotonic) else Standing.DOUBTFUL


class ClockState(StrEnum):
    """RIGHT, OFF by more than a second, or WRONG by more than a lease. A node decides nothing by a WRONG clock."""

    RIGHT = "right"
    OFF = "off"
    WRONG = "wrong"


class Reckoning(msgspec.Struct, frozen=True):
    """A reading of the registry's clock, and the time of that reading on the node's own monotonic clock.

    The registry read its clock between the request and the response. The middle of the two is off by at most half the
    round trip.
    """

    at: int
    monotonic: float
    unsure: float  # ms, either way

    @staticmethod
    def of(at: int, asked_at: float, answered_at: float) -> Reckoning:
        half = (answered_at - asked_at) / 2
        return Reckoning(at, asked_at + half, half * SECOND + 1)  # instants in a view are rounded

    def now(self, monotonic: float) -> int:
        """Returns what the registry's clock reads at that instant."""
        return self.at + round((monotonic - self.monotonic) * SECOND)

    def offset(self, now: int, monotonic: float) -> int:
        """Returns by how many ms a clock that reads `now` is ahead of the registry's; negative if it is behind."""
        return now - self.now(monotonic)


def better_reckoning(known: Reckoning | None, new: Reckoning, lease_seconds: float) -> Reckoning | None:
    """Returns the more precise of two reckonings. A slow response is less precise than an older one that came at once.

    One that is unsure by half a lease or more is ignored. The older one becomes less precise by a thousandth of its
    age: no two clocks run at the same rate, and the registry's may have been set.
    """
    if known is not None and new.unsure > known.unsure + (new.monotonic - known.monotonic) * SECOND * DRIFT:
        return known
    return new if new.unsure < lease_seconds * SECOND / 2 else known


def judge_clock(offset: float, unsure: float, lease_seconds: float, was_wrong: bool = False) -> ClockState:
    """Returns the state of a node's clock, by its offset from the registry's (ms), which is known to within `unsure`.

    Only a certain offset makes a clock WRONG. A clock that was WRONG must certainly be within half a lease to recover:
    a clock that drifts around the limit must not make shards move at each heartbeat.
    """
    lease = lease_seconds * SECOND
    certain = abs(offset) - unsure
    if certain > lease or (was_wrong and abs(offset) + unsure > lease / 2):
        return ClockState.WRONG
    return ClockState.OFF if certain > CLOCK_OFF else ClockState.RIGHT


def explain_clock(offset: float) -> str:
    """Returns a sentence for operators."""
    way = "ahead of" if offset > 0 else "behind"
    return f"this node's clock is {abs(offset) / SECOND:,.1f} s {way} the database's"


def doubt_clock(newest_at: int | None, now: int) -> str | None:
    """Returns a warning about the clock of a single node at its start, judged by its ledger; None if there is none.

    There is no other clock to compare with, but the instants in the ledger have passed.
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
    """Returns whether the clock may be so far ahead that retention would remove rows that are not old."""
    return newest_at is not None and now - newest_at > DAY


class Silence(msgspec.Struct, frozen=True):
    """For how long a worker sent no heartbeat, counting only time in which the watching node could have seen one."""

    beats: int
    seconds: float


def listen(known: Silence | None, beats: int, apart: float, within: float, lease: float) -> Silence:
    """Returns a worker's silence after another look at its number of heartbeats, `beats`.

    The last look and this one are at least `apart` and at most `within` seconds from each other. Workers send
    heartbeats through nodes. A node that was stopped, or could not reach its store, passed none on. So a late look
    counts for no more than one in time, and a look after a whole lease starts the count again.
    """
    if known is None or known.beats != beats or within > max(lease, 2 * MOST_COUNTED_SECONDS):
        return Silence(beats, 0)
    return Silence(beats, known.seconds + min(apart, MOST_COUNTED_SECONDS))


def empty_view(now: int = 0) -> View:
    """Returns the view of a cluster that no node has joined yet."""
    return View(now, (), (Holding(None, 0),) * SHARDS)
