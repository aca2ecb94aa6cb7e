"""Statements on SQLite files run in processes that can be killed without harm to the file or the node."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.script.system import descendants
from duetime.executors.sql import sqlite as processes
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits
from executors.script.watching import on_linux
from executors.sql.conftest import Connections, Run, rows_of, sentence_of, table_of, until

pytestmark = on_linux

LONG_STEP = "instr(zeroblob(16000000), zeroblob(8000000) || x'01')"
ENDLESS_INSERT = "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r"


def server_of(executor: SqlExecutor) -> int:
    pid = executor.sqlite.link.pid
    assert pid is not None
    return pid


async def until_it_runs(executor: SqlExecutor) -> int:
    """Returns the process id of the one running statement."""

    async def runs() -> bool:
        pid = executor.sqlite.link.pid
        return pid is not None and len(descendants(pid)) == 1

    await until(runs)
    return descendants(server_of(executor))[0]


@pytest.mark.parametrize("statement", [f"SELECT {LONG_STEP}", f"INSERT INTO t SELECT {LONG_STEP}"])
async def test_an_ended_statement_has_no_process(sqlite: Run, executor: SqlExecutor, statement: str):
    await sqlite("CREATE TABLE t (n)")
    sentence_of(await sqlite(statement, timeout_seconds=1), ErrorType.TIMEOUT)
    assert descendants(server_of(executor)) == [], "neither one that runs nor a zombie"
    assert rows_of(await sqlite("SELECT count(*) FROM t")) == [[0]]


async def test_a_cancelled_statement_has_no_process(sqlite: Run, executor: SqlExecutor):
    running = asyncio.create_task(sqlite(f"SELECT {LONG_STEP}", timeout_seconds=100))
    await until_it_runs(executor)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert descendants(server_of(executor)) == []


async def test_a_process_that_is_killed_while_it_writes_leaves_the_file_as_it_was(
    sqlite: Run, executor: SqlExecutor, connections: Connections, file: Path
):
    await sqlite("CREATE TABLE t (n)")
    await sqlite("INSERT INTO t VALUES (7)")
    running = asyncio.create_task(sqlite(ENDLESS_INSERT, timeout_seconds=100))
    pid = await until_it_runs(executor)

    async def spills() -> bool:
        return os.stat(file).st_size > 100 * 4096  # the cache is full, so that pages are written before the commit

    await until(spills)
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in sentence_of(await running, ErrorType.INTERNAL_ERROR)
    connections.urls["it"] = f"sqlite:///{file.name}?mode=ro"
    assert rows_of(await sqlite("SELECT n FROM t")) == [[7]], "whoever may only read it finds it rolled back"
    assert rows_of(await sqlite("PRAGMA integrity_check")) == [["ok"]]


async def test_a_fork_server_that_was_killed_is_replaced(sqlite: Run, executor: SqlExecutor, file: Path):
    """Its statements have ended with it, and are not retried here, because they had begun."""
    await sqlite("CREATE TABLE t (n)")
    running = asyncio.create_task(sqlite(f"INSERT INTO t SELECT {LONG_STEP}", timeout_seconds=100))
    with closing(apsw.Connection(str(file))) as look:

        async def is_writing() -> bool:
            try:
                look.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                return True
            look.execute("ROLLBACK")
            return False

        await until(is_writing)
        server = server_of(executor)
        os.kill(server, signal.SIGKILL)
        sentence_of(await running, ErrorType.INTERNAL_ERROR)
        look.execute("BEGIN IMMEDIATE; ROLLBACK")
    assert rows_of(await sqlite("SELECT 1")) == [[1]]
    assert server_of(executor) != server


async def test_a_fork_server_that_hangs_is_replaced(
    sqlite: Run, executor: SqlExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(processes, "_KILL_SECONDS", 0.5)
    await sqlite("SELECT 1")
    server = server_of(executor)
    os.kill(server, signal.SIGSTOP)
    sentence_of(await sqlite("SELECT 1", timeout_seconds=1), ErrorType.TIMEOUT)
    assert rows_of(await sqlite("SELECT 1")) == [[1]]
    assert server_of(executor) != server


@pytest.mark.parametrize("limits", [SqlLimits(file_bytes=1_000_000)])
async def test_a_file_grows_to_its_limit_and_no_further(sqlite: Run, file: Path):
    await sqlite("CREATE TABLE t (n)")
    assert "SQLITE_FULL" in sentence_of(await sqlite(ENDLESS_INSERT), ErrorType.SQL_ERROR)
    assert os.stat(file).st_size <= 1_000_000
    assert table_of(await sqlite("INSERT INTO t VALUES (1)"))["row_count"] == 1


@pytest.mark.parametrize("limits", [SqlLimits(memory_bytes=16 * 1024 * 1024)])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT " + ", ".join(["randomblob(15000000)"] * 40),
        "WITH RECURSIVE r(n, b) AS (SELECT 1, randomblob(9000000) UNION ALL SELECT n + 1, b || x'00' FROM r LIMIT 30) "
        "SELECT max(b), min(b), n FROM r GROUP BY n",
    ],
)
async def test_memory_is_bounded(sqlite: Run, statement: str):
    assert "SQL_SQLITE_MEMORY_LIMIT" in sentence_of(await sqlite(statement), ErrorType.SQL_ERROR)
    assert rows_of(await sqlite("SELECT 1")) == [[1]]


async def test_nothing_of_the_nodes_environment_reaches_the_processes(
    sqlite: Run, executor: SqlExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DUETIME_JWT_SECRET", "s3cret")
    await sqlite("SELECT 1")
    with open(f"/proc/{server_of(executor)}/environ", "rb") as environ:  # noqa: ASYNC230 (of the kernel's memory)
        assert b"s3cret" not in environ.read()
