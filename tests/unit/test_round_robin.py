"""Round robin: a key waits for at most one item of each other key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.round_robin import RoundRobin


def taken(robin: RoundRobin[str]) -> list[str]:
    items = []
    while (item := robin.take()) is not None:
        items.append(item)
    return items


def test_an_empty_queue_returns_nothing():
    assert RoundRobin[str]().take() is None


def test_each_key_has_one_turn_before_any_has_the_next():
    robin = RoundRobin[str]()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        robin.add(item[0], item)
    assert taken(robin) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_a_new_key_waits_for_at_most_one_turn_of_each_other():
    robin = RoundRobin[str]()
    for number in range(1000):
        robin.add("a", f"a{number}")
    robin.take()
    robin.add("b", "b")
    assert [robin.take(), robin.take()] == ["a1", "b"]


@given(st.lists(st.sampled_from("abcde"), max_size=60))
def test_all_items_are_served_once_and_in_order_for_each_key(keys: list[str]):
    robin = RoundRobin[str]()
    items = [f"{key}{number}" for number, key in enumerate(keys)]
    for item in items:
        robin.add(item[0], item)
    order = taken(robin)
    assert sorted(order) == sorted(items)
    for key in set(keys):
        assert [item for item in order if item[0] == key] == [item for item in items if item[0] == key]
