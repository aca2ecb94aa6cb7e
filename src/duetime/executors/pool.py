"""Connections to targets: opened to checked addresses, kept for a moment, never shared between hosts.

A kept connection is used again only while its address is still one that the name resolves to, so a changed
answer of the name server counts at once. Kept ones are few seconds old at most: under the five after which
many servers close their end, and bursts come at once or a minute later. How many are kept is bounded, in all and for
one origin; when the first bound is reached, the tenant with the most gives way to one with less.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from time import monotonic

import msgspec

from duetime.domain.shares import gives_way_to
from duetime.executors.connection import Connection
from duetime.executors.guard import Target

Origin = tuple[bool, str, int]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """What holds for connections to targets, whatever a job says."""

    idle_seconds: float = 4.0  # how long one is kept unused
    idle: int = 1024  # how many are kept
    idle_of_origin: int = 256
    handshake_seconds: float = 10.0  # for TLS
    header_seconds: float | None = None  # from the request to the head of the answer; None: until the attempt's end


DEFAULT_LIMITS = ConnectionLimits()


class SlowHandshake(OSError):
    """The target took a connection, and did not complete the TLS handshake in time."""


class ConnectionPool:
    """Bounded in what it keeps, not in what it opens: the caller bounds how many attempts run at a time."""

    def __init__(self, tls: ssl.SSLContext, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        self._tls = tls
        self._limits = limits
        self._idle_seconds = limits.idle_seconds
        self._max_idle = limits.idle
        self._idle: dict[Origin, list[Connection]] = {}
        self._idle_count = 0
        self._held: dict[str, int] = {}  # of the idle ones, by the tenant that used them last
        self._sweeper: asyncio.TimerHandle | None = None

    def take(self, target: Target, addresses: Sequence[str]) -> Connection | None:
        """The connection used last, if one is left that is open, fresh and to one of these addresses."""
        kept = self._idle.get((target.tls, target.host, target.port))
        if not kept:
            return None
        oldest = monotonic() - self._idle_seconds
        while kept:
            connection = kept.pop()
            self._idle_count -= 1
            self._held[connection.tenant] -= 1
            if connection.open and connection.idle_since > oldest and connection.address in addresses:
                return connection
            connection.abort()
        return None

    def give_back(self, target: Target, connection: Connection, tenant: str = "") -> None:
        """Keep a connection after an exchange that left it reusable, or let it go."""
        held = self._held.get(tenant, 0)
        origin = target.tls, target.host, target.port
        if (
            not connection.reusable
            or len(self._idle.get(origin, ())) >= self._limits.idle_of_origin
            or (self._idle_count >= self._max_idle and not self._make_room(held))
        ):
            connection.abort()
            return
        connection.idle_since = monotonic()
        connection.tenant = tenant
        self._held[tenant] = held + 1
        self._idle.setdefault(origin, []).append(connection)
        self._idle_count += 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    def _make_room(self, held: int) -> bool:
        """For a tenant that holds so many: close the oldest of the tenant with the most. False if that has no more.

        Several at once, though no more than make the two equal: to find them takes a look at all.
        """
        largest = max(self._held, key=self._held.__getitem__)
        most = self._held[largest]
        if not gives_way_to(most, held):
            return False
        kept = [connection for kept in self._idle.values() for connection in kept if connection.tenant == largest]
        kept.sort(key=lambda connection: connection.idle_since)
        self._drop(set(kept[: min((most - held) // 2, max(1, self._max_idle // 16))]))
        return True

    def _drop(self, dropped: set[Connection]) -> None:
        for origin, kept in list(self._idle.items()):
            left = [connection for connection in kept if connection not in dropped]
            if left:
                kept[:] = left
            else:
                del self._idle[origin]
        for connection in dropped:
            connection.abort()
            self._held[connection.tenant] -= 1
        self._idle_count -= len(dropped)
        self._held = {tenant: count for tenant, count in self._held.items() if count}

    async def connect(self, target: Target, addresses: Sequence[str], deadline: float) -> Connection:
        """Open a connection, trying the addresses in turn: as long as none stands, nothing was sent.

        Each gets its share of the time that is left, so one that swallows packets can't use it all up.
        """
        loop = asyncio.get_running_loop()
        problem: OSError = TimeoutError()
        for tried, address in enumerate(addresses):
            now = loop.time()
            share = (deadline - now) / (len(addresses) - tried)
            try:
                async with asyncio.timeout_at(now + share):
                    return await self._open(target, address)
            except OSError as failure:  # TimeoutError and ssl.SSLError are ones
                problem = failure
        raise problem

    async def _open(self, target: Target, address: str) -> Connection:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(address, self._limits.header_seconds),
                host=address,
                port=target.port,
                ssl=self._tls if target.tls else None,
                server_hostname=target.host if target.tls else None,
                ssl_handshake_timeout=self._limits.handshake_seconds if target.tls else None,
            )
        except ConnectionAbortedError as error:
            if error.errno is None:  # of the event loop, and not of the system: the handshake took too long
                seconds = self._limits.handshake_seconds
                raise SlowHandshake(f"did not complete the TLS handshake within {seconds:g} s") from None
            raise
        return connection

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = monotonic() - self._idle_seconds
        self._drop(
            {
                connection
                for kept in self._idle.values()
                for connection in kept
                if not connection.open or connection.idle_since <= oldest
            }
        )
        self._sweeper = loop.call_later(self._idle_seconds, self._sweep) if self._idle else None

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for kept in self._idle.values():
            for connection in kept:
                connection.abort()
        self._idle.clear()
        self._held.clear()
        self._idle_count = 0
