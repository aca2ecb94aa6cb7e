"""Temporary errors of a database are retried. Errors in the statement are not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.domain.retry import is_retryable
from duetime.executors.sql.problems import server_refused, sqlite_refused
from executors.sql.conftest import Run, sentence_of

_RAISE = "DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{state}'; END $$"


@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "53200", "53300", "55006", "55P03", "57P03"])
async def test_temporary_errors_are_busy(postgres: Run, state: str):
    assert f"SQLSTATE {state}" in sentence_of(await postgres(_RAISE.format(state=state)), ErrorType.DATABASE_BUSY)


@pytest.mark.parametrize("state", ["22012", "23505", "42703", "42501", "55000", "54001", "57014", "P0001", "XX000"])
async def test_permanent_errors_are_not_busy(postgres: Run, state: str):
    assert f"SQLSTATE {state}" in sentence_of(await postgres(_RAISE.format(state=state)), ErrorType.SQL_ERROR)


async def test_a_lock_that_is_not_available_is_busy(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
    async with session.transaction():
        await session.execute("SELECT * FROM t FOR UPDATE")
        said = sentence_of(await postgres("SELECT * FROM t FOR UPDATE NOWAIT"), ErrorType.DATABASE_BUSY)
    assert "could not obtain lock" in said


@pytest.mark.parametrize("problem", [asyncpg.AdminShutdownError, asyncpg.CrashShutdownError])
def test_a_server_that_shuts_down_is_busy(problem: type[asyncpg.PostgresError]):
    assert server_refused(problem("bye")).error_type is ErrorType.DATABASE_BUSY


def test_a_locked_file_is_busy(tmp_path: Path):
    file = str(tmp_path / "it.db")
    with closing(apsw.Connection(file)) as one, closing(apsw.Connection(file)) as other:
        one.execute("CREATE TABLE t (n); BEGIN IMMEDIATE")
        with pytest.raises(apsw.BusyError) as locked:
            other.execute("INSERT INTO t VALUES (1)")
        refused = sqlite_refused(locked.value, "INSERT INTO t VALUES (1)")
        assert refused.error_type is ErrorType.DATABASE_BUSY
        assert "SQLITE_BUSY" in refused.message
        reader = one.execute("COMMIT; INSERT INTO t VALUES (1), (2); SELECT n FROM t")
        next(reader)
        with pytest.raises(apsw.LockedError) as under_way:
            one.execute("DROP TABLE t")
        assert sqlite_refused(under_way.value, "DROP TABLE t").error_type is ErrorType.DATABASE_BUSY
        reader.close(True)


def test_a_busy_database_is_retried_and_an_error_is_not():
    assert is_retryable(ErrorType.DATABASE_BUSY, None)
    assert not is_retryable(ErrorType.SQL_ERROR, None)
