from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase
from executors.sql.conftest import Connections, Run, Written, attempt_of, rows_of, sentence_of, table_of
from store.postgres_server import emptied_database
from store.proxy import Proxy


async def test_rows_are_kept_as_a_small_table(postgres: Run):
    outcome = await postgres("SELECT 1 AS n, 'x' AS t, '1.50'::numeric AS d, '{\"a\": [1]}'::jsonb AS j")
    assert outcome.response == (
        '{"columns":["n","t","d","j"],"rows":[[1,"x","1.50",{"a":[1]}]],"row_count":1,"truncated":false}'
    )


async def test_a_statement_without_rows_returns_the_number_of_changed_rows(postgres: Run):
    empty = {"columns": [], "rows": [], "truncated": False}
    assert table_of(await postgres("CREATE TABLE t (n int)")) == empty | {"row_count": 0}
    assert table_of(await postgres("INSERT INTO t SELECT generate_series(1, 7)")) == empty | {"row_count": 7}
    assert table_of(await postgres("DELETE FROM t WHERE n > 5")) == empty | {"row_count": 2}


async def test_several_statements_are_refused(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int)")
    said = sentence_of(await postgres("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)"), ErrorType.SQL_ERROR)
    assert "one statement" in said
    assert "(SQLSTATE 42601)" in said
    assert await session.fetchval("SELECT count(*) FROM t") == 0
    assert rows_of(await postgres("SELECT 1; -- and no more\n;")) == [[1]]


@pytest.mark.parametrize("statement", ["", "-- nothing", "COPY t FROM STDIN", "/* a */ copy t TO STDOUT", "BEGIN"])
async def test_empty_statements_copy_and_begin_are_refused(postgres: Run, statement: str):
    assert "SQLSTATE" in sentence_of(await postgres(statement, timeout_seconds=3), ErrorType.SQL_ERROR)
    assert rows_of(await postgres("SELECT 1")) == [[1]]


