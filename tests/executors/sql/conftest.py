"""Executors on a real PostgreSQL, reached over TCP through a proxy, and on SQLite files."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from duetime.domain.execution import ErrorType, Outcome
from duetime.domain.job import SqlJob
from duetime.domain.payloads import SqlQuery
from duetime.domain.sql_servers import parse_servers
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from duetime.ports.executor import Attempt
from patience import PATIENCE_SECONDS
from samples import claim_of
from store.postgres_server import connected, server_url, url_of
from store.proxy import Proxy

Run = Callable[..., Awaitable[Outcome]]
_NAME = f"duetime_sql_jobs_{os.getpid()}"
_made: list[str] = []


class Written:
    """A log writer that stores everything."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, stream: str, text: str) -> None:
        self.text += text

    async def close(self) -> None:
        return


def attempt_of(
    statement: str, *parameters: Any, connection: str = "it", tenant: str = "default", timeout_seconds: float = 10.0,
    **fields: Any,
) -> Attempt[SqlQuery]:  # fmt: skip
    job = SqlJob(
        name="report", schedule="every 1m", timeout_seconds=timeout_seconds,
        payload=SqlQuery(connection=connection, statement=statement, parameters=list(parameters)),
    )  # fmt: skip
    claim = claim_of(
        job, execution_id="01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f", job_id="01970c6e-0000-7000-8000-000000000001",
        tenant=tenant, scheduled_at=1_767_225_600_007,
    )  # fmt: skip
    return Attempt(claim, job.payload, **fields)


def table_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error_type is None, outcome.error_message
    assert outcome.response is not None
    return dict(json.loads(outcome.response))


def rows_of(outcome: Outcome) -> list[list[Any]]:
    return list(table_of(outcome)["rows"])


def sentence_of(outcome: Outcome, error_type: ErrorType) -> str:
    assert outcome.error_type is error_type, outcome
    assert outcome.error_message is not None
    return outcome.error_message


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.01)


async def list_running(session: asyncpg.Connection, statement: str, state: str = "%") -> list[int]:
    found = await session.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND query LIKE $1 AND state LIKE $2",
        statement,
        state,
    )
    return [row["pid"] for row in found]


async def until_running(session: asyncpg.Connection, statement: str) -> list[int]:
    async def is_running() -> bool:
        return bool(await list_running(session, statement, "active"))

    await until(is_running)
    return await list_running(session, statement, "active")


class Connections:
    """The URLs that `find` returns, by name."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}

    async def find(self, tenant: str, name: str) -> str | None:
        return self.urls.get(name)


@pytest.fixture
async def database() -> str:
    """The URL of an empty database."""
    if not _made:
        async with connected(server_url()) as admin:
            await admin.execute(f"CREATE DATABASE {_NAME}")
        _made.append(url_of(_NAME))
        atexit.register(lambda: asyncio.run(_drop()))
    async with connected(_made[0]) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'; "
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        )
    return _made[0]


async def _drop() -> None:
    with suppress(OSError, asyncpg.PostgresError):
        async with connected(server_url()) as admin:
            await admin.execute(f"DROP DATABASE IF EXISTS {_NAME} WITH (FORCE)")


@pytest.fixture
async def session(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the test: it reads the effects of a job, or blocks it."""
    async with connected(database) as connection:
        yield connection


@pytest.fixture
def proxy(database: str) -> Proxy:
    return Proxy(database)


@pytest.fixture
async def url(proxy: Proxy) -> AsyncIterator[str]:
    async with proxy.serving() as served:
        yield served


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Duetime's data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def connections() -> Connections:
    return Connections()


@pytest.fixture
def limits() -> SqlLimits:
    return SqlLimits()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the tenants' SQLite files."""
    folder = tmp_path / "sqlite"
    folder.mkdir()
    return folder


@pytest.fixture
def rules(folder: Path) -> SqlRules:
    """Servers on this machine, with their superuser, and SQLite."""
    return SqlRules(servers=parse_servers("127.0.0.0/8"), superusers=True, sqlite_folder=str(folder))


@pytest.fixture
async def executor(
    connections: Connections, data: Path, limits: SqlLimits, rules: SqlRules
) -> AsyncIterator[SqlExecutor]:
    made = SqlExecutor(connections.find, OwnDatabase(data, None), limits, rules)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def postgres(executor: SqlExecutor, connections: Connections, url: str) -> Run:
    """Runs a statement on PostgreSQL."""
    connections.urls["it"] = url

    async def run(statement: str, *parameters: Any, **fields: Any) -> Outcome:
        return await executor.execute(attempt_of(statement, *parameters, **fields))

    return run


@pytest.fixture
def file(folder: Path) -> Path:
    """An empty SQLite database of the tenant `default`."""
    path = folder / "default" / "app.db"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.fixture
def sqlite(executor: SqlExecutor, connections: Connections, file: Path) -> Run:
    """Runs a statement on SQLite."""
    connections.urls["it"] = f"sqlite:///{file.name}"

    async def run(statement: str, *parameters: Any, **fields: Any) -> Outcome:
        return await executor.execute(attempt_of(statement, *parameters, **fields))

    return run
