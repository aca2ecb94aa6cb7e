"""Which connection is closed when there are too many."""

from __future__ import annotations

import pytest

from duetime.domain.sockets import Seat, Sockets, address_group


def fill(sockets: Sockets[str], address: str, number: int) -> list[Seat[str]]:
    seats = []
    for place in range(number):
        seat, evicted = sockets.admit(f"{address}{place}", address)
        assert seat is not None
        assert evicted is None
        seats.append(seat)
    return seats


def test_while_there_is_room_no_connection_is_closed():
    sockets = Sockets[str](10)
    fill(sockets, "a", 10)
    assert len(sockets) == 10


def test_the_oldest_idle_connection_of_the_largest_address_is_closed_when_all_places_are_taken():
    sockets = Sockets[str](10)
    fill(sockets, "b", 3)
    fill(sockets, "a", 7)
    assert sockets.admit("new", "c").evicted == "a0"
    assert sockets.admit("newer", "b").evicted == "a1"
    assert len(sockets) == 10


def test_a_connection_that_was_used_is_no_longer_the_oldest():
    sockets = Sockets[str](3)
    seats = fill(sockets, "a", 3)
    seats[0].work()
    seats[0].idle()
    assert sockets.admit("new", "b").evicted == "a1"


def test_a_busy_connection_is_never_closed():
    sockets = Sockets[str](3)
    seats = fill(sockets, "a", 3)
    for seat in seats:
        seat.work()
    assert sockets.admit("new", "b") == (None, None)
    seats[1].idle()
    assert sockets.admit("new", "b").evicted == "a1"


def test_a_connection_whose_body_is_awaited_is_closed_after_the_idle_ones():
    sockets = Sockets[str](3)
    seats = fill(sockets, "a", 3)
    for seat in seats[:2]:
        seat.work()
        seat.receive()
    assert sockets.admit("new", "b").evicted == "a2"
    assert sockets.admit("newer", "c").evicted == "a0"


def test_an_address_with_its_share_closes_no_connection_of_another():
    sockets = Sockets[str](10)
    fill(sockets, "a", 5)
    fill(sockets, "b", 5)
    assert sockets.admit("new", "a").evicted == "a0"


def test_two_addresses_do_not_close_connections_of_each_other_in_turns():
    sockets = Sockets[str](11)
    for seat in [*fill(sockets, "a", 6), *fill(sockets, "b", 5)]:
        seat.work()
        seat.receive()
    assert sockets.admit("new", "b").seat is None


def test_an_address_has_a_separate_limit():
    sockets = Sockets[str](100, per_address=3)
    fill(sockets, "a", 3)
    assert sockets.admit("new", "a").evicted == "a0"
    assert sockets.admit("other", "b").evicted is None
    assert len(sockets) == 4


def test_only_an_idle_connection_is_replaced_at_the_limit_of_an_address():
    sockets = Sockets[str](100, per_address=2)
    for seat in fill(sockets, "a", 2):
        seat.work()
        seat.receive()
    assert sockets.admit("new", "a").seat is None


def test_a_closed_connection_makes_room():
    sockets = Sockets[str](2, per_address=2)
    first, second = fill(sockets, "a", 2)
    sockets.leave(first)
    sockets.leave(second)
    assert len(sockets) == 0
    fill(sockets, "a", 2)


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not:an:address", "not:an:address"),
    ],
)
def test_addresses_of_one_client_are_counted_together(address, group):
    assert address_group(address) == group
