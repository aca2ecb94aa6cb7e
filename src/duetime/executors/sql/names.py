"""Decides which database servers SQL jobs may connect to, and resolves their names: every address is checked.

A server is allowed by the SSRF guard's rules or by the operator's list. Names are resolved on threads that are shared
by tenant. A driver that gets a host name lets the event loop resolve it. The event loop has four threads for the whole
process, and a name whose name server does not respond blocks one for many seconds. A few such names would block every
other lookup, also the lookup of Duetime's own database. The driver would also connect to an unchecked address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, NoReturn, cast

from duetime.domain.sql_servers import SqlServers
from duetime.executors.guard import DEFAULT_PORTS, Address, BlockedTarget, check_address
from duetime.executors.resolver import Resolver, SystemLookup
from duetime.executors.sql.received import Counted, CountedTransport, Meter

_ADVICE = "The operator allows servers with SQL_ALLOWED_HOSTS."


def check_server(allowed: SqlServers, host: str, port: int, addresses: Iterable[str]) -> None:
    """Raises BlockedTarget unless the host is allowed by name, or each of its addresses is allowed."""
    if allowed.names(host, port):
        return
    for text in addresses:
        try:
            _check(allowed, ip_address(text), port)
        except ValueError:
            raise BlockedTarget(f"SQL jobs may not connect to {host}: {text} is no address. {_ADVICE}") from None
        except BlockedTarget as problem:
            raise BlockedTarget(f"SQL jobs may not connect to {host}: {problem} {_ADVICE}") from None


def check_literal(allowed: SqlServers, host: str, port: int) -> None:
    """Raises BlockedTarget if the host is an address that is not allowed. A name is checked when it is resolved."""
    try:
        ip_address(host)
    except ValueError:
        return
    check_server(allowed, host, port, (host,))


def _check(allowed: SqlServers, address: Address, port: int) -> None:
    networks = allowed.networks(port)
    if isinstance(address, IPv6Address) and address.scope_id is None:
        address = address.ipv4_mapped or address
    is_listed = any(address in network for network in networks if network.version == address.version)
    if not is_listed and not allowed.public:
        raise BlockedTarget(f"{address} port {port} is not on the operator's list.")
    check_address(address, networks)  # the address, and any IPv4 address embedded in it, must be public or listed
    if not is_listed and not any(low <= port <= high for low, high in DEFAULT_PORTS):
        raise BlockedTarget(f"Port {port} is not one that jobs may call.")


class Names:
    """Resolves and checks the names of database servers. For one event loop."""

    def __init__(self, allowed: SqlServers) -> None:
        self._allowed = allowed
        self._lookup = SystemLookup()
        self._resolver = Resolver(lambda address: None, self._lookup)  # `find` checks: the rules depend on the port too

    async def find(self, tenant: str, host: str, port: int) -> tuple[str, ...]:
        """Returns the addresses of a host, all checked, in the order to try. Raises DnsError or BlockedTarget."""
        try:
            ip_address(host)
        except ValueError:
            found = await self._resolver.resolve(host, tenant)
        else:
            found = (host,)
        check_server(self._allowed, host, port, found)
        return found

    async def close(self) -> None:
        await self._resolver.close()
        self._lookup.close()


class _Addressed:
    """An event loop for the driver: it connects to checked addresses only, and counts the received bytes.

    TLS still uses the host's name. Further connections (the driver opens one to cancel) go to the address that accepted
    the first one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, addresses: Sequence[str], meter: Meter) -> None:
        self._loop = loop
        self._addresses = addresses
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None = None, *place: Any, **options: Any
    ) -> Any:
        made: list[asyncio.BaseProtocol] = []

        def counted() -> Counted:
            made.append(protocol_factory())
            return Counted(made[-1], self._meter)

        if host is None:  # an already connected socket, which the driver never uses
            raise OSError("a connection must name its host")
        if options.get("ssl"):
            options.setdefault("server_hostname", host)
        problem: OSError | None = None
        for address in self._addresses:
            try:
                transport, _ = await self._loop.create_connection(counted, address, *place, **options)
            except OSError as failure:
                problem = failure
            else:
                self._addresses = (address,)
                return transport, made[-1]
        raise problem or OSError(f"{host} has no address")

    async def create_unix_connection(self, *_: Any, **__: Any) -> NoReturn:
        raise OSError("Unix sockets can't be used")

    async def start_tls(self, *arguments: Any, **options: Any) -> Any:
        transport = await self._loop.start_tls(*arguments, **options)
        return None if transport is None else CountedTransport(transport, self._meter)


def loop_to(addresses: Sequence[str], meter: Meter) -> asyncio.AbstractEventLoop:
    """Returns an event loop for the driver that connects to these addresses only."""
    return cast(asyncio.AbstractEventLoop, _Addressed(asyncio.get_running_loop(), addresses, meter))
