"""Pools connections to PostgreSQL servers: a few per tenant and URL, reset before each reuse.

The session state that a job leaves (settings, temporary tables, advisory locks, LISTEN) is discarded before another job
gets the connection; a connection whose state is unknown is closed. Idle connections are closed after a while. The
number of URLs with idle connections is limited and shared by tenant: many URLs of one tenant do not close the
connections of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg

from duetime.domain.connection_urls import PostgresUrl
from duetime.domain.execution import ErrorType
from duetime.domain.shares import FairCache
from duetime.executors.guard import BlockedTarget
from duetime.executors.resolver import DnsError
from duetime.executors.sql.connecting import connect
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.names import Names
from duetime.executors.sql.own import OURS, OwnDatabase, check_role, check_tables, is_own
from duetime.executors.sql.problems import Failed, blocked, unfit, unreachable
from duetime.executors.sql.received import Meter, Received
from duetime.postgres import TROUBLE

_RESET_SECONDS = 5.0
_CLIENT_CHECK_SINCE = 14
_LIMIT = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'"

Key = tuple[str, PostgresUrl]


class Session:
    """A connection, with facts about its server."""

    def __init__(self, connection: asyncpg.Connection, addresses: Sequence[str], meter: Meter, most_ms: int) -> None:
        self.connection = connection
        self.meter = meter
        self.addresses = addresses  # of the server
        self.most_ms = most_ms  # the server's own statement_timeout for this user; 0: no limit
        self.checks_client = connection.get_server_version().major >= _CLIENT_CHECK_SINCE
        self.idle_since = 0.0

    async def begin(self, seconds: float) -> None:
        """Sets timeouts for the next statement on the server, which enforces them even if this node hangs or dies."""
        self.meter.rewind()
        limit = max(1, int(seconds * 1000))
        settings = [
            f"SET statement_timeout = {min(limit, self.most_ms) if self.most_ms else limit}",
            f"SET idle_in_transaction_session_timeout = {limit}",
        ]
        if self.checks_client:
            settings.append("SET client_connection_check_interval = 1000")
        try:
            await self.connection.execute(";".join(settings))
        except asyncpg.InvalidParameterValueError:
            if not self.checks_client:
                raise
            self.checks_client = False  # the server's operating system does not support it
            await self.begin(seconds)


class Pool:
    """The connections of one tenant and URL."""

    def __init__(self, limit: int) -> None:
        self.room = asyncio.Semaphore(limit)
        self.idle: list[Session] = []
        self.users = 0


class Pools:
    def __init__(self, own: OwnDatabase, limits: SqlLimits, rules: SqlRules) -> None:
        self._own = own
        self._limits = limits
        self._rules = rules
        self._names = Names(rules.servers)
        self._received = Received(limits.received_bytes, limits.rows)
        self._pools: dict[Key, Pool] = {}
        self._unused = FairCache[Key](limits.pools)
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def take(self, tenant: str, url: PostgresUrl, deadline: float) -> Session:
        """Returns a working session with its timeouts set. Raises Failed, or TimeoutError after `deadline`.

        The caller must return the session with `give_back` or `throw_away`.
        """
        if is_own(self._own, url):
            raise blocked(OURS)
        key = (tenant, url)
        pool = self._pools.setdefault(key, Pool(self._limits.connections))
        pool.users += 1
        self._unused.discard(key)
        try:
            async with asyncio.timeout_at(deadline):
                await pool.room.acquire()
        except BaseException:
            self._forgo(key)
            raise
        try:
            return await self._ready(key, deadline)
        except BaseException:
            self._leave(key)
            raise

    async def _ready(self, key: Key, deadline: float) -> Session:
        clock, pool = asyncio.get_running_loop().time, self._pools[key]
        async with asyncio.timeout_at(deadline):
            while pool.idle:
                session = pool.idle.pop()
                try:
                    await session.begin(deadline - clock())
                except TROUBLE:
                    session.connection.terminate()  # the server closed it; no statement was sent, so try another one
                except BaseException:
                    session.connection.terminate()
                    raise
                else:
                    return session
            return await self._open(*key, deadline)

    async def _open(self, tenant: str, url: PostgresUrl, deadline: float) -> Session:
        meter = self._received.meter(tenant)
        try:
            addresses = await self._names.find(tenant, url.host, url.port)
            connection = await connect(url, addresses, meter)
        except BlockedTarget as problem:
            raise blocked(str(problem)) from None
        except DnsError as problem:
            raise Failed(ErrorType.CONNECTION_ERROR, f"No connection to {url.shown}: {problem}") from None
        except TimeoutError as problem:
            if problem.errno is None:
                raise
            raise unreachable(url.shown, problem) from None
        except (*TROUBLE, asyncpg.ClientConfigurationError, ValueError) as problem:
            raise _broken(url, meter, problem) from None
        try:
            await check_tables(connection)
            if not self._rules.superusers:
                await check_role(connection, url)
            session = Session(connection, addresses, meter, await connection.fetchval(_LIMIT))
            await session.begin(deadline - asyncio.get_running_loop().time())
        except TROUBLE as problem:
            connection.terminate()
            if isinstance(problem, TimeoutError):
                raise
            raise _broken(url, meter, problem) from None
        except BaseException:
            connection.terminate()
            raise
        return session

    def give_back(self, tenant: str, url: PostgresUrl, session: Session) -> None:
        """Discards the job's session state and keeps the connection. Does not wait: the job's outcome is known."""
        session.meter.rewind()
        self._spawn(self._reset((tenant, url), session))

    def throw_away(self, tenant: str, url: PostgresUrl, session: Session) -> None:
        session.connection.terminate()
        self._leave((tenant, url))

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._closing:
            await asyncio.wait(self._closing)
        for pool in self._pools.values():
            await asyncio.gather(*(_close(session) for session in pool.idle))
        self._pools.clear()
        await self._names.close()

    async def _reset(self, key: Key, session: Session) -> None:
        connection = session.connection
        try:
            async with asyncio.timeout(_RESET_SECONDS):
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
                await connection.execute("DISCARD ALL")
        except TROUBLE:
            connection.terminate()
        else:
            session.idle_since = asyncio.get_running_loop().time()
            self._pools[key].idle.append(session)
            self._sweep_later()
        self._leave(key)

    def _leave(self, key: Key) -> None:
        self._pools[key].room.release()
        self._forgo(key)

    def _forgo(self, key: Key) -> None:
        """Removes a user of a pool. A pool without users is kept if it has idle connections.

        If there are too many such pools, one of the tenant with the most is closed.
        """
        pool = self._pools[key]
        pool.users -= 1
        if pool.users:
            return
        if not pool.idle:
            del self._pools[key]
        elif (dropped := self._unused.add(key[0], key)) is not None:
            for session in self._pools.pop(dropped).idle:
                self._spawn(_close(session))

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = asyncio.get_running_loop().time() - self._limits.idle_seconds
        for key, pool in list(self._pools.items()):
            for session in [session for session in pool.idle if session.idle_since <= oldest]:
                pool.idle.remove(session)
                self._spawn(_close(session))
            if pool.idle:
                self._sweep_later()
            elif not pool.users:
                self._unused.discard(key)
                del self._pools[key]

    def _spawn(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _broken(url: PostgresUrl, meter: Meter, problem: Exception) -> Failed:
    return unreachable(url.shown, problem) if meter.problem is None else unfit(url.shown, meter)


async def _close(session: Session) -> None:
    try:
        await session.connection.close(timeout=_RESET_SECONDS)
    except TROUBLE:
        session.connection.terminate()
