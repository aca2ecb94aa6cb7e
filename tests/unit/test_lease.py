"""Trust, standing, and the rebalancing rule by example. (From any view: tests/property/test_rebalance.py.)"""

from __future__ import annotations

import math

import pytest

from duetime.domain.ids import SHARDS
from duetime.domain.lease import (
    ALERTS,
    TIMER,
    ClockState,
    Holding,
    Member,
    Moves,
    Reckoning,
    Silence,
    Standing,
    Trust,
    View,
    Writes,
    Writing,
    alerts_owner,
    believed,
    better_reckoning,
    empty_view,
    explain_clock,
    explain_unwatched,
    judge_clock,
    listen,
    next_look_in,
    quotas_of,
    rebalance,
    runs_housekeeping,
    standing,
)


def cluster(*owners: int | None, timers: tuple[int, ...], others: tuple[int, ...] = (), epoch: int = 1) -> View:
    """Returns a view in which shard n belongs to owners[n]; the others are free."""
    shards = [Holding(owner, epoch) for owner in owners] + [Holding(None, 0)] * (SHARDS - len(owners))
    members = [Member(node, f"n{node}", frozenset({"timer"}), 5000) for node in timers]
    members += [Member(node, f"n{node}", frozenset({"api"}), 5000) for node in others]
    return View(0, tuple(sorted(members, key=lambda member: member.node)), tuple(shards))


def test_trust_ends_a_margin_before_the_lease_counted_from_the_sending():
    trust = Trust(sent_at=100.0, ttl=5.0, margin=1.0)
    assert trust.until == 104.0
    assert trust.holds(103.999)
    assert not trust.holds(104.0)


def test_a_lease_that_never_expires_is_trusted_for_ever():
    assert Trust(100.0, math.inf, 0.0).holds(1e12)


@pytest.mark.parametrize(
    ("trust", "refused", "at", "expected"),
    [
        (None, False, 0.0, Standing.JOINED),
        (Trust(0.0, 5.0, 1.0), False, 3.9, Standing.TRUSTED),
        (Trust(0.0, 5.0, 1.0), False, 4.0, Standing.DOUBTFUL),
        (Trust(0.0, 5.0, 1.0), False, 99.0, Standing.DOUBTFUL),
        (Trust(0.0, 5.0, 1.0), True, 3.9, Standing.LOST),
        (None, True, 0.0, Standing.LOST),
    ],
)
def test_the_standing_of_a_node_follows_from_the_view_and_its_trust(
    trust: Trust | None, refused: bool, at: float, expected: Standing
):
    assert standing(trust, refused, at) is expected


def test_the_first_node_takes_everything():
    assert rebalance(cluster(timers=(4,)), 4) == Moves({}, tuple(range(SHARDS)))


def test_a_node_without_the_timer_role_owns_nothing():
    view = cluster(4, 9, timers=(4,), others=(9,), epoch=3)
    moves = rebalance(view, 9)
    assert moves == Moves({1: 3}, ())
    assert quotas_of(view) == {4: SHARDS}


def test_without_a_living_timer_node_no_shard_moves():
    assert quotas_of(cluster(timers=(), others=(1,))) == {}
    assert rebalance(cluster(timers=(), others=(1,)), 1) == Moves({}, ())


def test_a_node_that_is_not_alive_in_the_view_gives_up_all():
    assert rebalance(cluster(5, 5, timers=(4,), epoch=2), 5) == Moves({0: 2, 1: 2}, ())


def test_nodes_release_their_surplus_for_a_new_node_highest_shards_first():
    view = cluster(*[1] * SHARDS, timers=(1, 2))
    assert rebalance(view, 1) == Moves(dict.fromkeys(range(32, 64), 1), ())
    assert rebalance(view, 2) == Moves({}, ())


def test_shards_of_a_dead_node_are_free():
    view = cluster(*[1, 9] * 32, timers=(1,))
    assert rebalance(view, 1).take == tuple(range(1, SHARDS, 2))


