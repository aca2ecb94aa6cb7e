"""A registry as several processes use it, with a way to let time pass for its leases.

No test sleeps. On PostgreSQL, time passes by moving the stored instants into the past, which has the same effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg

from duetime.ports.registry import Registry
from duetime.registry.embedded import EmbeddedRegistry
from duetime.registry.memory import MemoryRegistry
from duetime.registry.postgres import PostgresRegistry
from duetime.testing import HandClock

TTL = 5.0


class World(Protocol):
    """One cluster's registry, as several processes use it."""

    def registry(self) -> Registry:
        """The connection of another process, not yet started."""

    async def pass_time(self, seconds: float) -> None: ...


class EmbeddedWorld:
    def registry(self) -> Registry:
        return EmbeddedRegistry()

    async def pass_time(self, seconds: float) -> None:
        return


class MemoryWorld:
    def __init__(self) -> None:
        self.clock = HandClock()
        self._shared = MemoryRegistry(self.clock, TTL)

    def registry(self) -> Registry:
        return self._shared

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)


class PostgresWorld:
    def __init__(self, url: str) -> None:
        self.url = url

    def registry(self, ttl_seconds: float = TTL, call_seconds: float = 10.0) -> PostgresRegistry:
        return PostgresRegistry(self.url, ttl_seconds, call_seconds)  # long timeouts: the machine may be busy

    async def pass_time(self, seconds: float) -> None:
        async with self.connection() as connection:
            await connection.execute("UPDATE leases SET lapses_at = lapses_at - $1::float8 * interval '1 s'", seconds)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()