async def test_an_error_has_the_servers_message_and_sqlstate(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert sentence_of(await postgres("INSERT INTO t VALUES (1)"), ErrorType.SQL_ERROR) == (
        'duplicate key value violates unique constraint "t_pkey". Key (n)=(1) already exists (SQLSTATE 23505)'
    )
    assert sentence_of(await postgres("SELECT nope"), ErrorType.SQL_ERROR) == (
        'column "nope" does not exist, at character 8 (SQLSTATE 42703)'
    )


@pytest.mark.parametrize("limits", [SqlLimits(rows=20)])
async def test_a_statement_runs_to_its_end_however_few_rows_are_kept(postgres: Run, session: asyncpg.Connection):
    """An INSERT … RETURNING, and a SELECT of a function that does the work, row by row."""
    await session.execute("CREATE TABLE t (n int)")
    await session.execute(
        "CREATE FUNCTION add(n int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (n) RETURNING n'"
    )
    kept = table_of(await postgres("INSERT INTO t SELECT generate_series(1, 1000) RETURNING n"))
    assert (len(kept["rows"]), kept["row_count"], kept["truncated"]) == (20, 1000, True)
    assert await session.fetchval("SELECT count(*) FROM t") == 1000
    kept = table_of(await postgres("SELECT add(n) FROM t"))
    assert (len(kept["rows"]), kept["row_count"], kept["truncated"]) == (20, 1000, True)
    assert await session.fetchval("SELECT count(*) FROM t") == 2000


async def test_a_huge_result_is_not_loaded(postgres: Run, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    """200 MB: a few rows come over the wire."""
    came = 0
    write = asyncio.StreamWriter.write

    def counted(self: asyncio.StreamWriter, sent: bytes) -> None:
        nonlocal came
        came += len(sent)
        write(self, sent)

    monkeypatch.setattr(asyncio.StreamWriter, "write", counted)
    kept = table_of(await postgres("SELECT repeat('x', 20000) FROM generate_series(1, 10000)"))
    assert (kept["row_count"], kept["truncated"]) == (10_000, True)
    assert came < 1_000_000


async def test_a_statement_that_can_not_run_in_a_transaction_runs(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int)")
    await session.execute(
        "CREATE PROCEDURE p(INOUT n int) LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (n); COMMIT; n := 2; END'"
    )
    for statement in ("VACUUM t", "CREATE INDEX CONCURRENTLY i ON t (n)", "DO 'BEGIN COMMIT; END'"):
        assert table_of(await postgres(statement))["row_count"] == 0
    assert rows_of(await postgres("/* now */ CALL p($1)", 1)) == [[2]]


async def test_an_error_at_the_commit_is_an_error(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO t VALUES (1)")
    said = sentence_of(await postgres("INSERT INTO t VALUES (1) RETURNING n"), ErrorType.SQL_ERROR)
    assert "SQLSTATE 23505" in said
    assert await session.fetchval("SELECT count(*) FROM t") == 1


async def test_notices_and_a_line_about_rows_and_time_go_to_the_log(postgres: Run):
    log = Written()
    await postgres("DO 'BEGIN RAISE NOTICE ''half way''; END'", log=log)
    await postgres("SELECT generate_series(1, 12)", log=log)
    notice, none, twelve = log.text.splitlines()
    assert notice == "NOTICE: half way"
    assert none.startswith("0 rows in ")
    assert twelve.startswith("12 rows in ")
    assert twelve.endswith(" ms")


async def test_the_error_for_a_value_that_python_can_not_hold_has_advice(postgres: Run):
    said = sentence_of(await postgres("SELECT '4000-01-01 BC'::date"), ErrorType.SQL_ERROR)
    assert "column::text" in said


async def test_duetimes_own_database_is_refused_under_any_name(
    executor: SqlExecutor, connections: Connections, database: str
):
    async with Proxy(await emptied_database()).serving() as own:
        connections.urls["it"] = own
        for _ in range(2):
            said = sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)
            assert said.startswith("This is Duetime's own database")


async def test_duetimes_own_tables_are_found_in_any_schema(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE SCHEMA hidden; CREATE TABLE hidden.shard_epochs (); CREATE TABLE hidden.open_runs ()")
    try:
        sentence_of(await postgres("SELECT 1"), ErrorType.BLOCKED_TARGET)
    finally:
        await session.execute("DROP SCHEMA hidden CASCADE")


async def test_duetimes_own_address_is_refused_before_it_is_called(connections: Connections, data: Path):
    own = SqlExecutor(connections.find, OwnDatabase(None, "postgresql://other@db.invalid/app"), SqlLimits(), SqlRules())
    connections.urls["it"] = "postgresql://me@db.invalid:5432/app"
    sentence_of(await own.execute(attempt_of("SELECT 1")), ErrorType.BLOCKED_TARGET)
    await own.stop()


async def test_the_error_of_a_failed_connection_does_not_have_the_password(
    executor: SqlExecutor, connections: Connections, url: str
):
    closed = asyncio.get_running_loop()
    server = await closed.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    missing = url.replace("/duetime_sql_jobs_", "/no_such_")
    for target, says in [
        (f"postgresql://me:s3cret@127.0.0.1:{port}/app", "Connection refused"),
        ("postgresql://me:s3cret@db.invalid/app", "could not be resolved"),
        (missing, "does not exist"),
    ]:
        connections.urls["it"] = target
        log = Written()
        said = sentence_of(await executor.execute(attempt_of("SELECT 1", log=log)), ErrorType.CONNECTION_ERROR)
        assert says in said
        assert "s3cret" not in said + log.text


async def test_a_server_that_does_not_respond_is_a_timeout(executor: SqlExecutor, connections: Connections):
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    connections.urls["it"] = f"postgresql://me@127.0.0.1:{server.sockets[0].getsockname()[1]}/app"
    sentence_of(await executor.execute(attempt_of("SELECT 1", timeout_seconds=0.1)), ErrorType.TIMEOUT)
    server.close()


async def test_no_password_of_the_environment_goes_to_a_server(
    executor: SqlExecutor, connections: Connections, monkeypatch: pytest.MonkeyPatch
):
    """The password belongs to another server."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8 + 0)
        await reader.read(1000)
        writer.write(b"R\0\0\0\x08\0\0\0\x03")  # requests a clear-text password
        received.append(await reader.read(1000))
        writer.close()

    monkeypatch.setenv("PGPASSWORD", "s3cret")
    monkeypatch.setenv("PGSSLMODE", "disable")
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections.urls["it"] = f"postgresql://me@127.0.0.1:{port}/app?sslmode=disable"
    sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.CONNECTION_ERROR)
    assert received == [b"p\0\0\0\x05\0"]
    server.close()


async def test_now_is_the_current_time(postgres: Run):
    ((now,),) = rows_of(await postgres("SELECT now()"))
    assert abs((datetime.now(UTC) - datetime.fromisoformat(now)).total_seconds()) < 60
