"""Names of database servers, looked up on threads that tenants share, and not on the few of the event loop.

A driver that is given a name has the event loop look it up. That has four threads for the whole process, and a name
whose server does not answer holds one for many seconds: a few of them would stop every other lookup, those of Duetime's
own database with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from duetime.executors.guard import parse_address
from duetime.executors.resolver import Resolver, SystemLookup


class Names:
    """Of one event loop."""

    def __init__(self) -> None:
        self._lookup = SystemLookup()
        self._resolver = Resolver(lambda address: None, self._lookup)  # an admin has registered it: any may be called

    async def find(self, tenant: str, host: str) -> tuple[str, ...]:
        """The addresses of a host, in the order to try them. Raises `DnsError`."""
        try:
            parse_address(host)
        except ValueError:
            return await self._resolver.resolve(host, tenant)
        return (host,)

    async def close(self) -> None:
        await self._resolver.close()
        self._lookup.close()


class _Addressed:
    """The event loop, but connections to a name go to addresses that are known. TLS still asks for the name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, addresses: Sequence[str]) -> None:
        self._loop = loop
        self._addresses = addresses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None = None, *place: Any, **options: Any
    ) -> Any:
        if host is None:  # over a socket that stands
            return await self._loop.create_connection(protocol_factory, host, *place, **options)
        if options.get("ssl"):
            options.setdefault("server_hostname", host)
        problem: OSError | None = None
        for address in self._addresses:
            try:
                return await self._loop.create_connection(protocol_factory, address, *place, **options)
            except OSError as failure:
                problem = failure
        raise problem or OSError(f"{host} has no address")


def loop_to(addresses: Sequence[str]) -> asyncio.AbstractEventLoop:
    """For a driver that takes a loop."""
    return cast(asyncio.AbstractEventLoop, _Addressed(asyncio.get_running_loop(), addresses))