def test_nodes_with_the_same_view_take_different_shards():
    view = cluster(timers=(1, 2, 3))
    wanted = [rebalance(view, node).take for node in (1, 2, 3)]
    assert [len(take) for take in wanted] == [22, 21, 21]
    assert sorted(shard for take in wanted for shard in take) == list(range(SHARDS))


def test_the_owner_of_an_odd_shard_keeps_it():
    view = cluster(*[1] * 21, *[2] * 21, *[3] * 22, timers=(1, 2, 3))
    assert quotas_of(view) == {1: 21, 2: 21, 3: 22}
    assert all(rebalance(view, node) == Moves({}, ()) for node in (1, 2, 3))


def test_some_of_more_nodes_than_shards_own_none():
    assert sorted(quotas_of(cluster(timers=tuple(range(70)))).values()) == [0] * 6 + [1] * SHARDS


def test_a_shard_released_at_an_epoch_is_not_owned_at_that_epoch():
    view = cluster(1, 1, 1, timers=(1,), epoch=7)
    assert believed(view, 1, {}) == {0: 7, 1: 7, 2: 7}
    assert believed(view, 1, {1: 7, 2: 6}) == {0: 7, 2: 7}


def test_a_view_without_some_shards_has_them_free_at_their_epoch():
    view = cluster(1, 1, 2, timers=(1, 2), epoch=7)
    without = view.without(1, {1: 7, 2: 7})
    assert without.shards[:3] == (Holding(1, 7), Holding(None, 7), Holding(2, 7))
    assert (without.now, without.members) == (view.now, view.members)


def test_the_next_read_is_after_a_heartbeat_or_when_another_lease_expires():
    view = View(10_000, tuple(Member(node, "", frozenset(), at) for node, at in ((1, 10_100), (2, 14_000))), ())
    assert next_look_in(view, 1, 1000) == 1000  # its own expiry does not matter
    assert next_look_in(view, 2, 1000) == 110
    assert next_look_in(empty_view(), 2, 1000) == 1000


def test_the_owner_of_shard_0_runs_the_housekeeping():
    assert runs_housekeeping({0: 3, 5: 1})
    assert not runs_housekeeping({5: 1})
    assert not runs_housekeeping({})


def test_an_empty_view_has_all_shards_free_at_epoch_0():
    assert empty_view().shards == (Holding(None, 0),) * SHARDS


def test_silence_grows_with_each_read_without_a_new_heartbeat_and_ends_with_one():
    silence = listen(None, beats=7, apart=1, within=1, lease=5)
    assert silence == Silence(7, 0)
    silence = listen(silence, 7, apart=1, within=1.2, lease=5)
    assert silence == Silence(7, 1)
    assert listen(silence, 8, apart=1, within=1.2, lease=5) == Silence(8, 0)


@pytest.mark.parametrize(
    ("apart", "within", "lease", "expected"),
    [
        (4.9, 4.9, 5.0, 4.5),  # a late read counts once
        (5.1, 5.1, 5.0, 0.0),  # after a whole lease the count starts again
        (1.0, 60.0, 5.0, 0.0),  # also if the read itself took that long
        (1.0, 1.1, 0.5, 4.0),  # a lease shorter than the time between two reads
    ],
)
def test_time_in_which_a_node_was_suspended_does_not_count_as_silence(
    apart: float, within: float, lease: float, expected: float
):
    assert listen(Silence(7, 3.0), 7, apart, within, lease).seconds == expected


def test_the_registrys_time_belongs_to_the_middle_of_the_round_trip_and_advances_with_the_monotonic_clock():
    reckoning = Reckoning.of(at=1_000_000, asked_at=10.0, answered_at=10.5)
    assert reckoning == Reckoning(1_000_000, 10.25, 251.0)
    assert reckoning.now(10.25) == 1_000_000
    assert reckoning.now(15.25) == 1_005_000
    assert reckoning.offset(1_005_300, 15.25) == 300
    assert reckoning.offset(1_004_700, 15.25) == -300


