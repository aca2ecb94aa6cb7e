from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits
from duetime.ports.executor import NotSent
from executors.sql.conftest import Connections, Run, Written, attempt_of, rows_of, sentence_of, table_of, until
from patience import PATIENCE_SECONDS

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT sum(n) FROM r"


async def test_rows_are_kept_as_a_small_table(sqlite: Run):
    outcome = await sqlite("SELECT 1 AS n, 'x' AS t, x'ff00' AS b, NULL AS e")
    assert outcome.response == (
        '{"columns":["n","t","b","e"],"rows":[[1,"x","/wA=",null]],"row_count":1,"truncated":false}'
    )


async def test_a_statement_without_rows_returns_the_number_of_changed_rows(sqlite: Run):
    empty = {"columns": [], "rows": [], "truncated": False}
    assert table_of(await sqlite("CREATE TABLE t (n)")) == empty | {"row_count": 0}
    assert table_of(await sqlite("INSERT INTO t VALUES (1), (2)")) == empty | {"row_count": 2}
    assert table_of(await sqlite("VACUUM")) == empty | {"row_count": 0}


async def test_json_values_are_bound_in_order(sqlite: Run):
    outcome = await sqlite("SELECT ?, ?, ?, ?, ?, ?", None, True, 2**62, 0.5, "ü", {"a": [1]})
    assert rows_of(outcome) == [[None, 1, 2**62, 0.5, "ü", '{"a":[1]}']]
    said = sentence_of(await sqlite("SELECT ?", 1, 2), ErrorType.SQL_ERROR)
    assert said.startswith("The statement has 1 parameters, the job gives 2.")
    assert "Parameter 1" in sentence_of(await sqlite("SELECT ?", 2**63), ErrorType.SQL_ERROR)


@pytest.mark.parametrize("rest", ["INSERT INTO t VALUES (2)", "-- a\n/* b */ INSERT INTO t VALUES (2)", "garbage"])
async def test_several_statements_are_refused(sqlite: Run, rest: str):
    await sqlite("CREATE TABLE t (n)")
    said = sentence_of(await sqlite(f"INSERT INTO t VALUES (1); {rest}"), ErrorType.SQL_ERROR)
    assert "one statement" in said
    assert rows_of(await sqlite("SELECT count(*) FROM t")) == [[0]]


@pytest.mark.parametrize("end", [";", " ; -- no more", ";;\n", "; /* no; more */", " -- SELECT 2;"])
async def test_comments_and_blanks_may_follow(sqlite: Run, end: str):
    assert rows_of(await sqlite(f"SELECT 1{end}")) == [[1]]


async def test_an_empty_statement_is_refused(sqlite: Run):
    assert "empty" in sentence_of(await sqlite("-- nothing"), ErrorType.SQL_ERROR)


async def test_an_error_has_the_message_and_code_of_sqlite(sqlite: Run):
    await sqlite("CREATE TABLE t (n UNIQUE)")
    await sqlite("INSERT INTO t VALUES (1)")
    assert sentence_of(await sqlite("INSERT INTO t VALUES (1)"), ErrorType.SQL_ERROR) == (
        "UNIQUE constraint failed: t.n (SQLITE_CONSTRAINT_UNIQUE)"
    )
    assert sentence_of(await sqlite("SELECT 'ü', nope"), ErrorType.SQL_ERROR) == (
        "no such column: nope, at character 13 (SQLITE_ERROR)"
    )


@pytest.mark.parametrize("limits", [SqlLimits(rows=5)])
async def test_a_statement_runs_to_its_end_however_few_rows_are_kept(sqlite: Run):
    await sqlite("CREATE TABLE t (n)")
    kept = table_of(
        await sqlite(
            "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 100) SELECT n FROM r "
            "RETURNING n"
        )
    )
    assert (len(kept["rows"]), kept["row_count"], kept["truncated"]) == (5, 100, True)
    assert rows_of(await sqlite("SELECT count(*) FROM t")) == [[100]]


async def test_a_value_that_would_fill_the_memory_is_an_error(sqlite: Run):
    assert "SQLITE_TOOBIG" in sentence_of(await sqlite("SELECT zeroblob(900000000)"), ErrorType.SQL_ERROR)


async def test_the_error_for_text_that_is_not_utf8_has_advice(sqlite: Run):
    assert "CAST" in sentence_of(await sqlite("SELECT CAST(x'ff' AS TEXT)"), ErrorType.SQL_ERROR)


async def test_a_line_about_rows_and_time_goes_to_the_log(sqlite: Run):
    log = Written()
    await sqlite("SELECT 1", log=log)
    assert log.text.startswith("1 row in ")


async def test_a_statement_that_takes_too_long_is_stopped(sqlite: Run):
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert "0.2 s" in sentence_of(await sqlite(ENDLESS, timeout_seconds=0.2), ErrorType.TIMEOUT)


