"""The number of requests that begin in one round of the event loop, and their addresses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.rounds import Rounds


def test_a_few_begin_at_once_and_the_rest_wait_for_the_next_round():
    rounds = Rounds[int](3)
    assert [rounds.offer("a", number) for number in range(5)] == [True, True, True, False, False]
    assert list(rounds.begin()) == [3, 4]
    assert rounds.offer("a", 5), "two of three have begun"
    assert not rounds.offer("a", 6)


def test_a_round_in_which_nothing_begins_ends_the_rounds():
    rounds = Rounds[int](3)
    assert rounds.offer("a", 0)
    assert list(rounds.begin()) == []
    assert rounds.is_idle


def test_an_address_with_one_request_waits_for_one_of_each_other_address():
    rounds = Rounds[str](2)
    for number in range(100):
        rounds.offer("many", f"many {number}")
    rounds.offer("one", "one")
    assert "one" in list(rounds.begin())


def test_a_later_request_does_not_overtake_waiting_ones():
    rounds = Rounds[int](2)
    for number in range(5):
        rounds.offer("a", number)
    assert list(rounds.begin()) == [2, 3]
    assert not rounds.offer("b", 9)


@given(st.lists(st.sampled_from("abc")), st.integers(1, 5))
def test_every_request_begins_once_and_no_round_is_too_large(addresses: list[str], most: int):
    rounds = Rounds[int](most)
    begun = [number for number, address in enumerate(addresses) if rounds.offer(address, number)]
    assert len(begun) == min(most, len(addresses))
    while page := list(rounds.begin()):
        assert len(page) <= most
        begun += page
    assert sorted(begun) == list(range(len(addresses)))
