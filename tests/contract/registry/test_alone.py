"""The behaviour of any registry for one node, and for its successors."""

from __future__ import annotations

import pytest

from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.lease import Holding
from duetime.ports.registry import Registry

ALL = tuple(range(SHARDS))
ROLES = ("timer", "worker")


async def test_a_new_registry_has_no_living_node_and_no_owned_shard(alone: Registry):
    view = await alone.view()
    assert (view.members, view.expired) == ((), ())
    assert view.shards == (Holding(None, 0),) * SHARDS


async def test_a_join_returns_a_view_with_the_node(alone: Registry):
    view = await alone.join(7, "a", ROLES)
    (member,) = view.members
    assert (member.node, member.name, member.roles) == (7, "a", frozenset(ROLES))
    assert view.now < member.expires_at
    assert view.held_by(7) == {}


async def test_a_node_takes_free_shards_and_its_view_shows_them_as_owned(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, ALL)
    assert sorted(taken) == list(ALL)
    assert (await alone.renew(7)).held_by(7) == taken
    assert (await alone.view()).held_by(7) == taken


async def test_a_take_of_owned_shards_returns_nothing_and_changes_nothing(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, ALL)
    assert await alone.take(7, ALL) == {}
    assert (await alone.view()).held_by(7) == taken


async def test_a_take_of_no_shards_returns_nothing(alone: Registry):
    await alone.join(7, "a", ROLES)
    assert await alone.take(7, ()) == {}
    await alone.release(7, {})
    assert (await alone.view()).held_by(7) == {}


async def test_an_unknown_node_can_neither_renew_nor_take_nor_leave(alone: Registry):
    with pytest.raises(StaleWrite):
        await alone.renew(9)
    assert await alone.take(9, ALL) == {}
    await alone.leave(9)
    await alone.join(9, "a", ROLES)
    assert len(await alone.take(9, ALL)) == SHARDS


async def test_a_released_shard_is_free_and_keeps_its_epoch(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, ALL)
    await alone.release(7, {3: taken[3], 5: taken[5]})
    view = await alone.view()
    assert view.shards[3] == Holding(None, taken[3])
    assert sorted(view.held_by(7)) == [shard for shard in ALL if shard not in (3, 5)]


async def test_a_release_at_another_epoch_changes_nothing(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, (3,))
    await alone.release(7, {3: taken[3] - 1})
    await alone.release(7, {3: taken[3] + 1})
    assert (await alone.view()).held_by(7) == taken


async def test_a_leave_frees_all_shards_and_ends_the_lease(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, ALL)
    await alone.leave(7)
    await alone.leave(7)
    view = await alone.view()
    assert view.members == ()
    assert view.shards == tuple(Holding(None, taken[shard]) for shard in ALL)
    assert await alone.take(7, ALL) == {}
    for late in (alone.renew(7), alone.join(7, "a", ROLES)):
        with pytest.raises(StaleWrite):
            await late


async def test_a_second_join_of_a_living_node_is_a_renewal(alone: Registry):
    await alone.join(7, "a", ROLES)
    taken = await alone.take(7, (1, 2))
    view = await alone.join(7, "a", ROLES)
    assert view.held_by(7) == taken


async def test_a_restarted_node_fences_its_earlier_process_at_once(alone: Registry):
    await alone.join(7, "a", ROLES)
    before = await alone.take(7, ALL)
    view = await alone.join(8, "a", ROLES)
    assert [member.node for member in view.members] == [8]
    with pytest.raises(StaleWrite):
        await alone.renew(7)
    assert await alone.take(7, ALL) == {}
    after = await alone.take(8, ALL)
    assert sorted(after) == list(ALL)
    assert all(after[shard] > before[shard] for shard in ALL)


async def test_a_late_join_does_not_fence_its_successor(alone: Registry):
    await alone.join(8, "a", ROLES)
    taken = await alone.take(8, ALL)
    with pytest.raises(StaleWrite):
        await alone.join(7, "a", ROLES)
    assert (await alone.renew(8)).held_by(8) == taken


async def test_epochs_grow_from_process_to_process(alone: Registry):
    epochs = [0]
    for node in (3, 4, 9):
        await alone.join(node, "a", ROLES)
        epochs.append((await alone.take(node, (11,)))[11])
        if node == 4:
            await alone.leave(node)
    assert epochs == sorted(set(epochs))
