"""Jobs that name their predecessors by id: the same as by key, for predecessors without one."""

from __future__ import annotations

import pytest

from contract.store.test_chains import after, awaited, begin, due_at, end, links
from duetime.domain import commands as c
from duetime.domain.errors import InvalidRequest
from duetime.domain.instants import LATEST
from duetime.domain.job import RetryPolicy
from duetime.ports.store import Store
from samples import NOW, TENANT, add_job, change_of, ended, finish, new_id, new_job, one, spec

ONCE = RetryPolicy(max_retries=0)


async def test_a_job_is_due_when_the_job_with_that_id_has_ended(store: Store, node: int):
    first = await add_job(store, spec("on_demand", retry_policy=ONCE))
    then = await add_job(store, after(first))
    assert (await store.list_links(then))[0].is_there
    await end(store, node, first, now=NOW + 5)
    assert await due_at(store, then) == NOW + 5


async def test_a_job_can_wait_for_keys_and_ids_together(store: Store, node: int):
    a, b = await add_job(store, awaited("a")), await add_job(store, awaited("b"))
    then = await add_job(store, after("a", b))
    await end(store, node, b)
    assert await links(store, then) == {"a": False, b: True}
    await end(store, node, a, now=NOW + 1)
    assert await due_at(store, then) == NOW + 1


async def test_an_id_without_a_job_is_refused(store: Store):
    unknown = new_id()
    refused = await one(store, change_of(await add_job(store, after("a")), after("a", unknown)))
    assert isinstance(refused, InvalidRequest)
    assert refused.errors[0].pointer == "/after"
    assert f"there is no job with the id '{unknown}'" in refused.message
    refused = await one(store, c.CreateJobs(NOW, (new_job(after(unknown)),)))
    assert isinstance(refused, InvalidRequest)
    assert f"there is no job with the id '{unknown}'" in refused.message


async def test_an_id_of_another_tenant_is_refused_like_an_unknown_id(store: Store):
    foreign = await add_job(store, awaited("a"), tenant="other")
    refused = await one(store, c.CreateJobs(NOW, (new_job(after(foreign)),)))
    assert isinstance(refused, InvalidRequest)
    assert f"there is no job with the id '{foreign}'" in refused.message


async def test_a_key_that_looks_like_an_id_is_a_key(store: Store, node: int):
    key = new_id()
    first = await add_job(store, awaited(key))
    then = await add_job(store, after(key))
    await end(store, node, first)
    assert await due_at(store, then) == NOW


async def test_a_key_that_equals_the_id_of_another_job_does_not_replace_that_job(store: Store, node: int):
    first = await add_job(store, spec("on_demand", retry_policy=ONCE))
    then = await add_job(store, after(first))
    impostor = await add_job(store, awaited(first))
    await end(store, node, impostor)
    assert await due_at(store, then) == LATEST
    await end(store, node, first)
    assert await due_at(store, then) == NOW


async def test_a_job_that_waits_for_a_purged_job_can_be_changed(store: Store, node: int):
    first = await add_job(store, spec("on_demand"))
    then = await add_job(store, after(first))
    while await one(store, c.PurgeJob(TENANT, first)):
        continue
    assert not (await store.list_links(then))[0].is_there
    assert await one(store, change_of(then, after(first, priority=9))) == 2


@pytest.mark.parametrize("has_key", [False, True])
async def test_a_loop_is_found_by_keys_and_by_ids(store: Store, has_key: bool):
    first = await add_job(store, awaited("a") if has_key else spec("on_demand"))
    then = await add_job(store, after(first, key="b"))
    name = "a" if has_key else first
    for back in ("b", then):
        refused = await one(store, change_of(first, after(back, key="a" if has_key else None)))
        assert isinstance(refused, InvalidRequest), back
        assert f"{name} → b → {name}" in refused.message
    own = await one(store, change_of(first, after(first, key="a" if has_key else None)))
    assert isinstance(own, InvalidRequest)
    assert f"{name} → {name}" in own.message
    assert await links(store, first) == {}


async def test_two_ends_in_one_page_start_a_job_that_waits_for_both_by_id(store: Store, node: int):
    a, b = [await add_job(store, spec("on_demand", retry_policy=ONCE)) for _ in range(2)]
    then = await add_job(store, after(a, b))
    claims = [await begin(store, node, job) for job in (a, b)]
    await finish(store, node, NOW + 3, *(ended(claim, now=NOW + 3) for claim in claims))
    assert await due_at(store, then) == NOW + 3
