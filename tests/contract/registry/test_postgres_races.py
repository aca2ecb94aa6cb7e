"""Concurrent calls in the database, at critical points. Each argument in the comments of postgres.sql has a test here.

A transaction of the test holds a row, so that the calls wait at a chosen point; then it releases the row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from contract.registry.worlds import PostgresWorld
from duetime.domain.errors import StaleWrite
from duetime.domain.ids import SHARDS
from duetime.domain.lease import Holding
from duetime.ports.registry import Registry
from duetime.registry.postgres import SQL
from patience import PATIENCE_SECONDS

ALL = tuple(range(SHARDS))
TIMER = ("timer",)
LAST = 99  # a node whose number is higher than all others
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def world(postgres: PostgresWorld) -> PostgresWorld:
    return postgres


@pytest.fixture
async def gate(world: PostgresWorld, registry: Registry) -> AsyncIterator[Any]:
    """A connection for the transaction of the test."""
    async with world.connection() as connection:
        yield connection


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 (the facts are the server's; it sends no event)
            await asyncio.sleep(0.005)  # between two checks, and not instead of one


async def until_waiting(world: PostgresWorld, count: int) -> None:
    """Waits until this many calls wait for a lock."""
    async with world.connection() as connection:
        await until(lambda: _is(connection, WAITING, count))


async def _is(connection: Any, sql: str, value: object) -> bool:
    return bool(await connection.fetchval(sql) == value)


async def test_concurrent_takes_of_two_nodes_do_not_overlap(
    world: PostgresWorld, registry: Registry, other: Registry, gate: Any
):
    await registry.join(1, "a", TIMER)
    await other.join(2, "b", TIMER)
    async with gate.transaction():
        await gate.execute("SELECT FROM shards WHERE shard = 63 FOR UPDATE")
        first = asyncio.create_task(registry.take(1, ALL[20:]))
        await until_waiting(world, 1)
        second = asyncio.create_task(other.take(2, ALL[:40]))
        await until_waiting(world, 2)
    assert await first == dict.fromkeys(ALL[20:], 1)
    assert await second == dict.fromkeys(ALL[:20], 1)
    view = await registry.view()
    assert view.shards == (Holding(2, 1),) * 20 + (Holding(1, 1),) * 44


async def test_a_shard_taken_since_the_snapshot_is_not_taken_again(world: PostgresWorld, registry: Registry, gate: Any):
    """The newer owner has joined since, too: in the old snapshot it is not alive, and must not count as dead."""
    await registry.join(1, "a", TIMER)
    async with gate.transaction():
        await gate.execute(SQL["join"], 2, "b", ["timer"], 5.0)
        await gate.execute(SQL["take"], 2, [0])
        taking = asyncio.create_task(registry.take(1, (0, 1)))
        await until_waiting(world, 1)
    assert await taking == {1: 1}
    assert (await registry.view()).shards[0] == Holding(2, 1)


async def test_a_renewal_in_time_keeps_its_shards_although_another_node_read_an_expired_lease(
    world: PostgresWorld, other: Registry, gate: Any
):
    # A renewal counts from its check, not from the end of its wait. The lease must last longer than that wait.
    owner = world.registry(ttl_seconds=60)
    await other.join(LAST, "b", TIMER)
    for node, seconds in enumerate((0.5, 2.0, 8.0, 32.0), start=1):
        brief = world.registry(ttl_seconds=seconds)
        await brief.join(node, "a", TIMER)
        await brief.stop()
        mine = await owner.take(node, (0, 1))
        async with gate.transaction():
            await gate.execute("SELECT FROM leases WHERE node = $1 FOR UPDATE", node)
            renewing = asyncio.create_task(owner.renew(node))
            if not await waits_in_time(gate, renewing):
                continue  # the busy machine took longer than that lease: repeat with a longer one
            expired = f"SELECT lapses_at <= clock_timestamp() FROM leases WHERE node = {node}"
            await until(lambda expired=expired: _is(gate, expired, True))
            taking = asyncio.create_task(other.take(LAST, ALL))  # reads an expired lease, and waits
            await until_waiting(world, 2)
        break
    view, taken = await renewing, await taking
    assert view.held_by(node) == mine
    assert sorted(taken) == list(ALL[2:])
    assert (await other.view()).held_by(node) == mine
    await owner.stop()


async def waits_in_time(gate: Any, renewing: asyncio.Task[Any]) -> bool:
    """Returns whether the renewal read a valid lease, and waits for the gate."""

    async def is_decided() -> bool:
        return renewing.done() or await _is(gate, WAITING, 1)

    await until(is_decided)
    if not renewing.done():
        return True
    assert isinstance(renewing.exception(), StaleWrite)
    return False


async def test_a_renewal_at_the_end_of_its_lease_is_refused(world: PostgresWorld, registry: Registry, gate: Any):
    await registry.join(1, "a", TIMER)
    await registry.take(1, ALL)
    async with gate.transaction():  # the same write as in `take`
        await gate.execute("UPDATE leases SET ended = true WHERE node = 1")
        await gate.execute("UPDATE shards SET owner = 2, epoch = epoch + 1")
        renewing = asyncio.create_task(registry.renew(1))
        await until_waiting(world, 1)
    with pytest.raises(StaleWrite):
        await renewing


async def test_a_node_whose_lease_is_being_ended_takes_nothing(world: PostgresWorld, registry: Registry, gate: Any):
    await registry.join(1, "a", TIMER)
    async with gate.transaction():
        await gate.execute("UPDATE leases SET ended = true WHERE node = 1")
        taking = asyncio.create_task(registry.take(1, ALL))
        await until_waiting(world, 1)
    assert await taking == {}
    assert (await registry.view()).shards == (Holding(None, 0),) * SHARDS


async def test_a_take_from_an_expired_node_does_not_end_its_replacement(
    world: PostgresWorld, registry: Registry, other: Registry, gate: Any
):
    await registry.join(1, "a", TIMER)
    await registry.take(1, (0,))
    await world.pass_time(6)
    await other.join(2, "b", TIMER)
    async with gate.transaction():
        await gate.execute(SQL["join"], 3, "a", ["timer"], 5.0)
        taking = asyncio.create_task(other.take(2, (0,)))
        await until_waiting(world, 1)
    await taking
    assert 3 in [member.node for member in (await registry.renew(3)).members]
    assert (await other.take(2, (0,))) | (await taking) == {0: 2}


async def test_a_renewal_does_not_wait_for_other_calls(world: PostgresWorld, registry: Registry, gate: Any):
    await registry.join(1, "a", TIMER)
    async with gate.transaction():
        await gate.execute(SQL["release"], 9, [0], [0])  # holds its place until the commit
        await registry.renew(1)


async def test_concurrent_takes_renewals_and_releases_never_deadlock(world: PostgresWorld):
    nodes = [world.registry() for _ in range(6)]
    await asyncio.gather(*(node.start() for node in nodes))
    await asyncio.gather(*(node.join(number, f"n{number}", TIMER) for number, node in enumerate(nodes)))
    epochs: dict[int, list[int]] = {shard: [] for shard in ALL}

    async def churn(number: int, node: Registry) -> None:
        wanted = ALL[number * 7 :] + ALL[: number * 7]
        for _ in range(8):
            taken = await node.take(number, wanted)
            for shard, epoch in taken.items():
                epochs[shard].append(epoch)
            assert (await node.renew(number)).held_by(number) == taken
            await node.release(number, taken)

    await asyncio.gather(*(churn(number, node) for number, node in enumerate(nodes)))
    # Each take of a shard has its own epoch, and none is skipped.
    assert all(sorted(seen) == list(range(1, len(seen) + 1)) for seen in epochs.values())
    await asyncio.gather(*(node.stop() for node in nodes))
