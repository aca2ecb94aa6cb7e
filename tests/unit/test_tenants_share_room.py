"""Rules for the room of tenants, and for the removal of their history and logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.capacity import Capacity, Load, loads, may_add
from duetime.domain.errors import InsufficientStorage
from duetime.domain.history import NO_TENANT, Held, excess, to_trim
from duetime.domain.shares import fair_level, share_of

COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1000), min_size=1)


def filled_by(most: int, percent: int, *tenants: str) -> dict[str, int]:
    """Each tenant adds one job after the other until it is refused, then the next tenant does."""
    held = dict.fromkeys(tenants, 0)
    for tenant in tenants:
        while may_add(held[tenant], sum(held.values()), 1, most, percent):
            held[tenant] += 1
    return held


def test_a_single_tenant_fills_the_open_part_and_leaves_the_reserve() -> None:
    assert filled_by(1000, 75, "a") == {"a": 750}


def test_two_greedy_tenants_leave_room_for_a_third() -> None:
    held = filled_by(1000, 75, "a", "b", "c")
    assert held == {"a": 750, "b": 125, "c": 62}


def test_without_a_reserve_one_tenant_may_hold_all() -> None:
    assert filled_by(1000, 100, "a", "b") == {"a": 1000, "b": 0}


def test_a_small_percentage_is_a_cap_for_each_tenant() -> None:
    assert filled_by(1000, 10, *"abcdefghijkl") == dict.fromkeys("abcdefghi", 100) | {"j": 50, "k": 25, "l": 12}


def test_a_limit_of_a_few_jobs_lets_a_tenant_have_one() -> None:
    assert filled_by(1, 75, "a") == {"a": 1}


@given(COUNTS, st.integers(1, 5000), st.integers(1, 100), st.sampled_from("abcdefgh"), st.integers(1, 500))
def test_admitted_jobs_never_exceed_the_limit_or_the_tenants_share(
    held: dict[str, int], most: int, percent: int, tenant: str, more: int
) -> None:
    own, total = held.get(tenant, 0), sum(held.values())
    if may_add(own, total, more, most, percent):
        assert total + more <= most
        assert own + more <= max(1, most * percent // 100)


@given(st.integers(8, 5000), st.integers(1, 99), st.integers(1, 6))
def test_the_next_tenant_finds_half_of_the_free_room_after_any_number_of_greedy_tenants(
    most: int, percent: int, greedy: int
) -> None:
    held = filled_by(most, percent, *(f"greedy-{number}" for number in range(greedy)))
    free = most - sum(held.values())
    for more in range(1, min(free // 2, most * percent // 100) + 1):
        assert may_add(0, most - free, more, most, percent)


def test_the_error_has_only_the_tenants_own_figures() -> None:
    capacity = Capacity(most_jobs=1000, tenant_percent=75)
    with pytest.raises(InsufficientStorage) as refused:
        capacity.check(Load(994, 0), Load(7, 0), 1, 0)
    error = refused.value
    assert (error.kind, error.current, error.limit, error.requested) == ("job_count", 7, 750, 1)
    assert "994" not in error.message
    assert "the server has no room left" in error.message


def test_jobs_are_summed_by_tenant() -> None:
    tenants, sizes = ["a", "b", "a"], [10, 20, 5]
    assert loads(tenants, sizes) == {"a": Load(2, 15), "b": Load(1, 20)}
    assert loads(tenants, sizes, -1) == {"a": Load(-2, -15), "b": Load(-1, -20)}
    assert loads(["a", "a"], [10, 5]) == {"a": Load(2, 15)}
    assert loads([], []) == {}


def test_health_is_degraded_before_the_first_tenant_is_refused() -> None:
    capacity = Capacity(most_jobs=1000, tenant_percent=75)
    assert not capacity.is_filling(Load(674, 0))
    assert capacity.is_filling(Load(675, 0))


@given(COUNTS, st.integers(0, 5000))
def test_the_level_fits_all_holders_and_cuts_none_below_the_equal_share(held: dict[str, int], capacity: int) -> None:
    level = fair_level(held.values(), capacity)
    kept = {tenant: min(size, level) for tenant, size in held.items()}
    assert sum(kept.values()) <= max(capacity, 0)
    if sum(held.values()) > capacity >= len(held):
        assert level >= share_of(capacity, len(held))
        assert sum(kept.values()) > capacity - len(held), "no more goes than has to"


def test_history_is_taken_from_the_largest_tenant() -> None:
    held = [Held("small", 10, 10), Held("large", 100, 100)]
    assert to_trim(held, 60, 500) == [("large", 50)]
    assert to_trim(held, 60, 20) == [("large", 20)]
    assert to_trim(held, 110, 500) == []


def test_equally_large_tenants_lose_equal_amounts() -> None:
    held = [Held("a", 100, 100), Held("b", 100, 100), Held("c", 4, 4)]
    assert to_trim(held, 104, 500) == [("a", 50), ("b", 50)]


def test_open_executions_of_one_tenant_remove_no_history_of_another() -> None:
    held = [Held("flood", 10_000, 0), Held("other", 50, 50)]
    assert to_trim(held, 100, 500) == []


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), min_size=1, max_size=8), st.integers(1, 2000))
def test_no_tenant_is_trimmed_below_its_equal_share(counts: list[tuple[int, int]], most: int) -> None:
    held = [Held(str(number), all_of, min(all_of, ended)) for number, (all_of, ended) in enumerate(counts)]
    for tenant, number in to_trim(held, most, 10_000):
        one = held[int(tenant)]
        assert 0 < number <= one.ended
        assert one.executions - number >= most // len(held)


def test_logs_of_removed_executions_are_pruned_first_and_then_those_of_the_largest_tenant() -> None:
    assert excess({NO_TENANT: 30, "a": 100, "b": 20}, 130) == {NO_TENANT: 20, "a": 0, "b": 0}
    assert excess({NO_TENANT: 30, "a": 100, "b": 20}, 60) == {NO_TENANT: 30, "a": 60, "b": 0}
