"""Shards and their owners: only the current owner can fire, and writes of earlier owners are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.errors import StaleEpoch, StaleWrite
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import HOUR, MINUTE
from duetime.domain.plan import DueTimer, Place
from duetime.ports.store import Store
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    decide,
    due_timers,
    ended,
    executions_of,
    finish,
    fire,
    job_of,
    new_job,
    one,
    spec,
)
from snapshot import recount, snapshot, totals

DUE = NOW + MINUTE
LATER = NOW + HOUR


async def jobs_in_many_shards(store: Store, count: int = 40) -> list[str]:
    """Their due instants have ties, and their order differs from that of their shards."""
    return [await add_job(store, due_at=DUE + (n * 7 % 5) * 1000) for n in range(count)]


def fenced_fire(node: int, timers: list[DueTimer], *epochs: tuple[int, int], **fields: Any) -> c.Fire:
    page = decide(timers, DUE + MINUTE)
    command = c.Fire(node, DUE, True, tuple(page.moves), tuple(page.executions), tuple(page.skips), epochs)
    return msgspec.structs.replace(command, **fields)


# Due timers


@pytest.mark.parametrize("shards", [range(0, 64, 2), range(3), range(64), range(0)], ids=str)
async def test_only_timers_of_the_requested_shards_are_due(store: Store, shards: range):
    await jobs_in_many_shards(store)
    everything = await store.list_due_timers(LATER, 100)
    mine = await store.list_due_timers(LATER, 100, shards=tuple(shards))
    assert mine == [timer for timer in everything if shard_of(timer.job_id) in shards]
    assert len(everything) == 40


@pytest.mark.parametrize("limit", [1, 7])
async def test_all_pages_of_the_requested_shards_are_all_of_their_timers(store: Store, limit: int):
    await jobs_in_many_shards(store)
    shards = tuple(range(1, 64, 2))
    expected = await store.list_due_timers(LATER, 100, shards=shards)
    assert [timer.place for timer in expected] == sorted(timer.place for timer in expected)
    seen: list[DueTimer] = []
    while page := await store.list_due_timers(LATER, limit, seen[-1].place if seen else None, shards):
        assert len(page) <= limit
        seen += page
    assert seen == expected


def job_in_shard(shard: int, number: int) -> str:
    return make_id(NOW, ((number << 6 | shard) << 4).to_bytes(10, "big"))


async def test_a_crowded_shard_is_read_in_order(store: Store):
    ids = [job_in_shard(5, number) for number in range(60)] + [job_in_shard(shard, 1) for shard in range(6, 20)]
    jobs = tuple(new_job(job_id=job_id, due_at=DUE + n * 7 % 50) for n, job_id in enumerate(ids))
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    expected = sorted((job.due_at, job.tenant, job.job_id) for job in jobs)
    for shards in (tuple(range(64)), None):
        seen: list[Place] = []
        while page := await store.list_due_timers(LATER, 40, seen[-1] if seen else None, shards):
            assert len(page) <= 40
            seen += [timer.place for timer in page]
        assert seen == expected
    crowded = [timer.place for timer in await store.list_due_timers(LATER, 100, shards=(5,))]
    assert crowded == [place for place in expected if shard_of(place[-1]) == 5]


async def test_the_earliest_due_instant_of_some_shards_is_returned(store: Store):
    jobs = await jobs_in_many_shards(store, 20)
    due = {job_id: (await job_of(store, job_id)).due_at for job_id in jobs}
    for shards in ((shard_of(jobs[1]),), tuple({shard_of(jobs[2]), shard_of(jobs[3])})):
        expected = min(at for job_id, at in due.items() if at is not None and shard_of(job_id) in shards)
        assert await store.next_due_at(shards) == expected
    assert await store.next_due_at(tuple(set(range(64)) - {shard_of(job_id) for job_id in jobs})) is None
    assert await store.next_due_at(()) is None


# Fence and fire


async def test_an_owner_that_has_fenced_its_shard_can_fire(store: Store, node: int):
    job_id = await add_job(store)
    shard = shard_of(job_id)
    assert await one(store, c.FenceShards(node, ((shard, 3), (shard + 64, 1)))) is None
    assert await one(store, fenced_fire(node, await due_timers(store, DUE), (shard, 3))) == c.Fired()
    assert len(await executions_of(store, job_id)) == 1


@pytest.mark.parametrize("epoch", [1, 2, 4])
async def test_a_fire_of_another_epoch_is_refused_and_changes_nothing(store: Store, node: int, epoch: int):
    mine, theirs = await add_job(store), await add_job(store)
    shards = (shard_of(mine), shard_of(theirs))
    await one(store, c.FenceShards(node, tuple((shard, 3) for shard in shards)))
    before = await snapshot(store)
    command = fenced_fire(node, await due_timers(store, DUE), (shards[0], 3), (shards[1], epoch))
    refused = await one(store, command)
    assert isinstance(refused, StaleEpoch)
    assert (refused.shard, refused.epoch, refused.stored) == (shards[1], epoch, 3)
    assert all(str(number) in refused.message for number in (shards[1], epoch, 3))
    assert await snapshot(store) == before


async def test_a_fire_for_a_shard_that_was_never_fenced_is_refused(store: Store, node: int):
    job_id = await add_job(store)
    refused = await one(store, fenced_fire(node, await due_timers(store, DUE), (shard_of(job_id), 1)))
    assert isinstance(refused, StaleEpoch)
    assert refused.stored == 0


async def test_a_fire_that_names_no_epochs_is_not_checked(store: Store, node: int):
    job_id = await add_job(store)
    await one(store, c.FenceShards(node, ((shard_of(job_id), 9),)))
    assert await one(store, fenced_fire(node, await due_timers(store, DUE))) == c.Fired()


async def test_fires_of_an_earlier_owner_are_refused_after_a_later_one_has_fenced(store: Store, node: int):
    job_id = await add_job(store)
    shard = shard_of(job_id)
    await one(store, c.FenceShards(node, ((shard, 1),)))
    timers = await due_timers(store, DUE)
    successor = await one(store, c.StartNode(NOW, "node-2"))
    assert await one(store, c.FenceShards(successor, ((shard, 2),))) is None
    assert isinstance(await one(store, fenced_fire(node, timers, (shard, 1))), StaleEpoch)
    assert await one(store, fenced_fire(successor, timers, (shard, 2))) == c.Fired()


async def test_an_earlier_epoch_cannot_be_fenced_and_none_of_the_others_is(store: Store, node: int):
    await one(store, c.FenceShards(node, ((1, 5), (2, 1))))
    refused = await one(store, c.FenceShards(node, ((2, 2), (1, 4), (3, 1))))
    assert isinstance(refused, StaleEpoch)
    assert (refused.shard, refused.epoch, refused.stored) == (1, 4, 5)
    for shard, epoch in ((1, 5), (2, 1)):
        assert await one(store, c.Fire(node, NOW, True, (), (), (), ((shard, epoch),))) == c.Fired()
    assert isinstance(await one(store, c.Fire(node, NOW, True, (), (), (), ((3, 1),))), StaleEpoch)


async def test_a_shard_can_be_fenced_again_at_the_same_epoch_only_by_its_owner(store: Store, node: int):
    other = await one(store, c.StartNode(NOW, "node-2"))
    assert [await one(store, c.FenceShards(node, ((1, 5),))) for _ in range(2)] == [None, None]
    assert isinstance(await one(store, c.FenceShards(other, ((1, 5),))), StaleEpoch)
    assert await one(store, c.FenceShards(other, ((1, 6),))) is None


async def test_a_fenced_node_may_not_fence_shards(store: Store, node: int):
    await one(store, c.StopNode(NOW, node))
    assert isinstance(await one(store, c.FenceShards(node, ((1, 1),))), StaleWrite)
    assert isinstance(await one(store, c.FenceShards(999, ((1, 1),))), StaleWrite)


# Dead nodes


async def test_a_fenced_node_may_not_write_and_its_claims_have_expired(store: Store, node: int):
    await add_job(store, spec("immediate"))
    _, (claim,) = await fire(store, node, NOW)
    other = await one(store, c.StartNode(NOW, "node-2"))
    gone = await one(store, c.StartNode(NOW, "node-3"))
    assert await store.list_expired_claims(other, 10) == []
    assert await one(store, c.FenceNodes(LATER, (node, gone, 999))) == [node, gone]
    for fenced_node in (node, gone):
        assert isinstance(await one(store, c.ClaimExecutions(fenced_node, LATER, 1, (TENANT,))), StaleWrite)
        assert isinstance(await one(store, c.Fire(fenced_node, LATER, True, (), ())), StaleWrite)
    assert await store.list_expired_claims(other, 10) == [claim]
    assert await one(store, c.ClaimExecutions(other, LATER, 1, (TENANT,))) == []


async def test_the_result_of_a_fenced_node_counts_until_its_execution_is_claimed_again(store: Store, node: int):
    job_ids = [await add_job(store, spec("immediate")) for _ in range(2)]
    _, claims = await fire(store, node, NOW)
    other = await one(store, c.StartNode(NOW, "node-2"))
    await one(store, c.FenceNodes(NOW, (node,)))
    first, second = sorted(claims, key=lambda claim: job_ids.index(claim.job_id))
    assert await finish(store, node, NOW, ended(first)) == []
    await one(store, c.Release(other, NOW, (second,)))
    assert len(await claim_waiting(store, other, NOW)) == 1
    assert await finish(store, node, NOW, ended(second)) == [second.execution_id]
    assert await totals(store) == await recount(store)


async def test_a_second_fence_of_a_node_changes_nothing(store: Store, node: int):
    await add_execution(store, await add_job(store))
    await claim_waiting(store, node, NOW)
    await one(store, c.FenceNodes(NOW, (node,)))
    before = await snapshot(store)
    assert await one(store, c.FenceNodes(LATER, (node,))) == []
    assert await one(store, c.FenceNodes(LATER, ())) == []
    assert await snapshot(store) == before
