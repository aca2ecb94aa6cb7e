"""Fair shares for any sequence of requests: a holder below its share is admitted, and the bounds hold."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.shares import FairCache, FairQueue, Holdings, share_of

TENANTS = st.sampled_from("abcde")


@given(st.integers(1, 12), st.lists(st.tuples(TENANTS, st.booleans()), max_size=200))
def test_a_holder_below_its_share_is_admitted_and_eviction_gains_nothing(
    capacity: int, steps: list[tuple[str, bool]]
) -> None:
    holdings, counts = Holdings(capacity), dict.fromkeys("abcde", 0)
    for tenant, leaves in steps:
        if leaves:
            if counts[tenant]:
                holdings.remove(tenant)
                counts[tenant] -= 1
            continue
        admission = holdings.ask(tenant)
        active = sum(count > 0 for holder, count in counts.items() if holder != tenant) + 1
        if counts[tenant] < capacity // active:
            assert admission.admitted
        if admission.evicted is not None:
            assert sum(counts.values()) == capacity
            assert counts[admission.evicted] == max(counts.values())
            assert counts[admission.evicted] - 1 >= counts[tenant] + 1
            holdings.remove(admission.evicted)
            counts[admission.evicted] -= 1
        if admission.admitted:
            holdings.add(tenant)
            counts[tenant] += 1
        assert {tenant: holdings.of(tenant) for tenant in counts} == counts
        assert holdings.total == sum(counts.values()) <= capacity
        assert not holdings.total or counts[holdings.largest()] == max(counts.values())


@given(st.integers(1, 12), st.lists(TENANTS, max_size=200))
def test_a_flood_of_one_holder_leaves_each_other_its_share_of_a_cache(capacity: int, adds: list[str]) -> None:
    cache, kept = FairCache[int](capacity), dict[int, str]()
    for key, tenant in enumerate(adds):
        dropped = cache.add(tenant, key)
        kept[key] = tenant
        if dropped is not None:
            mine = [held for held, holder in kept.items() if holder == kept[dropped]]
            assert dropped == mine[0], "the oldest of its holder"
            del kept[dropped]
        assert len(cache) == len(kept) <= capacity
        assert key in cache
        sizes = [list(kept.values()).count(holder) for holder in set(adds[: key + 1])]
        assert min(sizes) >= 1 or len(sizes) > capacity


@given(st.integers(1, 8), st.lists(st.tuples(TENANTS, st.booleans()), max_size=200))
def test_a_queue_wastes_no_place_and_keeps_no_tenant_below_its_share_waiting(
    capacity: int, steps: list[tuple[str, bool]]
) -> None:
    queue, most = FairQueue[int](capacity, most=1000), capacity * 1000
    begun, waiting = dict.fromkeys("abcde", 0), dict.fromkeys("abcde", 0)
    for key, (tenant, ends) in enumerate(steps):
        if ends and begun[tenant]:
            queue.end(tenant)
            begun[tenant] -= 1
        elif not ends:
            queue.wait(tenant, key)
            waiting[tenant] += 1
        for holder, _ in queue.begin():
            begun[holder] += 1
            waiting[holder] -= 1
        active = sum(bool(begun[holder] or waiting[holder]) for holder in begun)
        if any(waiting.values()):
            assert queue.begun >= capacity
            assert all(begun[holder] >= share_of(capacity, active) for holder in waiting if waiting[holder])
        most = math.ceil(capacity * (1 + sum(1 / rank for rank in range(1, 6)))) + 5
        assert queue.begun == sum(begun.values()) <= most
