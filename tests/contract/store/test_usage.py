"""What a store tells about itself: totals, commits, and how much of its room it uses."""

from __future__ import annotations

import asyncio

import msgspec

from duetime.domain import commands as c
from duetime.domain.states import State
from duetime.ports.store import Store
from samples import NOW, add_execution, add_job, claim_waiting, ended, finish, fire, new_job, one, spec


async def test_totals_are_over_all_tenants_and_name_those_with_the_most(store: Store, node: int) -> None:
    empty = await store.get_backlog(10, 10)
    assert (empty.executions, empty.waiting, empty.dead_letters) == ({}, [], 0)
    for tenant, number in (("a", 3), ("b", 1), ("c", 2)):
        for _ in range(number):
            job_id = await add_job(store, spec("on_demand"), tenant=tenant)
            await add_execution(store, job_id, tenant=tenant)
    totals = await store.get_backlog(2, 10)
    assert totals.executions == {State.QUEUED: 6}
    assert totals.waiting == [("a", State.QUEUED, 3), ("c", State.QUEUED, 2)]


async def test_dead_letters_are_counted_up_to_a_limit(store: Store, node: int) -> None:
    for _ in range(3):
        await add_execution(store, await add_job(store, spec("on_demand")))
    for claim in await claim_waiting(store, node, NOW):
        await finish(store, node, NOW, msgspec.structs.replace(ended(claim), state=State.FAILED, dead=True))
    assert (await store.get_backlog(10, 10)).dead_letters == 3
    assert (await store.get_backlog(10, 2)).dead_letters == 2


async def test_each_commit_is_told_with_its_commands(store: Store) -> None:
    commits: list[tuple[int, float]] = []
    store.on_commit(lambda commands, seconds: commits.append((commands, seconds)))
    await store.apply([c.CreateJobs(NOW, (new_job(spec("every 1m")),)), c.CancelJob(NOW, "acme", "0" * 32)])
    assert [commands for commands, _ in commits] == [2]
    assert 0 < commits[0][1] < 60


async def test_a_store_tells_how_much_of_its_room_it_uses(store: Store) -> None:
    idle = store.usage()
    assert (idle.waiting, idle.most_waiting) == (0, 20_000)
    assert {"engine", "people"} <= idle.pools.keys()
    reading = asyncio.ensure_future(store.next_due_at())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.usage().pools["engine"].busy == 1
    await reading
    assert store.usage().pools["engine"].busy == 0
    writing = [asyncio.ensure_future(one(store, c.CreateJobs(NOW, (new_job(spec()),)))) for _ in range(20)]
    await asyncio.sleep(0)
    assert 0 < store.usage().waiting <= 20
    await asyncio.gather(*writing)
    assert store.usage().waiting == 0


async def test_an_execution_that_overlaps_is_told_as_skipped(store: Store, node: int) -> None:
    job_id = await add_job(store, spec("every 1m", overlap="skip"))
    first, _ = await fire(store, node, NOW + 60_000, job_id)
    assert first.skipped == frozenset()
    second, claims = await fire(store, node, NOW + 120_000, job_id)
    assert len(second.skipped) == 1
    assert second.skipped == second.not_claimed
    assert not claims
