"""Pools connections to targets. Connections go to checked addresses only, and are never shared between hosts.

An idle connection is reused only if the host's name still resolves to its address, so a DNS change takes effect at
once. Idle connections are closed after four seconds by default. Many servers close theirs after five, and jobs come in
bursts that are over in a moment or follow a minute later. The number of idle connections is limited, in total and per
origin. At the total limit, the tenant with the most idle connections gives way to a tenant with fewer.
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
from duetime.settings.table import DEFAULTS

Origin = tuple[bool, str, int]


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits on connections to targets. A job can't change them."""

    idle_seconds: float = 4.0  # an idle connection is closed after this time
    idle: int = DEFAULTS.target_max_idle_conns  # idle connections in total
    idle_of_origin: int = DEFAULTS.target_max_idle_conns_per_host
    handshake_seconds: float = DEFAULTS.target_tls_handshake_timeout  # for the TLS handshake
    header_seconds: float | None = None  # from the request to the response head; None: until the attempt's deadline


DEFAULT_LIMITS = ConnectionLimits()


class SlowHandshake(OSError):
    """The target accepted the connection, but did not complete the TLS handshake in time."""


class ConnectionPool:
    """Limits idle connections, not open ones: the caller limits how many attempts run at a time."""

    def __init__(self, tls: ssl.SSLContext, limits: ConnectionLimits = DEFAULT_LIMITS) -> None:
        self._tls = tls
        self._limits = limits
        self._idle_seconds = limits.idle_seconds
        self._max_idle = limits.idle
        self._max_of_origin = limits.idle_of_origin
        self._idle: dict[Origin, list[Connection]] = {}
        self._idle_count = 0
        self._held: dict[str, int] = {}  # number of idle connections by the tenant that used them last
        self._sweeper: asyncio.TimerHandle | None = None

    def take(self, target: Target, addresses: Sequence[str]) -> Connection | None:
        """Returns the most recently used idle connection that is open, not too old and to one of `addresses`, or None.

        Closes the unusable connections that it finds on the way.
        """
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
        """Keeps a reusable connection for the next request, if the limits allow it. Closes it otherwise."""
        held = self._held.get(tenant, 0)
        origin = target.tls, target.host, target.port
        kept = self._idle.get(origin)
        if (
            not connection.reusable
            or (kept is not None and len(kept) >= self._max_of_origin)
            or (self._idle_count >= self._max_idle and not self._make_room(held))
        ):
            connection.abort()
            return
        if not kept:  # there is none, or making room has emptied and removed it
            kept = self._idle.setdefault(origin, [])
        connection.idle_since = monotonic()
        connection.tenant = tenant
        self._held[tenant] = held + 1
        kept.append(connection)
        self._idle_count += 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    def _make_room(self, held: int) -> bool:
        """Closes the oldest idle connections of the tenant that has the most, for a tenant that has `held`.

        Returns False if no tenant has to give way. Closes several at once, because finding them means scanning all idle
        connections, but never so many that the giving tenant has fewer than the other.
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
            kept[:] = left
            if not left:
                del self._idle[origin]
        for connection in dropped:
            connection.abort()
            self._held[connection.tenant] -= 1
        self._idle_count -= len(dropped)
        self._held = {tenant: count for tenant, count in self._held.items() if count}

    async def connect(self, target: Target, addresses: Sequence[str], deadline: float) -> Connection:
        """Opens a connection, trying the addresses in turn. That is safe: nothing is sent before one is connected.

        Each address gets an equal share of the remaining time, so an address that drops packets can't use it all up.
        """
        loop = asyncio.get_running_loop()
        problem: OSError = TimeoutError()
        for tried, address in enumerate(addresses):
            now = loop.time()
            share = (deadline - now) / (len(addresses) - tried)
            try:
                async with asyncio.timeout_at(now + share):
                    return await self._open(target, address)
            except OSError as failure:  # includes TimeoutError and ssl.SSLError
                problem = failure
        raise problem

    async def _open(self, target: Target, address: str) -> Connection:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(address, self._limits.header_seconds), host=address, port=target.port,
                ssl=self._tls if target.tls else None, server_hostname=target.host if target.tls else None,
                ssl_handshake_timeout=self._limits.handshake_seconds if target.tls else None,
            )  # fmt: skip
        except ConnectionAbortedError as error:
            if error.errno is None:  # raised by the event loop, not by the system: the handshake took too long
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
