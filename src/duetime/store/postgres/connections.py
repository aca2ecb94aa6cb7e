"""Connections: how they are opened, how many there may be, and that none whose state is unknown is used again.

PgBouncer in transaction mode (`?pgbouncer=true` in the URL) may give each transaction another server connection: no
prepared statement outlives a transaction then, and settings are made in each transaction anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlencode, urlunsplit

import asyncpg

from duetime.domain.database_urls import split_url
from duetime.domain.errors import Overloaded
from duetime.places import Places
from duetime.postgres import TROUBLE, Servers

# One plan a statement, kept, that probes an index for each row of a page. Planning takes longer than writing a small
# page; and a planner without figures of a new table, or told how long the arrays are, would rather read all of it.
PLANS = {
    "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off",
    "enable_hashjoin": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip

MOST_WAITING = 256  # reads of one tenant


class Address:
    """A database's URL, without what is meant for us: `pgbouncer`."""

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.is_pooled = options.pop("pgbouncer", "false").lower() in ("true", "1", "yes", "")
        self.url = urlunsplit(parts._replace(query=urlencode(options, safe="/")))
        self.shown = f"{parts.hostname or options.get('host', 'localhost')}{parts.path}"  # no password


class Connector:
    """Opens connections with the same settings, however they are reached."""

    def __init__(self, address: Address, timeout_seconds: float, settings: Mapping[str, str]) -> None:
        self._servers = Servers(address.url)
        self._timeout = timeout_seconds
        limit = f"{max(1, int(timeout_seconds * 1000))}ms"
        # A server that hears nothing more of a transaction ends it and lets go of its locks, soon enough for whoever
        # asks what came of it.
        silence = f"{max(1, int(timeout_seconds * 500))}ms"
        self._settings = {
            "statement_timeout": limit,
            "lock_timeout": limit,
            "idle_in_transaction_session_timeout": silence,
            **settings,
        }
        sets = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in self._settings.items())
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"  # each statement sees what was committed before it began
        self.begin = begin + sets if address.is_pooled else begin
        self.is_pooled = address.is_pooled

    async def open(self) -> asyncpg.Connection:
        settings = {"application_name": "duetime"} | ({} if self.is_pooled else self._settings)
        return await self._servers.connect(
            self._timeout,
            statement_cache_size=0 if self.is_pooled else 300,
            max_cacheable_statement_size=64 * 1024,
            server_settings={} if self.is_pooled else settings,
        )


class Connections:
    """Up to `limit` connections for reading, opened by need.

    `shared`: tenants share them. One alone has half of them; the others are for tenants that have fewer.
    """

    def __init__(self, connector: Connector, limit: int, timeout_seconds: float, *, shared: bool = False) -> None:
        self._connector = connector
        self.places = Places(max(1, limit // 2), limit, MOST_WAITING) if shared else Places(limit, limit)
        self._limit = limit
        self._timeout = timeout_seconds
        self._idle: list[asyncpg.Connection] = []
        self._drops = 0

    async def fetch(self, sql: str, arguments: list[object], tenant: str = "") -> list[asyncpg.Record]:
        """The rows of one statement, within the time that an operation may take. `tenant`: whose read it is."""
        async with self._use(tenant) as connection:
            if not self._connector.is_pooled:
                rows: list[asyncpg.Record] = await connection.fetch(sql, *arguments)
                return rows
            await connection.execute(self._connector.begin)
            found: list[asyncpg.Record] = await connection.fetch(sql, *arguments)
            await connection.execute("COMMIT")
            return found

    @asynccontextmanager
    async def _use(self, tenant: str) -> AsyncIterator[asyncpg.Connection]:
        async with asyncio.timeout(self._timeout):
            try:
                async with asyncio.timeout(self._timeout * 0.9):
                    await self.places.enter(tenant)
            except TimeoutError:
                raise Overloaded(f"all {self._limit} connections to the database are busy; try again") from None
            try:
                drops = self._drops
                connection = self._idle.pop() if self._idle else await self._connector.open()
                try:
                    yield connection
                except BaseException:
                    connection.terminate()  # what it still holds or sends is unknown
                    raise
                if drops != self._drops:
                    connection.terminate()
                elif not connection.is_closed():
                    self._idle.append(connection)
            finally:
                self.places.leave(tenant)

    def drop_idle(self) -> None:
        """One was found broken: the others were opened to the same server. Those in use go when they come back."""
        self._drops += 1
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        while self._idle:
            await close(self._idle.pop(), self._timeout)


async def close(connection: asyncpg.Connection, timeout_seconds: float) -> None:
    try:
        await connection.close(timeout=timeout_seconds)
    except TROUBLE:
        connection.terminate()