async def test_the_event_loop_continues_while_a_statement_runs(sqlite: Run):
    running = asyncio.create_task(sqlite(ENDLESS, timeout_seconds=30))
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancelled_statement_leaves_nothing_behind(sqlite: Run, file: Path):
    await sqlite("CREATE TABLE t (n)")
    insert = "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"
    running = asyncio.create_task(sqlite(insert))
    look = apsw.Connection(str(file))

    async def is_writing() -> bool:
        try:
            look.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return True
        look.execute("ROLLBACK")
        return False

    await until(is_writing)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert list(look.execute("SELECT count(*) FROM t")) == [(0,)]
    look.execute("BEGIN IMMEDIATE")
    look.close()


async def test_a_locked_file_is_waited_for_within_the_time(sqlite: Run, file: Path):
    await sqlite("CREATE TABLE t (n)")
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    said = sentence_of(await sqlite("INSERT INTO t VALUES (1)", timeout_seconds=0.2), ErrorType.TIMEOUT)
    assert "0.2 s" in said
    waiting = asyncio.create_task(sqlite("INSERT INTO t VALUES (1)"))
    await asyncio.sleep(0)
    other.execute("COMMIT")
    assert table_of(await waiting)["row_count"] == 1
    other.close()


async def test_no_statement_runs_once_the_lease_is_in_doubt(sqlite: Run):
    await sqlite("CREATE TABLE t (n)")
    with pytest.raises(NotSent):
        await sqlite("INSERT INTO t VALUES (1)", may_send=lambda: False)
    assert rows_of(await sqlite("SELECT count(*) FROM t")) == [[0]]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("ATTACH '{other}' AS o", "ATTACH"),
        ("ATTACH '' AS o", "ATTACH"),
        ("DETACH main", "DETACH"),
        ("VACUUM INTO '{other}'", "VACUUM INTO"),
        ("/* x */ VACUUM main INTO '{other}'", "VACUUM INTO"),
        ("SELECT load_extension('{other}')", "load_extension"),
        ("PRAGMA writable_schema = ON", "writable_schema"),
        ("PRAGMA journal_mode = DELETE", "journal_mode"),
        ("PRAGMA temp_store_directory = '/'", "temp_store_directory"),
        ("PRAGMA hard_heap_limit = 1", "hard_heap_limit"),
        ("PRAGMA key = 'x'", "key"),
        ("BEGIN", "transaction"),
        ("SAVEPOINT s", "transaction"),
    ],
)
async def test_statements_that_reach_other_files_or_settings_are_refused(
    sqlite: Run, tmp_path: Path, statement: str, says: str
):
    other = tmp_path / "other.db"
    said = sentence_of(await sqlite(statement.format(other=other)), ErrorType.BLOCKED_TARGET)
    assert says in said
    assert not other.exists()


@pytest.mark.parametrize(
    "statement", ["PRAGMA table_info(t)", "PRAGMA user_version = 5", "PRAGMA journal_mode", "ANALYZE"]
)
async def test_pragmas_that_only_read_are_allowed(sqlite: Run, statement: str):
    table_of(await sqlite(statement))


async def test_the_schema_can_not_be_written(sqlite: Run):
    await sqlite("CREATE TABLE t (n)")
    assert (await sqlite("DELETE FROM sqlite_master")).error_type is not None
    assert rows_of(await sqlite("SELECT name FROM sqlite_master")) == [["t"]]


async def test_a_missing_file_is_created_only_with_mode_rwc(
    executor: SqlExecutor, connections: Connections, folder: Path
):
    missing = folder / "default" / "missing.db"
    connections.urls["it"] = "sqlite:///missing.db"
    assert "?mode=rwc" in sentence_of(await executor.execute(attempt_of("SELECT 1")), ErrorType.CONNECTION_ERROR)
    assert not missing.parent.exists()
    connections.urls["it"] = "sqlite:///missing.db?mode=rwc"
    table_of(await executor.execute(attempt_of("CREATE TABLE t (n)")))
    assert (missing.stat().st_mode & 0o777, missing.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    connections.urls["it"] = "sqlite:///missing.db?mode=ro"
    assert "SQLITE_READONLY" in sentence_of(await executor.execute(attempt_of("DROP TABLE t")), ErrorType.SQL_ERROR)


@pytest.mark.parametrize("limits", [SqlLimits(connections=1)])
async def test_no_more_statements_run_at_once_than_the_limit_says(sqlite: Run):
    running = asyncio.create_task(sqlite(ENDLESS, timeout_seconds=600))
    await asyncio.sleep(0)
    said = sentence_of(await sqlite("SELECT 1", timeout_seconds=0.1), ErrorType.TIMEOUT)
    assert "None of the 1 connections" in said
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert rows_of(await sqlite("SELECT 1")) == [[1]]
