from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from duetime.ports.executor import Executor
from executors.sql.conftest import Connections, attempt_of, sentence_of, until

SLEEPER = """
import asyncio, sys
from duetime.executors.sql.own import OwnDatabase
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.limits import SqlRules
from duetime.domain.sql_servers import parse_servers
from executors.sql.conftest import attempt_of

async def find(tenant, name):
    return sys.argv[1]

rules = SqlRules(servers=parse_servers("127.0.0.0/8"), superusers=True)
executor = SqlExecutor(find, OwnDatabase(None, None), SqlLimits(), rules)
asyncio.run(executor.execute(attempt_of("SELECT pg_sleep(600)", timeout_seconds=600.0)))
"""


async def test_an_unknown_connection_fails_with_its_name(executor: Executor):  # type: ignore[type-arg]
    said = sentence_of(await executor.execute(attempt_of("SELECT 1", connection="reports")), ErrorType.BLOCKED_TARGET)
    assert said == "There is no connection 'reports': register it, or name another in the job. Nothing was sent."


async def test_an_invalid_connection_fails_with_the_reason(executor: SqlExecutor, connections: Connections):
    connections.urls["it"] = "mysql://me:s3cret@host/app"
    said = sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)
    assert "'it' can't be used" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("rules", [SqlRules(allowed=False)])
async def test_no_statement_runs_if_sql_is_off(executor: SqlExecutor, connections: Connections):
    connections.urls["it"] = "postgresql://me@127.0.0.1:9/app"
    assert "ALLOW_SQL" in sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)


@pytest.mark.parametrize("rules", [SqlRules()])
async def test_no_sqlite_file_is_opened_without_a_folder(executor: SqlExecutor, connections: Connections):
    connections.urls["it"] = "sqlite:///it.db?mode=rwc"
    assert "SQL_SQLITE_FOLDER" in sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)
    assert executor.sqlite.link.pid is None


@pytest.mark.parametrize("rules", [SqlRules()])
async def test_a_name_with_one_blocked_address_is_not_called(
    executor: SqlExecutor, connections: Connections, url: str, monkeypatch: pytest.MonkeyPatch
):
    """No address of the name is called, neither this one nor the others."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.1", "8.8.8.8")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    connections.urls["it"] = url.replace("127.0.0.1", "db.example")
    said = sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)
    assert "127.0.0.1 is not a public address" in said


async def test_a_registry_that_fails_is_an_internal_error():
    async def find(tenant: str, name: str) -> str | None:
        raise RuntimeError("postgresql://me:s3cret@host/app")

    executor = SqlExecutor(find, OwnDatabase(None, None), SqlLimits(), SqlRules())
    said = sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.INTERNAL_ERROR)
    assert said == "The connection 'it' could not be looked up: RuntimeError."
    await executor.stop()


async def test_a_registry_that_hangs_is_a_timeout():
    async def find(tenant: str, name: str) -> str | None:
        await asyncio.Event().wait()
        return None

    executor = SqlExecutor(find, OwnDatabase(None, None), SqlLimits(), SqlRules())
    sentence_of(await executor.execute(attempt_of("SELECT 1", timeout_seconds=0.05)), ErrorType.TIMEOUT)
    await executor.stop()


async def test_a_statement_ends_soon_after_its_node_was_killed(url: str, session: asyncpg.Connection):
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SLEEPER, url, env=os.environ | {"PYTHONPATH": path}
    )
    active = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(600)'"
    )

    async def is_running() -> bool:
        return bool(await session.fetchval(active))

    async def is_over() -> bool:
        return not await session.fetchval(active)

    try:
        await until(is_running)
    finally:
        node.kill()
    await node.wait()
    await until(is_over)
