"""Several nodes on one registry: leases expire, shards change owners, and a living node keeps its shards."""

from __future__ import annotations

import pytest

from contract.registry.worlds import TTL, World
from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.lease import Holding
from duetime.ports.registry import Registry

ALL = tuple(range(SHARDS))
TIMER = ("timer",)
STEP = 1.0  # more than a test itself takes


async def expire(world: World, *still_alive: tuple[Registry, int]) -> None:
    """Lets a ttl pass, in which only these nodes renew."""
    for _ in range(2):
        await world.pass_time(TTL / 2 + STEP)
        for registry, node in still_alive:
            await registry.renew(node)


async def test_all_nodes_have_the_same_view(registry: Registry, other: Registry):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", ("api", "worker"))
    mine, theirs = await registry.take(1, (0, 1)), await other.take(2, (2,))
    for view in (await registry.renew(1), await other.renew(2), await other.view()):
        assert [(member.node, member.name, member.roles) for member in view.members] == [
            (1, "a", frozenset(TIMER)), (2, "b", frozenset({"api", "worker"})),
        ]  # fmt: skip
        assert (view.held_by(1), view.held_by(2)) == (mine, theirs)


async def test_shards_of_a_living_owner_can_not_be_taken(registry: Registry, other: Registry):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    taken = await registry.take(1, (0, 1, 2))
    assert await other.take(2, (1, 2, 3)) == {3: 1}
    await other.release(2, taken)  # not its own
    assert (await other.view()).held_by(1) == taken


async def test_renewals_keep_a_lease_alive(registry: Registry, other: Registry, world: World):
    await registry.join(1, "a", TIMER)
    taken = await registry.take(1, ALL)
    await other.join(2, "b", TIMER)
    for _ in range(4):
        await expire(world, (registry, 1), (other, 2))
    assert await other.take(2, ALL) == {}
    assert (await registry.renew(1)).held_by(1) == taken


async def test_an_expired_lease_is_not_in_the_view_and_can_not_be_renewed(
    registry: Registry, other: Registry, world: World
):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    await expire(world, (other, 2))
    view = await other.view()
    assert [member.node for member in view.members] == [2]
    assert view.expired == (1,)
    assert (await other.renew(2)).expired == (1,)
    with pytest.raises(StaleWrite):
        await registry.renew(1)
    with pytest.raises(StaleWrite):
        await registry.join(1, "a", TIMER)


async def test_the_shards_of_an_expired_owner_are_taken_at_the_next_epoch(
    registry: Registry, other: Registry, world: World
):
    await registry.join(1, "a", TIMER)
    before = await registry.take(1, ALL)
    await other.join(2, "b", TIMER)
    await expire(world, (other, 2))
    assert (await other.view()).held_by(1) == before  # free, and not taken yet
    assert await other.take(2, (5, 6)) == {5: before[5] + 1, 6: before[6] + 1}
    view = await other.view()
    assert view.shards[5] == Holding(2, 2)
    assert view.shards[7] == Holding(1, 1)
    assert await other.take(2, ALL) == {shard: 2 for shard in ALL if shard not in (5, 6)}


async def test_an_expired_node_takes_nothing_and_can_not_release_shards_that_others_took(
    registry: Registry, other: Registry, world: World
):
    await registry.join(1, "a", TIMER)
    before = await registry.take(1, (0,))
    await other.join(2, "b", TIMER)
    await expire(world, (other, 2))
    assert await registry.take(1, ALL) == {}
    assert await other.take(2, (0,)) == {0: 2}
    await registry.release(1, before)
    await registry.leave(1)
    assert (await other.view()).shards[0] == Holding(2, 2)


async def test_the_shards_of_a_taker_that_expires_at_once_are_taken_at_the_next_epoch(
    registry: Registry, other: Registry, world: World
):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    assert await registry.take(1, (0,)) == {0: 1}
    await expire(world, (other, 2))
    assert await other.take(2, (0,)) == {0: 2}


async def test_a_node_that_left_is_replaced_at_once(registry: Registry, other: Registry):
    await registry.join(1, "a", TIMER)
    await registry.take(1, ALL)
    await other.join(2, "b", TIMER)
    await registry.leave(1)
    view = await other.renew(2)
    assert ([member.node for member in view.members], view.expired) == ([2], (1,))
    assert await other.take(2, ALL) == dict.fromkeys(ALL, 2)


async def test_a_restarted_node_fences_only_its_own_name(registry: Registry, other: Registry):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    await registry.take(1, (0,))
    theirs = await other.take(2, (1,))
    view = await registry.join(3, "a", TIMER)
    assert [member.node for member in view.members] == [2, 3]
    assert await registry.take(3, (0, 1)) == {0: 2}
    assert (await other.renew(2)).held_by(2) == theirs


async def test_the_epoch_of_a_shard_grows_only_with_a_take(registry: Registry, other: Registry, world: World):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    seen = [(await registry.take(1, (9,)))[9]]
    await registry.release(1, {9: 1})
    seen.append((await registry.take(1, (9,)))[9])
    await registry.release(1, {9: 1})  # late: it is at 2 by now
    assert await other.take(2, (9,)) == {}
    await expire(world, (other, 2))
    seen.append((await other.take(2, (9,)))[9])
    await other.leave(2)
    await registry.join(3, "a", TIMER)
    seen.append((await registry.take(3, (9,)))[9])
    assert seen == [1, 2, 3, 4]


async def test_a_shard_that_is_requested_twice_is_taken_once(registry: Registry):
    await registry.join(1, "a", TIMER)
    assert await registry.take(1, (0, 0, 1)) == {0: 1, 1: 1}
