from __future__ import annotations

import asyncio

import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits
from executors.sql.conftest import Run, list_running, rows_of, until


@pytest.mark.parametrize("limits", [SqlLimits(connections=1)])
async def test_nothing_leaks_from_one_job_into_the_next(postgres: Run, session: asyncpg.Connection):
    first = rows_of(await postgres("SELECT pg_backend_pid()"))
    await postgres("CREATE TEMP TABLE left_behind (n int)")
    await postgres("SET search_path = nowhere")
    await postgres("SELECT pg_advisory_lock(42)")
    await postgres("LISTEN left_behind")
    look = (
        "SELECT pg_backend_pid(), to_regclass('left_behind'), current_setting('search_path'), "
        "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), "
        "(SELECT count(*) FROM pg_listening_channels())"
    )
    assert rows_of(await postgres(look)) == [[*first[0], None, '"$user", public', 0, 0]]


@pytest.mark.parametrize("limits", [SqlLimits(connections=2)])
async def test_no_more_connections_are_open_than_the_limit_says(
    executor: SqlExecutor, postgres: Run, session: asyncpg.Connection
):
    outcomes = await asyncio.gather(*(postgres("SELECT pg_backend_pid(), pg_sleep(0.02)") for _ in range(8)))
    assert len({rows_of(outcome)[0][0] for outcome in outcomes}) == 2
    said = await asyncio.gather(*(postgres("SELECT pg_sleep(1)", timeout_seconds=0.3) for _ in range(3)))
    assert [outcome.error_type for outcome in said] == [ErrorType.TIMEOUT] * 3


async def test_tenants_do_not_share_connections(postgres: Run, session: asyncpg.Connection):
    await postgres("SELECT 1", tenant="one")
    ((pid,),) = rows_of(await postgres("SELECT pg_backend_pid()", tenant="two"))
    running = await list_running(session, "%")
    assert len(running) == 2
    assert pid in running


@pytest.mark.parametrize("limits", [SqlLimits(pools=2)])
async def test_the_pools_used_longest_ago_are_closed(postgres: Run, session: asyncpg.Connection):
    used = [rows_of(await postgres("SELECT pg_backend_pid()", tenant=f"tenant-{number}"))[0][0] for number in range(5)]

    async def are_closed() -> bool:
        return not set(used[:2]) & set(await list_running(session, "%"))

    await until(are_closed)
    assert used[4] in await list_running(session, "%")


@pytest.mark.parametrize("limits", [SqlLimits(idle_seconds=0.05)])
async def test_idle_connections_are_closed(postgres: Run, session: asyncpg.Connection):
    await postgres("SELECT 1")

    async def is_closed() -> bool:
        return not await list_running(session, "%")

    await until(is_closed)
    assert rows_of(await postgres("SELECT 1")) == [[1]]


async def test_a_kept_connection_that_the_server_closed_is_replaced(postgres: Run, session: asyncpg.Connection):
    (pid,) = rows_of(await postgres("SELECT pg_backend_pid()"))[0]
    await session.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)
    assert rows_of(await postgres("SELECT 1")) == [[1]]
