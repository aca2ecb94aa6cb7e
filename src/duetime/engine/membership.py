"""Membership: renews this node's lease, and determines which shards the node owns right now.

It contains no rules (`domain.lease` has them) and fires nothing. Other services call `owned_now` before each action.
The call costs a comparison and relies on no background task: a process that was suspended notices at its first call.
The callbacks report changes: read the timers of gained shards, drop the timers of lost ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import structlog

from duetime.domain.errors import StaleWrite
from duetime.domain.instants import LATEST, SECOND
from duetime.domain.lease import (
    MARGIN_SHARE,
    OF_OWNERS,
    TIMER,
    ClockState,
    Moves,
    Reckoning,
    Standing,
    Trust,
    View,
    Writes,
    Writing,
    believed,
    better_reckoning,
    explain_clock,
    judge_clock,
    next_look_in,
    rebalance,
    standing,
)
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.registry import Registry

HEARTBEAT_SECONDS = 1.0
RETRY_SHARE = 0.25  # of a heartbeat: a heartbeat that failed, or got too few shards, is retried this soon

log = structlog.get_logger()


def _ignore(*_: object) -> None:
    return


class Membership(Service):
    """`writes()`: whether the last writes to the store succeeded.

    `on_gained(shards)` and `on_lost(shards)` get shard: epoch. `on_fenced()`: this node id can't be used any more.
    `on_trusted()`: the lease is trusted again. It is a separate callback: a node without shards gets no `on_gained`.
    `on_released()`: the registry has released shards that this node gave up, and another node may take them.

    Callbacks are called inside a turn, after `owned` has changed. They must neither wait nor raise.
    """

    def __init__(
        self, registry: Registry, clock: Clock, node: int, name: str, roles: Collection[str],
        heartbeat_seconds: float = HEARTBEAT_SECONDS, margin_seconds: float | None = None, *,
        writes: Callable[[], Writes] = Writes,
        on_gained: Callable[[Mapping[int, int]], None] = _ignore,
        on_lost: Callable[[Mapping[int, int]], None] = _ignore,
        on_fenced: Callable[[], None] = _ignore,
        on_trusted: Callable[[], None] = _ignore,
        on_released: Callable[[], None] = _ignore,
    ) -> None:  # fmt: skip
        self._trouble: str | None = None  # of the last heartbeat
        super().__init__("membership", clock)
        self._writes = writes
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._on_fenced = on_fenced
        self._on_trusted = on_trusted
        self._on_released = on_released
        self.view: View | None = None  # the latest; for the health page, and to list the living nodes
        self.node = node
        self._registry = registry
        self._name = name
        self._roles = frozenset(roles)
        self._beat = int(heartbeat_seconds * SECOND)
        self._retry = int(heartbeat_seconds * RETRY_SHARE * SECOND)
        ttl = registry.ttl_seconds
        self._margin = margin_seconds if margin_seconds is not None else 0 if math.isinf(ttl) else ttl * MARGIN_SHARE
        self._trust: Trust | None = None
        self._held: dict[int, int] = {}  # as of the last response; not valid without trust
        self._given_up: dict[int, int] = {}  # the last epoch at which each shard was given up
        self._registered_roles: frozenset[str] = frozenset()  # the roles that the registry has for this node
        self._reckoning: Reckoning | None = None  # the registry's time, as of the last response
        self._agreed: Reckoning | None = None  # the last time at which this node's clock was not wrong, by that clock
        self._clock_state = ClockState.RIGHT  # as of the last response
        self._fenced_or_left = False  # this node id will never own a shard again
        self._writing = Writing()
        self._may_own = True  # False while this node can't write

    # The health page reads `failure`. A failed heartbeat does not count as a failed turn: a service backs off after
    # failed turns, and a lease has no time for that.
    @property
    def failure(self) -> str | None:
        return self._trouble or self._withheld or self._failed

    @failure.setter
    def failure(self, failure: str | None) -> None:
        self._failed = failure

    @property
    def _withheld(self) -> str | None:
        if self._may_own:
            return None
        return f"this node owns no shards: its writes to the store have failed for too long: {self._writes().failure}"

    @property
    def standing(self) -> Standing:
        return standing(self._trust, self._fenced_or_left, self._clock.monotonic())

    def is_trusted(self) -> bool:
        """Returns whether `standing` is TRUSTED. It is cheap enough to be called before each request."""
        trust = self._trust
        return trust is not None and self._clock.monotonic() < trust.until and not self._fenced_or_left

    @property
    def owned(self) -> Mapping[int, int]:
        """Returns the shards that this node owns now, with their epochs."""
        return self.owned_now(self._clock.monotonic())

    def owned_now(self, monotonic: float) -> Mapping[int, int]:
        """Returns the shards that this node may act on at that monotonic time: none, once trust has ended."""
        is_trusted = standing(self._trust, self._fenced_or_left, monotonic) is Standing.TRUSTED
        return self._held if is_trusted and self.is_clock_right() else {}

    # Comparing the node's clock with the registry's. Between two responses the monotonic clock extrapolates the
    # registry's time, so a clock that was set is noticed at the next check, and not only at the next heartbeat.

    @property
    def clock_state(self) -> ClockState:
        return self._judge(self._clock.now(), self._clock.monotonic())

    @property
    def clock_offset(self) -> int | None:
        """Returns by how many ms this node's clock is ahead of the registry's; None if there is no other clock."""
        reckoning = self._reckoning
        return None if reckoning is None else reckoning.offset(self._clock.now(), self._clock.monotonic())

    def is_clock_right(self) -> bool:
        """Returns whether decisions may use this node's clock. If the registry has one: not before the comparison."""
        if self._reckoning is None:
            return math.isinf(self._registry.ttl_seconds)
        return self.clock_state is not ClockState.WRONG

    def correct(self, now: int, monotonic: float) -> int:
        """Returns the time to store. If the two clocks disagree, either may be wrong. Then it is the time at which they
        last agreed plus the time passed since; or the registry's time, if they never agreed."""
        if self._reckoning is None or self._judge(now, monotonic) is not ClockState.WRONG:
            return now
        return (self._agreed or self._reckoning).now(monotonic)

    def _judge(self, now: int, monotonic: float) -> ClockState:
        if self._reckoning is None:
            return ClockState.RIGHT
        offset, was_wrong = self._reckoning.offset(now, monotonic), self._clock_state is ClockState.WRONG
        return judge_clock(offset, self._reckoning.unsure, self._registry.ttl_seconds, was_wrong)

    def _compare_clocks(self, answered: Reckoning) -> None:
        reckoning = better_reckoning(self._reckoning, answered, self._registry.ttl_seconds)
        if reckoning is None:
            return
        now, monotonic = self._clock.now(), self._clock.monotonic()
        self._reckoning, before = reckoning, self._clock_state
        self._clock_state = state = self._judge(now, monotonic)
        if state is not ClockState.WRONG:
            self._agreed = Reckoning(now, monotonic, 0)
        if state is before:
            return
        what = explain_clock(reckoning.offset(now, monotonic))
        if state is ClockState.WRONG:
            log.error(f"{what}: it owns no shard and accepts no changes until the clock is right", node=self.node)
        elif state is ClockState.OFF:
            log.warning(f"{what}: let NTP (chrony, timesyncd) keep both", node=self.node)
        else:
            log.info("this node's clock is right again", node=self.node)

    def expired(self) -> Collection[int]:
        """Returns the nodes that have expired or left, by the latest view."""
        return () if self.view is None else self.view.expired

    async def run_once(self) -> int:
        """Sends a heartbeat: renews the lease, and acts on the view in the response."""
        if self._fenced_or_left:
            return LATEST
        try:
            view = await self._renew()
            self._look_at_writes()
            if self._registered_roles != self._wanted_roles() and not self._fenced_or_left:
                view = await self._renew()  # at once: other nodes must not leave shards to a node that takes none
            got_all = self._fenced_or_left or await self._rebalance(view)
        except StaleWrite as error:
            self.lose(error)
            return LATEST
        except Exception as error:  # noqa: BLE001 (whatever it was: the next beat must come in time)
            self._doubt(error)
            return self._clock.now() + self._retry
        self._trouble = None
        if math.isinf(self._registry.ttl_seconds):
            return LATEST  # the lease never expires, and there is no other node to move shards to
        return self._clock.now() + (next_look_in(view, self.node, self._beat) if got_all else self._retry)

    def lose(self, error: StaleWrite) -> None:
        """Ends this node id, because the registry or the store refused it. Either one is enough."""
        if not self._fenced_or_left:  # else it is leaving, and need not rejoin
            log.error(
                "this node was fenced: it must join again", node=self.node, name=self._name, error=error.message,
                advice="if this repeats, another node has the same name: give each its own NODE_NAME",
            )  # fmt: skip
            self._end()
            self._on_fenced()

    async def retire(self) -> None:
        """Begins a graceful stop: gives up all shards to other nodes. Keeps the lease for attempts that still run."""
        self._roles -= OF_OWNERS
        held = dict(self._held)
        self._given_up |= held
        self._become({})
        if not self._fenced_or_left and self._trust is not None:
            await self._registry.join(self.node, self._name, self._roles)
            self._registered_roles = self._roles
            await self._release(held)

    async def leave(self) -> None:
        """Ends a graceful stop: owns nothing any more, and leaves the registry. If that fails, the lease expires."""
        joined = not self._fenced_or_left
        self._end()
        await self.stop()
        if joined:
            try:
                await self._registry.leave(self.node)
            except Exception as error:  # noqa: BLE001 (a stop goes on)
                log.warning("could not leave: other nodes wait until the lease expires", error=_sentence(error))

    async def _renew(self) -> View:
        before, sent_at = self._trust, self._clock.monotonic()
        roles = self._wanted_roles()
        if before is None or self._registered_roles != roles:
            view = await self._registry.join(self.node, self._name, roles)
            self._registered_roles = roles
        else:
            view = await self._registry.renew(self.node)
        if not math.isinf(self._registry.ttl_seconds):
            self._compare_clocks(Reckoning.of(view.now, sent_at, self._clock.monotonic()))
        was_trusted = before is not None and before.holds(self._clock.monotonic())
        if not was_trusted:
            self._become({})  # services saw no shards meanwhile and dropped their timers: report them as gained again
        self._trust = Trust(sent_at, self._registry.ttl_seconds, self._margin)
        self.view = view
        self._become(believed(view, self.node, self._given_up))
        if not was_trusted:
            self._on_trusted()
        return view

    def _look_at_writes(self) -> None:
        """Drops the roles of owners while the store accepts no writes of this node: other nodes take its shards."""
        now, may_own = self._clock.monotonic(), self._may_own
        self._writing = self._writing.seen(self._writes(), now)
        self._may_own = self._writing.may_own(self._registry.ttl_seconds, now)
        if self._may_own is not may_own and TIMER in self._roles and not self._fenced_or_left:
            log.warning(
                "writes succeed again" if self._may_own else "the store accepts no writes: shards are given up",
                node=self.node, failure=self._writes().failure,
            )  # fmt: skip

    async def _rebalance(self, view: View) -> bool:
        """Gives up and takes shards. Returns False if another node took a wanted one: then it is tried again soon."""
        # Shards that were given up, and that the registry still shows as this node's: the release was lost.
        again = {shard: epoch for shard, epoch in view.held_by(self.node).items() if shard not in self._held}
        is_timer = TIMER in self._wanted_roles()
        moves = rebalance(view.without(self.node, again), self.node) if is_timer else Moves(self._held, ())
        if give_up := again | moves.give_up:
            self._given_up |= give_up
            self._become({shard: epoch for shard, epoch in self._held.items() if shard not in give_up})
            await self._release(give_up)
        if not moves.take:
            return True
        taken = await self._registry.take(self.node, moves.take)
        if self.standing is Standing.TRUSTED:  # else the next view shows whether they were taken in time
            self._become(self._held | taken)
        return len(taken) == len(moves.take)

    def _wanted_roles(self) -> frozenset[str]:
        may_decide = self._may_own and self._clock_state is not ClockState.WRONG
        return self._roles if may_decide else self._roles - OF_OWNERS

    async def _release(self, shards: Mapping[int, int]) -> None:
        await self._registry.release(self.node, shards)
        if shards:
            self._on_released()

    def _become(self, held: dict[int, int]) -> None:
        held = {} if self._fenced_or_left else held  # the response may arrive after the end
        before, self._held = self._held, held
        lost = {shard: epoch for shard, epoch in before.items() if held.get(shard) != epoch}
        gained = {shard: epoch for shard, epoch in held.items() if before.get(shard) != epoch}
        if lost:
            if not math.isinf(self._registry.ttl_seconds):
                log.info("shards were given up or lost", node=self.node, count=len(lost), left=len(held))
            self._on_lost(lost)
        if gained:
            if not math.isinf(self._registry.ttl_seconds):  # a single node always owns all shards: no log line
                log.info("shards were gained", node=self.node, count=len(gained), owned=len(held))
            self._on_gained(gained)

    def _doubt(self, error: Exception) -> None:
        trouble = _sentence(error)
        if self._trouble is None:
            log.warning("a heartbeat failed and will be sent again", node=self.node, error=trouble)
        self._trouble = trouble
        if self._held and self.standing is Standing.DOUBTFUL:
            log.error("the lease is in doubt: nothing fires until it is renewed", node=self.node, error=trouble)
            self._become({})

    def _end(self) -> None:
        self._fenced_or_left = True
        self._become({})


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
