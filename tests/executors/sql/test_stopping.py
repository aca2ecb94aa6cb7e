from __future__ import annotations

import asyncio

import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql import postgres as statements
from duetime.ports.executor import NotSent
from executors.sql.conftest import Run, list_running, rows_of, sentence_of, until_running


async def test_the_error_for_a_connection_that_breaks_during_a_statement_says_so(
    postgres: Run, session: asyncpg.Connection
):
    running = asyncio.create_task(postgres("SELECT pg_sleep(60)"))
    (pid,) = await until_running(session, "SELECT pg_sleep(60)")
    await session.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    assert "Whether it took effect" in sentence_of(await running, ErrorType.CONNECTION_ERROR)


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(60)", "DO 'BEGIN PERFORM pg_sleep(60); END'"])
async def test_a_statement_that_takes_too_long_ends_on_the_server(
    postgres: Run, session: asyncpg.Connection, statement: str
):
    said = sentence_of(await postgres(statement, timeout_seconds=1.5), ErrorType.TIMEOUT)
    assert "1.5 s" in said or "its time was over" in said
    assert await list_running(session, "%pg_sleep%", "active") == []


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(60)", "DO 'BEGIN PERFORM pg_sleep(60); END'"])
async def test_a_cancelled_statement_ends_on_the_server(postgres: Run, session: asyncpg.Connection, statement: str):
    running = asyncio.create_task(postgres(statement))
    (pid,) = await until_running(session, statement)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()  # a second cancellation
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await list_running(session, "%pg_sleep%", "active") == []
    assert rows_of(await postgres("SELECT pg_backend_pid()")) != [[pid]]


async def test_a_statement_that_ignores_the_cancellation_is_ended(
    postgres: Run, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(statements, "_STOP_SECONDS", 0.5)
    deaf = "BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END"
    sentence_of(await postgres(f"DO '{deaf}'", timeout_seconds=0.3), ErrorType.TIMEOUT)
    assert await list_running(session, "%pg_sleep%", "active") == []


async def test_the_server_itself_bounds_a_statement(postgres: Run):
    """The server ends it at the timeout, even if the node is silent and its connection is never closed."""
    settings = "('statement_timeout', 'idle_in_transaction_session_timeout')"
    outcome = await postgres(f"SELECT setting::int FROM pg_settings WHERE name IN {settings}", timeout_seconds=20)
    first, second = rows_of(outcome)
    assert 0 < first[0] <= 20_000
    assert 0 < second[0] <= 20_000


async def test_a_shorter_timeout_set_by_an_operator_still_applies(postgres: Run, session: asyncpg.Connection):
    await session.execute(
        "DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET statement_timeout = 100', "
        "current_user, current_database()); END $$"
    )
    try:
        sentence_of(await postgres("SELECT pg_sleep(5)"), ErrorType.TIMEOUT)
    finally:
        await session.execute(
            "DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET statement_timeout', "
            "current_user, current_database()); END $$"
        )


async def test_nothing_is_sent_once_the_lease_is_in_doubt(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int)")
    for statement in ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1) RETURNING n"):
        with pytest.raises(NotSent):
            await postgres(statement, may_send=lambda: False)
    assert await session.fetchval("SELECT count(*) FROM t") == 0
    assert rows_of(await postgres("SELECT 1")) == [[1]]
