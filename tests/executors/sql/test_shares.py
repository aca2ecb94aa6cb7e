"""One tenant's slow statements and many connections: the others' statements run, and their connections stay warm."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import apsw
import asyncpg
import pytest

from duetime.executors.sql import SqlExecutor, SqlLimits
from duetime.executors.sql.sqlite import PLACES
from executors.sql.conftest import Connections, Run, rows_of, task_of


async def test_a_tenant_whose_statements_hold_every_thread_does_not_delay_another(
    executor: SqlExecutor, connections: Connections, limits: SqlLimits, tmp_path: Path
):
    with ExitStack() as locks:
        slow = []
        for number in range(PLACES // limits.connections + 2):
            file = tmp_path / f"{number}.db"
            lock = locks.enter_context(closing(apsw.Connection(str(file))))
            lock.execute("CREATE TABLE t (n); BEGIN EXCLUSIVE")
            connections.urls[f"slow-{number}"] = f"sqlite://{file}"
            slow += [
                task_of("SELECT * FROM t", connection=f"slow-{number}", tenant="hostile", timeout_seconds=60)
                for _ in range(limits.connections)
            ]
        waiting = [asyncio.create_task(executor.execute(task)) for task in slow]
        for _ in range(10):
            await asyncio.sleep(0)  # each is as far as it gets without a thread's answer
        connections.urls["quick"] = f"sqlite://{tmp_path / 'quick.db'}?mode=rwc"
        quick = (executor.execute(task_of("SELECT 1", connection="quick", tenant="other")) for _ in range(10))
        assert [rows_of(outcome) for outcome in await asyncio.gather(*quick)] == [[[1]]] * 10
        assert not any(attempt.done() for attempt in waiting)
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("limits", [SqlLimits(pools=4)])
async def test_many_connections_of_one_tenant_do_not_close_those_of_another(
    executor: SqlExecutor, postgres: Run, connections: Connections, url: str, session: asyncpg.Connection
):
    parts = urlsplit(url)
    user, _, where = parts.netloc.rpartition("@")
    warm = rows_of(await postgres("SELECT pg_backend_pid()", tenant="other"))
    for number in range(8):
        connections.urls[f"c{number}"] = urlunsplit(parts._replace(netloc=f"{user}:{number}@{where}"))
        await postgres("SELECT 1", tenant="hostile", connection=f"c{number}")
    assert rows_of(await postgres("SELECT pg_backend_pid()", tenant="other")) == warm
