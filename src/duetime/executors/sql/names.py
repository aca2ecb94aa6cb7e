"""Names of database servers, looked up on threads that tenants share, and not on the few of the event loop.

A driver that is given a name has the event loop look it up. That has four threads for the whole process, and a name
whose server does not answer holds one for many seconds: a few of them would stop every other lookup, those of Duetime's
own database with them. It would also connect to an address that nobody has checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from duetime.domain.sql_servers import SqlServers
from duetime.executors.guard import parse_address
from duetime.executors.resolver import Resolver, SystemLookup
from duetime.executors.sql.received import Counted, CountedTransport, Meter
from duetime.executors.sql.servers import check_server


class Names:
    """Of one event loop."""

    def __init__(self, allowed: SqlServers) -> None:
        self._allowed = allowed
        self._lookup = SystemLookup()
        self._resolver = Resolver(lambda address: None, self._lookup)  # what is allowed depends on the port, too

    async def find(self, tenant: str, host: str, port: int) -> tuple[str, ...]:
        """Returns the addresses of a host, each checked, in the order to try. Raises DnsError, BlockedTarget."""
        try:
            parse_address(host)
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
    """The event loop as a driver gets it: connections go to checked addresses only, and their bytes are counted.

    TLS still asks for the name. Further connections (the driver opens one to cancel) go to the address that answered.
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

        if host is None:  # over a socket that is connected already: the driver never asks for that
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
    """Returns the loop for a driver that takes one."""
    return cast(asyncio.AbstractEventLoop, _Addressed(asyncio.get_running_loop(), addresses, meter))
