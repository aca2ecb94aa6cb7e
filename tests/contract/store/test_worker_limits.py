"""A tenant has a bounded number of workers, of bytes of their names, and of joins. Lists have pages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain import worker_limits
from duetime.domain.errors import DuetimeError, QuotaExceeded, RateLimited
from duetime.domain.instants import HOUR, SECOND
from duetime.domain.worker_limits import WorkerLimits
from duetime.ports.store import Store
from samples import NOW, TENANT, one

LONG = tuple(f"{number:04d}".ljust(255, "e") for number in range(1000))  # a quarter of a megabyte
FEW = WorkerLimits(workers=3)


def join(
    tenant: str = TENANT, functions: tuple[str, ...] = ("f",), limits: WorkerLimits | None = FEW, now: int = NOW
) -> c.JoinWorker:
    return c.JoinWorker(now, tenant, "ann", "host:1", functions, 1, limits)


async def hire(store: Store, *args: Any, **fields: Any) -> int:
    """Returns the id of a new worker, or raises its refusal."""
    answer = await one(store, join(*args, **fields))
    if isinstance(answer, DuetimeError):
        raise answer
    return int(answer)


async def ids(store: Store, tenant: str) -> list[int]:
    return [record.worker_id for record in await store.list_workers(tenant, 100)]


async def test_the_workers_of_a_tenant_are_limited(store: Store):
    joined = [await hire(store) for _ in range(3)]
    with pytest.raises(RateLimited, match=r"3 workers, which is the most.*TENANT_WORKERS_LIMIT"):
        await hire(store)
    assert await ids(store, TENANT) == joined[::-1]
    other = await hire(store, "other")
    await one(store, c.FenceNodes(NOW, (joined[0],)))
    again = await hire(store)
    assert await ids(store, TENANT) == [again, *joined[:0:-1]]
    assert await ids(store, "other") == [other]


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_joins_stay_within_the_limit(store: Store):
    answers = await asyncio.gather(*(store.apply([join(), join("other")]) for _ in range(8)))
    for place, tenant in enumerate((TENANT, "other")):
        refused = [pair[place] for pair in answers if isinstance(pair[place], Exception)]
        assert len(refused) == 5
        assert {type(error) for error in refused} == {RateLimited}
        assert len(await ids(store, tenant)) == 3


async def test_names_of_functions_have_a_bounded_size(store: Store):
    limits = WorkerLimits(workers=100, name_bytes=600_000)
    for _ in range(2):
        await hire(store, functions=LONG, limits=limits)
    with pytest.raises(RateLimited, match=r"have 516,002 of 600,000 bytes.*shorter names"):
        await hire(store, functions=LONG, limits=limits)
    assert len(await ids(store, TENANT)) == 2
    await hire(store, limits=limits)
    await hire(store, "other", LONG, limits)


async def test_joins_have_a_quota_and_long_names_count_towards_it(store: Store):
    limits = WorkerLimits(workers=1)  # two thousand joins an hour
    for _ in range(31):  # each counts as 64 joins
        await one(store, c.FenceNodes(NOW, (await hire(store, functions=LONG, limits=limits),)))
    with pytest.raises(QuotaExceeded, match="2,000 joins of workers an hour"):
        await hire(store, functions=LONG, limits=limits)
    await hire(store, "other", LONG, limits)
    worker = await hire(store, limits=limits, now=NOW + HOUR)
    assert await ids(store, TENANT) == [worker]


async def test_a_refused_join_uses_no_quota(store: Store):
    limits = WorkerLimits(workers=1)
    first = await hire(store, limits=limits)
    for _ in range(10):
        with pytest.raises(RateLimited):
            await hire(store, functions=LONG, limits=limits)
    await one(store, c.FenceNodes(NOW, (first,)))
    await hire(store, functions=LONG, limits=limits, now=NOW + SECOND)


async def test_workers_are_listed_in_pages(store: Store):
    joined = [await hire(store, limits=None) for _ in range(5)]
    await hire(store, "other", limits=None)
    first = await store.list_workers(TENANT, 2)
    assert [record.worker_id for record in first] == [joined[4], joined[3]]
    rest = await store.list_workers(TENANT, 10, first[-1].worker_id)
    assert [record.worker_id for record in rest] == [joined[2], joined[1], joined[0]]
    assert await store.list_workers(TENANT, 10, joined[0]) == []


async def test_a_page_of_workers_has_a_bounded_size(store: Store):
    joined = [await hire(store, functions=LONG, limits=None) for _ in range(9)]
    found: list[int] = []
    while page := await store.list_workers(TENANT, 100, found[-1] if found else None):
        size = sum(len(name) for record in page for name in record.functions)
        assert len(page) <= 5
        assert size < worker_limits.PAGE_BYTES + 260_000
        found += [record.worker_id for record in page]
    assert found == joined[::-1]


async def test_the_heartbeats_of_all_tenants_are_read_without_names(store: Store):
    first, second = [await hire(store, tenant, LONG, None) for tenant in (TENANT, "other")]
    await one(store, c.BeatWorkers(NOW, (second,)))
    assert await store.list_beats(0, 10) == [(first, 0), (second, 1)]
    assert await store.list_beats(0, 1) == [(first, 0)]
    assert await store.list_beats(first, 10) == [(second, 1)]
