"""Opens, limits, reuses and closes connections. A connection whose state is unknown is never used again.

PgBouncer in transaction mode (`?pgbouncer=true` in the URL) may give each transaction another server connection. Then
no prepared statement outlives a transaction, and each transaction makes its settings again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlencode, urlunsplit
from weakref import WeakKeyDictionary

import asyncpg

from duetime.domain.database_urls import split_url
from duetime.domain.errors import Overloaded
from duetime.domain.upkeep import Idle, Upkeep
from duetime.places import Places
from duetime.ports.usage import PoolUsage
from duetime.postgres import TROUBLE, Servers

# One cached plan a statement, which probes an index for each row of a page. Planning takes longer than writing a small
# page. Without statistics of a new table, or if it knew the arrays' lengths, the planner would scan the whole table.
PLANS = {
    "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_mergejoin": "off",
    "enable_hashjoin": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip

MOST_WAITING = 256  # reads of one tenant
SWEEP_SECONDS = 10.0  # how often idle connections are checked


def describe(url: str) -> str:
    """Returns host[:port]/database, without user and password."""
    parts = split_url(url)
    options = dict(parse_qsl(parts.query))
    host = parts.hostname or options.get("host", "localhost")
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # there are several hosts
        port = ""
    return f"{host}{port}/{parts.path.strip('/') or parts.username or ''}"


class Address:
    """A database's URL without the option `pgbouncer`, which is Duetime's own."""

    def __init__(self, url: str) -> None:
        parts = split_url(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.is_pooled = options.pop("pgbouncer", "false").lower() in ("true", "1", "yes", "")
        self.url = urlunsplit(parts._replace(query=urlencode(options, safe="/")))
        self.shown = describe(url)


class Connector:
    """Opens connections with the same settings, with or without a pooler, and finds those that are too old."""

    def __init__(self, address: Address, timeout_seconds: float, settings: Mapping[str, str], upkeep: Upkeep) -> None:
        self.upkeep = upkeep
        self._ends: WeakKeyDictionary[asyncpg.Connection, float] = WeakKeyDictionary()
        self._servers = Servers(address.url)
        self._timeout = timeout_seconds
        limit = f"{max(1, int(timeout_seconds * 1000))}ms"
        # If a client falls silent in a transaction, the server ends it and releases its locks, soon enough for the
        # next connection to find out whether it was committed.
        silence = f"{max(1, int(timeout_seconds * 500))}ms"
        self._settings = {
            "statement_timeout": limit, "lock_timeout": limit, "idle_in_transaction_session_timeout": silence,
        } | dict(settings)  # fmt: skip
        sets = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in self._settings.items())
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"  # each statement sees what was committed before it began
        self.begin = begin + sets if address.is_pooled else begin
        self.is_pooled = address.is_pooled

    async def open(self) -> asyncpg.Connection:
        settings = {"application_name": "duetime"} | ({} if self.is_pooled else self._settings)
        connection = await self._servers.connect(
            self._timeout, statement_cache_size=0 if self.is_pooled else 300, max_cacheable_statement_size=64 * 1024,
            server_settings={} if self.is_pooled else settings,
        )  # fmt: skip
        self._ends[connection] = self.upkeep.ends_at(time.monotonic(), random.random())
        return connection

    def ends_at(self, connection: asyncpg.Connection) -> float:
        """Returns when (monotonic) a connection that was opened here becomes too old."""
        return self._ends[connection]

    def is_old(self, connection: asyncpg.Connection) -> bool:
        return time.monotonic() >= self._ends[connection]


class Connections:
    """Up to `limit` connections for reading, opened on demand.

    `shared`: tenants share them. One tenant gets at most half; the others are for tenants that use fewer.
    """

    def __init__(self, connector: Connector, limit: int, timeout_seconds: float, *, shared: bool = False) -> None:
        self._connector = connector
        self.places = Places(max(1, limit // 2), limit, MOST_WAITING) if shared else Places(limit, limit)
        self._limit = limit
        self._timeout = timeout_seconds
        self._idle: list[tuple[asyncpg.Connection, float]] = []  # (connection, when it was last used)
        self._sweeping: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._drops = 0

    async def fetch(self, sql: str, arguments: list[object], tenant: str = "") -> list[asyncpg.Record]:
        """Returns the rows of one statement, within the operation timeout. `tenant`: the tenant that reads."""
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
                connection = self._take() or await self._connector.open()
                try:
                    yield connection
                except BaseException:
                    connection.terminate()  # its state is unknown
                    raise
                if drops != self._drops:
                    connection.terminate()
                else:
                    self._keep(connection)
            finally:
                self.places.leave(tenant)

    def usage(self) -> PoolUsage:
        return PoolUsage(self.places.begun, len(self._idle), self._limit)

    def _take(self) -> asyncpg.Connection | None:
        """Returns the most recently used idle connection that is still usable."""
        while self._idle:
            connection, _ = self._idle.pop()
            if self._connector.is_old(connection):
                self._retire(connection)
            elif not connection.is_closed():
                return connection
        return None

    def _keep(self, connection: asyncpg.Connection) -> None:
        if self._connector.is_old(connection):
            self._retire(connection)
        elif not connection.is_closed():
            self._idle.append((connection, time.monotonic()))
            if self._sweeping is None or self._sweeping.done():
                self._sweeping = asyncio.create_task(self._sweep())

    def _retire(self, connection: asyncpg.Connection) -> None:
        """Closes it in the background, so that readers do not wait."""
        task = asyncio.create_task(close(connection, self._timeout))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _sweep(self) -> None:
        while self._idle:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_unneeded(time.monotonic())

    def close_unneeded(self, now: float) -> None:
        """Closes the idle connections that are not needed at `now` (monotonic)."""
        idle = [Idle(since, self._connector.ends_at(connection)) for connection, since in self._idle]
        places = set(self._connector.upkeep.unneeded(idle, now))
        unneeded = [connection for place, (connection, _) in enumerate(self._idle) if place in places]
        self._idle[:] = [kept for place, kept in enumerate(self._idle) if place not in places]
        for connection in unneeded:
            self._retire(connection)

    def drop_idle(self) -> None:
        """Closes all idle connections after one broke: they lead to the same server. Those in use close on return."""
        self._drops += 1
        while self._idle:
            self._idle.pop()[0].terminate()

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._idle:
            await close(self._idle.pop()[0], self._timeout)
        if self._closing:
            await asyncio.wait(self._closing)


async def close(connection: asyncpg.Connection, timeout_seconds: float) -> None:
    try:
        await connection.close(timeout=timeout_seconds)
    except TROUBLE:
        connection.terminate()
