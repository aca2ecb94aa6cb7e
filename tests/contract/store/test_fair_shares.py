"""Shares by tenant: waiting executions and due timers of one tenant do not delay another."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.instants import HOUR, MINUTE
from duetime.domain.plan import DueTimer
from duetime.ports.store import Store
from duetime.store.postgres import store as postgres_store
from duetime.store.sqlite import store as sqlite_store
from samples import NOW, add_execution, add_job, new_job, one, spec

FULL = "https://full.example/x"


async def waiting(store: Store, tenant: str, count: int, at: int = NOW, **fields: object) -> list[str]:
    job_id = await add_job(store, spec(**fields), tenant=tenant)
    return [await add_execution(store, job_id, at - n, tenant) for n in range(count)]


async def claimed_of(store: Store, node: int, limit: int, *tenants: str, **fields: object) -> list[str]:
    claims = await one(store, c.ClaimExecutions(node, NOW, limit, tenants, **fields))
    assert isinstance(claims, list), claims
    return [claim.tenant for claim in claims]


# Claims


async def test_a_claim_takes_at_most_the_same_number_from_each_tenant(store: Store, node: int):
    await waiting(store, "many", 20, NOW - HOUR, priority=9)
    await waiting(store, "few", 2, priority=0)
    await waiting(store, "some", 5)
    found = await claimed_of(store, node, 12, "few", "many", "some")
    assert {tenant: found.count(tenant) for tenant in found} == {"few": 2, "many": 4, "some": 4}


async def test_a_claim_takes_everything_from_a_single_tenant(store: Store, node: int):
    await waiting(store, "many", 20)
    assert await claimed_of(store, node, 15, "many") == ["many"] * 15


async def test_a_claim_of_many_tenants_stays_within_its_limit(store: Store, node: int):
    for tenant in "abcde":
        await waiting(store, tenant, 2)
    assert len(await claimed_of(store, node, 3, *"abcde")) == 3


async def test_a_claim_takes_nothing_from_a_tenant_that_is_not_named(store: Store, node: int):
    await waiting(store, "named", 1)
    await waiting(store, "other", 1)
    assert await claimed_of(store, node, 10, "named", "nobody") == ["named"]
    assert await claimed_of(store, node, 10) == []


async def test_a_full_endpoint_of_one_tenant_is_not_full_for_another(store: Store, node: int):
    for tenant in ("a", "b"):
        await waiting(store, tenant, 3, url=FULL)
    await waiting(store, "a", 2)
    full = (("a", endpoint_of_url(FULL)),)
    found = await claimed_of(store, node, 100, "a", "b", full_endpoints=full)
    assert {tenant: found.count(tenant) for tenant in found} == {"a": 2, "b": 3}


async def test_tenants_with_due_executions_are_listed_in_pages(store: Store, node: int):
    for tenant in ("c", "a", "b"):
        await waiting(store, tenant, 3)
    await add_execution(store, await add_job(store, tenant="later"), NOW + HOUR, "later")
    await add_job(store, tenant="nothing")
    await waiting(store, "running", 1)
    await claimed_of(store, node, 10, "running")
    assert await store.list_waiting_tenants(NOW, "", 10) == ["a", "b", "c"]
    assert await store.list_waiting_tenants(NOW, "", 2) == ["a", "b"]
    assert await store.list_waiting_tenants(NOW, "b", 2) == ["c"]
    assert await store.list_waiting_tenants(NOW + HOUR, "b", 2) == ["c", "later"]
    assert await store.list_waiting_tenants(NOW + HOUR, "later", 2) == []


# Timers


async def create(store: Store, tenant: str, *instants: int) -> list[str]:
    jobs = tuple(new_job(spec("every 1h"), tenant=tenant, due_at=at) for at in instants)
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    return [job.job_id for job in jobs]


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_timers_except_those_of_a_tenant_are_all_timers_of_the_others_in_order(store: Store, limit: int):
    await create(store, "many", *[NOW] * 30, *range(NOW, NOW + 10))
    for tenant in ("a", "other", "zebra"):
        await create(store, tenant, NOW, NOW, NOW + 4, NOW + MINUTE)
    everything = await store.list_due_timers(NOW + 100, 1000)
    seen: list[DueTimer] = []
    while page := await store.list_due_timers(NOW + 100, limit, seen[-1].place if seen else None, None, ("many",)):
        assert len(page) <= limit
        seen += page
    assert seen == [timer for timer in everything if timer.tenant != "many"]
    assert len(seen) == 9


async def test_timers_of_others_are_found_behind_any_number_of_timers_of_one_tenant(store: Store, monkeypatch: Any):
    for module in (sqlite_store, postgres_store):
        monkeypatch.setattr(module, "MOST_PASSED_OVER", 3)
    await create(store, "many", *range(NOW, NOW + 200))
    await create(store, "other", NOW + 500, NOW + 500, NOW + 501)
    found = await store.list_due_timers(NOW + 1000, 2, None, None, ("many",))
    assert [timer.tenant for timer in found] == ["other"] * 2
    (last,) = await store.list_due_timers(NOW + 1000, 2, found[-1].place, None, ("many",))
    assert last.due_at == NOW + 501
    assert await store.list_due_timers(NOW + 1000, 2, last.place, None, ("many",)) == []


async def test_timers_can_be_read_except_those_of_several_tenants_in_some_shards(store: Store):
    for tenant in ("a", "b", "c"):
        await create(store, tenant, *[NOW] * 40)
    shards = tuple(range(0, 64, 3))
    mine = await store.list_due_timers(NOW, 1000, None, shards)
    beside = await store.list_due_timers(NOW, 1000, None, shards, ("a", "c"))
    assert beside == [timer for timer in mine if timer.tenant == "b"]
    assert beside
