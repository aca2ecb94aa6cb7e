"""How many bytes database servers send: bounded for each statement, and for all statements of a node together.

The driver holds a message until it is whole, and a message may have a gigabyte. So bytes are counted before the driver
sees them, and messages too (`messages.py`): a connection that brings too many is cut. When all connections together
bring too many, the one with the most bytes of the tenant with the most bytes is cut: one tenant's large results do not
end another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asyncpg.protocol import Protocol as DriverProtocol

from duetime.executors.sql.messages import Messages, Tally, Unfit

NODE_SHARE = 4  # statements that may receive as much as is allowed at the same time


class Meter:
    """Counts the bytes of one connection since the last `rewind`. `problem` says why it was cut."""

    def __init__(self, received: Received, tenant: str) -> None:
        self._received = received
        self.tally = Tally(received.rows)
        self._transports: list[asyncio.BaseTransport] = []
        self.tenant = tenant
        self.bytes = 0
        self.problem: str | None = None
        self.is_crowded = False  # cut for the sake of others: another attempt may succeed

    def sibling(self) -> Meter:
        """Returns a meter for another connection of the same tenant."""
        return Meter(self._received, self.tenant)

    def opened(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)

    def take(self, size: int) -> bool:
        """Counts bytes that have come. False: the connection is cut, and nobody may see them."""
        if self.problem is None:
            self._received.add(self, size)
        return self.problem is None

    def rewind(self) -> None:
        """What has come so far is no longer held."""
        self._received.release(self)
        self.tally.rewind()

    def cut(self, problem: str, *, is_crowded: bool = False) -> None:
        self.problem, self.is_crowded = problem, is_crowded
        for transport in self._transports:
            abort: Callable[[], None] = getattr(transport, "abort", transport.close)
            abort()
        self.rewind()


class Received:
    """Of a node. `limit`: bytes for a statement; `rows`: how many rows a statement asks for at most."""

    def __init__(self, limit: int, rows: int = 100) -> None:
        self._limit = limit
        self.rows = rows
        self._meters: set[Meter] = set()
        self.total = 0

    def meter(self, tenant: str) -> Meter:
        return Meter(self, tenant)

    def add(self, meter: Meter, size: int) -> None:
        self._meters.add(meter)
        meter.bytes += size
        self.total += size
        if meter.bytes > self._limit:
            meter.cut(
                f"the server sent more than {self._limit} bytes for one statement (SQL_RECEIVE_LIMIT). "
                "Select fewer or shorter values"
            )
        elif self.total > NODE_SHARE * self._limit:
            self._largest().cut(
                "this node received too much for all SQL jobs together. Select fewer or shorter values",
                is_crowded=True,
            )

    def release(self, meter: Meter) -> None:
        self.total -= meter.bytes
        meter.bytes = 0
        self._meters.discard(meter)

    def _largest(self) -> Meter:
        by_tenant: dict[str, int] = {}
        for meter in self._meters:
            by_tenant[meter.tenant] = by_tenant.get(meter.tenant, 0) + meter.bytes
        tenant = max(by_tenant, key=by_tenant.__getitem__)
        return max((meter for meter in self._meters if meter.tenant == tenant), key=lambda meter: meter.bytes)


class Counted(asyncio.Protocol):
    """Stands between a transport and the driver's protocol."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter
        # What comes before TLS, or answers a cancel, is no message.
        self._messages = Messages(meter.tally) if isinstance(inner, DriverProtocol) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._meter.opened(transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._meter.take(len(data)):
            return
        if self._messages is not None:
            try:
                data = self._messages.feed(data)
            except Unfit as problem:
                self._meter.cut(str(problem))
                return
        if data:
            self._inner.data_received(data)

    def eof_received(self) -> Any:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._meter.rewind()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class CountedTransport:
    """A TLS transport whose next protocol is counted, too."""

    def __init__(self, transport: Any, meter: Meter) -> None:
        self._transport = transport
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: Any) -> None:
        self._meter.opened(self._transport)
        self._transport.set_protocol(Counted(protocol, self._meter))