@pytest.mark.parametrize(
    ("offset", "unsure", "was_wrong", "expected"),
    [
        (1000, 1, False, ClockState.RIGHT),
        (-1002, 1, False, ClockState.OFF),
        (1900, 1000, False, ClockState.RIGHT),  # it may be right: the response took two seconds
        (5000, 1, False, ClockState.OFF),
        (5002, 1, False, ClockState.WRONG),
        (-5002, 1, False, ClockState.WRONG),
        (6000, 1001, False, ClockState.OFF),
        (2499, 1, True, ClockState.OFF),  # right again, but too close to the limit
        (2600, 1, True, ClockState.WRONG),
        (0, 2600, True, ClockState.WRONG),  # not certain
        (0, 1, True, ClockState.RIGHT),
    ],
)
def test_a_clock_is_judged_by_its_certain_offset(offset: int, unsure: float, was_wrong: bool, expected: ClockState):
    assert judge_clock(offset, unsure, 5.0, was_wrong) is expected


def test_a_clock_that_is_off_is_reported_in_seconds():
    assert explain_clock(1250) == "this node's clock is 1.2 s ahead of the database's"
    assert explain_clock(-3_456_000_000) == "this node's clock is 3,456,000.0 s behind the database's"


@pytest.mark.parametrize(
    ("seconds_later", "unsure", "is_better"),
    [
        (1.0, 2.0, True),  # as precise as the older one, which has lost a ms of precision
        (1.0, 2.1, False),
        (1.0, 800.0, False),
        (2000.0, 800.0, True),
        (9000.0, 2600.0, False),  # longer than half a lease: it has no value, however old the other is
    ],
)
def test_the_registrys_time_is_taken_from_the_most_precise_response(
    seconds_later: float, unsure: float, is_better: bool
):
    known = Reckoning(1_000_000, 10.0, 1.0)
    new = Reckoning(1_000_000 + round(seconds_later * 1000), 10.0 + seconds_later, unsure)
    assert better_reckoning(known, new, 5.0) is (new if is_better else known)
    assert better_reckoning(None, new, 5.0) is (None if unsure > 2500 else new)


class TestANodeThatCannotWrite:
    def test_owns_shards_for_the_length_of_a_lease(self) -> None:
        writing = Writing().seen(Writes(7), 10.0).seen(Writes(7, "read-only"), 11.0).seen(Writes(7, "read-only"), 14.0)
        assert writing.may_own(5.0, 15.9)
        assert not writing.may_own(5.0, 16.0)

    def test_counts_from_the_last_successful_write(self) -> None:
        writing = Writing().seen(Writes(7, "read-only"), 11.0).seen(Writes(8, "read-only"), 15.0)
        assert writing.may_own(5.0, 19.9)
        assert not writing.may_own(5.0, 20.0)

    def test_owns_shards_again_after_a_write(self) -> None:
        writing = Writing().seen(Writes(7, "read-only"), 11.0).seen(Writes(8), 50.0)
        assert writing.may_own(5.0, 1000.0)

    def test_owns_all_shards_if_leases_never_expire(self) -> None:
        assert Writing().seen(Writes(7, "the disk is full"), 11.0).may_own(math.inf, 1e9)


def test_the_alerts_belong_to_the_living_node_with_the_role_that_has_been_alive_for_longest():
    members = (
        Member(3, "a", frozenset({TIMER}), 1), Member(5, "b", frozenset({ALERTS}), 1),
        Member(8, "c", frozenset({ALERTS, TIMER}), 1),
    )  # fmt: skip
    assert alerts_owner(View(0, members, ())) == 5
    assert alerts_owner(View(0, members[:1], ())) is None
    assert alerts_owner(None) is None
    assert explain_unwatched(View(0, members, ())) is None
    assert "role alerts" in (explain_unwatched(View(0, members[:1], ())) or "")
