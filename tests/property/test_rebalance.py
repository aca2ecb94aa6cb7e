"""The rebalancing rule from any view: it ends with even shares, and with no more moves than necessary."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.domain.ids import SHARDS
from duetime.domain.lease import Holding, Member, Moves, View, rebalance

DEAD = 1000
NODES = st.integers(1, 40)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Some nodes with and some without the timer role, and shards of these nodes, of dead nodes, and free ones."""
    timers = draw(st.sets(NODES, min_size=1, max_size=12))
    others = draw(st.sets(NODES, max_size=3)) - timers
    owners = st.sampled_from([None, DEAD, *sorted(timers | others)])
    # Few distinct owners in a row, too: a random list of 64 owners is already nearly even.
    runs = draw(st.lists(st.tuples(owners, st.integers(1, SHARDS)), min_size=1, max_size=20))
    shards = [Holding(owner, 3) for owner, count in runs for _ in range(count)][:SHARDS]
    shards += [Holding(draw(owners), 1)] * (SHARDS - len(shards))
    return View(0, members_of(timers, others), tuple(shards))


def members_of(timers: Iterable[int], others: Iterable[int] = ()) -> tuple[Member, ...]:
    members = [Member(node, f"n{node}", frozenset({"timer", "api"}), 1) for node in timers]
    members += [Member(node, f"n{node}", frozenset({"worker"}), 1) for node in others]
    return tuple(sorted(members, key=lambda member: member.node))


def nodes_of(view: View) -> list[int]:
    return [member.node for member in view.members]


def timers_of(view: View) -> list[int]:
    return [member.node for member in view.members if "timer" in member.roles]


def apply(view: View, node: int, moves: Moves) -> View:
    """Applies moves like a registry: a node releases only its own shards, and takes only free ones."""
    shards = list(view.shards)
    for shard, epoch in moves.give_up.items():
        assert shards[shard] == Holding(node, epoch)
        shards[shard] = Holding(None, epoch)
    for shard in moves.take:
        if shards[shard].owner not in nodes_of(view):
            shards[shard] = Holding(node, shards[shard].epoch + 1)
    return View(view.now, view.members, tuple(shards))


def one_after_the_other(view: View, rng: Random) -> tuple[View, int]:
    """A round of heartbeats, each with a fresh view. Returns the number of released shards, too."""
    given_up = 0
    for node in rng.sample(nodes_of(view), len(view.members)):
        moves = rebalance(view, node)
        given_up += len(moves.give_up)
        view = apply(view, node, moves)
    return view, given_up


def all_at_once(view: View, rng: Random) -> View:
    """A round in which all have the same view, and their calls arrive in any order."""
    decided = [(node, rebalance(view, node)) for node in nodes_of(view)]
    for node, moves in rng.sample(decided, len(decided)):
        view = apply(view, node, moves)
    return view


def is_even(view: View) -> bool:
    counts = [len(view.held_by(node)) for node in timers_of(view)]
    return sum(counts) == SHARDS and max(counts) - min(counts) <= 1


def fewest_given_up(view: View) -> int:
    """Counts differently from the rule: all shards above an even share, except the odd ones, which may stay."""
    held = [len(view.held_by(node)) for node in timers_of(view)]
    each, odd = divmod(SHARDS, len(held))
    above = sum(max(0, count - each) for count in held) - min(odd, sum(count > each for count in held))
    return above + sum(len(view.held_by(node)) for node in set(nodes_of(view)) - set(timers_of(view)))


@given(views(), st.randoms(use_true_random=False))
def test_two_rounds_of_heartbeats_in_any_order_make_shares_even(view: View, rng: Random):
    for _ in range(2):
        view, _ = one_after_the_other(view, rng)
    assert is_even(view)


@given(views(), st.randoms(use_true_random=False))
def test_three_rounds_on_the_same_view_make_shares_even(view: View, rng: Random):
    for _ in range(3):
        view = all_at_once(view, rng)
    assert is_even(view)


@given(views(), st.randoms(use_true_random=False))
def test_no_unneeded_shard_is_released(view: View, rng: Random):
    fewest, total = fewest_given_up(view), 0
    for _ in range(4):
        view, given_up = one_after_the_other(view, rng)
        total += given_up
    assert total == fewest


@given(views())
def test_no_shard_moves_when_shares_are_even(view: View):
    rng = Random(1)
    for _ in range(4):
        view, _ = one_after_the_other(view, rng)
    assert all(rebalance(view, node) == Moves({}, ()) for node in nodes_of(view))


@given(views())
def test_no_node_takes_a_shard_of_a_living_node_or_releases_one_of_another(view: View):
    for node in nodes_of(view):
        moves = rebalance(view, node)
        assert all(view.shards[shard].owner not in nodes_of(view) for shard in moves.take)
        assert moves.give_up.items() <= view.held_by(node).items()
        assert not (moves.give_up and moves.take)


@given(views())
def test_two_nodes_with_the_same_view_take_the_same_shard_only_if_too_few_are_free(view: View):
    wanted = [shard for node in nodes_of(view) for shard in rebalance(view, node).take]
    free = sum(holding.owner not in nodes_of(view) for holding in view.shards)
    if len(wanted) <= free:
        assert len(wanted) == len(set(wanted))
    else:
        assert len(set(wanted)) == free


@settings(max_examples=8)
@given(st.randoms(use_true_random=False))
def test_a_join_moves_one_share_and_a_leave_moves_the_shards_of_the_node(rng: Random):
    timers, view = {1}, View(0, members_of({1}), (Holding(None, 0),) * SHARDS)
    for number in range(2, 30):
        view, _ = settle(View(0, members_of(timers), view.shards), rng)
        if len(timers) > 1 and rng.random() < 0.5:
            timers.discard(rng.choice(sorted(timers)))
            view, given_up = settle(View(0, members_of(timers), view.shards), rng)
            assert given_up == 0
        else:
            timers.add(number)
            view, given_up = settle(View(0, members_of(timers), view.shards), rng)
            assert given_up == len(view.held_by(number)) == SHARDS // len(timers)


def settle(view: View, rng: Random) -> tuple[View, int]:
    total = 0
    for _ in range(2):
        view, given_up = one_after_the_other(view, rng)
        total += given_up
    assert is_even(view)
    return view, total
