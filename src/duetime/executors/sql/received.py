"""Limits the bytes that database servers send, for each statement and for all statements of a node together.

The driver buffers a message until it is complete, and a message may have a gigabyte. So bytes and messages
(`messages.py`) are counted before the driver sees them, and a connection that receives too many is closed. If all
connections together receive too many, the connection with the most bytes of the tenant with the most bytes is closed:
one tenant's large results do not end another tenant's statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asyncpg.protocol import Protocol as DriverProtocol

from duetime.executors.sql.messages import Messages, Tally, Unfit

NODE_SHARE = 4  # the limit of a node, in multiples of the limit of one statement


class Meter:
    """Counts the bytes of one connection since the last `rewind`. `problem` says why it was closed."""

    def __init__(self, received: Received, tenant: str) -> None:
        self._received = received
        self.tally = Tally(received.rows)
        self._transports: list[asyncio.BaseTransport] = []
        self.tenant = tenant
        self.bytes = 0
        self.problem: str | None = None
        self.is_crowded = False  # closed because of the node's limit: another attempt may succeed

    def sibling(self) -> Meter:
        """Returns a meter for another connection of the same tenant."""
        return Meter(self._received, self.tenant)

    def opened(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)

    def take(self, size: int) -> bool:
        """Counts received bytes. Returns False if the connection is closed: the driver must not see the bytes."""
        if self.problem is None:
            self._received.add(self, size)
        return self.problem is None

    def rewind(self) -> None:
        """Resets the counts: the bytes received so far are no longer in memory."""
        self._received.release(self)
        self.tally.rewind()

    def cut(self, problem: str, *, is_crowded: bool = False) -> None:
        self.problem, self.is_crowded = problem, is_crowded
        for transport in self._transports:
            abort: Callable[[], None] = getattr(transport, "abort", transport.close)
            abort()
        self.rewind()


class Received:
    """Counts the received bytes of a node. `limit`: bytes per statement; `rows`: most rows that one requests."""

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
                "this node received too much for all SQL jobs together. Select fewer or shorter values", is_crowded=True
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
    """Sits between a transport and the driver's protocol, and counts and filters the received data."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter
        # The data before TLS, and the response to a cancel request, are not messages.
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
    """A TLS transport that wraps its next protocol in `Counted`."""

    def __init__(self, transport: Any, meter: Meter) -> None:
        self._transport = transport
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set_protocol(self, protocol: Any) -> None:
        self._meter.opened(self._transport)
        self._transport.set_protocol(Counted(protocol, self._meter))
