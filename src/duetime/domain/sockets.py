"""Which client connections a server keeps when there are too many: fair by address first, then the oldest idle goes.

A connection is `IDLE` (no request, or an incomplete head), `RECEIVING` (the rest of a request's body is awaited) or
`BUSY` (the server has not responded yet). A new connection never ends one that is busy.

- An address that has as many as one address may have gives up its own oldest idle connection for the new one.
- When all places are taken, the address that has the most gives one up: the oldest idle, or else the one whose body
  has been awaited for longest. An address below its share therefore always gets in.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from duetime.domain.shares import Holdings, gives_way_to

C = TypeVar("C")

_IPV6_NETWORK = 64  # bits: one customer of a provider has at least such a network


class State(IntEnum):
    IDLE = 0
    RECEIVING = 1
    BUSY = 2


_IDLE, _RECEIVING, _BUSY = State


def address_group(address: str) -> str:
    """Returns the name under which the connections of an address are counted.

    An IPv6 client has 2^64 addresses of its own, so those count by network. IPv4 inside IPv6 counts as IPv4.
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_NETWORK), strict=False))


class Seat(Generic[C]):
    """The place of one connection, with its state. The state changes with each request, so changes are cheap."""

    __slots__ = ("_idle", "_receiving", "address", "connection", "state")

    def __init__(self, connection: C, address: str, queues: _Queues[C]) -> None:
        self.connection = connection
        self.address = address
        self._idle, self._receiving = queues
        self.idle()

    def idle(self) -> None:
        """Sets the state to IDLE."""
        self.state = _IDLE
        queue = self._idle
        queue[self] = None
        queue.move_to_end(self)

    def receive(self) -> None:
        """Sets the state to RECEIVING."""
        self.state = _RECEIVING
        queue = self._receiving
        queue[self] = None
        queue.move_to_end(self)

    def work(self) -> None:
        """Sets the state to BUSY. Its entry in a queue stays until a search for the oldest one removes it."""
        self.state = _BUSY

    def leave(self) -> None:
        self.state = _BUSY
        self._idle.pop(self, None)
        self._receiving.pop(self, None)


_Queue = OrderedDict[Seat[C], None]
_Queues = tuple[_Queue[C], _Queue[C]]  # idle and receiving, each with the longest wait first


class Admission(NamedTuple, Generic[C]):
    """The new connection's place, or None if it is refused; and the connection that must be closed for it."""

    seat: Seat[C] | None
    evicted: C | None = None


class Sockets(Generic[C]):
    """The connections of one server. Every operation takes constant time. `per_address` 0: no such limit."""

    def __init__(self, capacity: int, per_address: int = 0) -> None:
        self._holdings = Holdings(capacity)
        self._per_address = per_address
        self._queues: dict[str, _Queues[C]] = {}

    def __len__(self) -> int:
        return self._holdings.total

    def admit(self, connection: C, address: str) -> Admission[C]:
        """Add a connection as idle, unless it is refused. The evicted one, if any, has left already."""
        held = self._holdings.of(address)
        if self._per_address and held >= self._per_address:
            replaced = self._oldest(address, State.IDLE)
        elif self._holdings.is_full:
            replaced = next(self._candidates(address, held), None)
        else:
            return Admission(self._add(connection, address))
        if replaced is None:
            return Admission(None)
        self.leave(replaced)
        return Admission(self._add(connection, address), replaced.connection)

    def _candidates(self, address: str, held: int) -> Iterator[Seat[C]]:
        """Yields the seats that a new connection of `address` may replace when all are taken, best first."""
        largest = self._holdings.largest()
        fair = gives_way_to(self._holdings.of(largest), held)
        of_largest = ((largest, State.IDLE), (largest, State.RECEIVING)) if fair else ()
        for holder, state in (*of_largest, (address, State.IDLE)):
            seat = self._oldest(holder, state)
            if seat is not None:
                yield seat

    def _oldest(self, address: str, state: State) -> Seat[C] | None:
        queue = self._queues[address][state] if address in self._queues else ()
        while queue:
            seat = next(iter(queue))
            if seat.state is state:
                return seat
            del queue[seat]
        return None

    def _add(self, connection: C, address: str) -> Seat[C]:
        self._holdings.add(address)
        queues = self._queues.setdefault(address, (OrderedDict(), OrderedDict()))
        return Seat(connection, address, queues)

    def leave(self, seat: Seat[C]) -> None:
        """Removes the seat after its connection has ended. Call it once for each seat."""
        seat.leave()
        self._holdings.remove(seat.address)
        if seat.address not in self._holdings:
            del self._queues[seat.address]
