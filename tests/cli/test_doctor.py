"""`duetime doctor` and `duetime cluster`: a table for people, a list for machines, and the exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cluster.processes import Server
from served import served
from store.postgres_server import connected, fresh_database, server_url


def test_a_folder_with_a_running_node_has_no_problem_and_exits_0(alone: Any, tmp_path: Path) -> None:
    with served(tmp_path):
        checks = alone.json("doctor", "--data", "data")
        shown = alone.ok("doctor", "--data", "data")
    assert {check["status"] for check in checks} == {"ok"}
    assert all(set(check) == {"check", "status", "found", "advice"} for check in checks)
    assert {check["advice"] for check in checks} == {None}
    for check in checks:
        assert check["check"] in shown
        assert check["found"].split(" ")[0] in shown


def test_warnings_alone_exit_0(alone: Any) -> None:
    alone.ok("migrate", "--data", "there")
    checks = {check["check"]: check["status"] for check in alone.json("doctor", "--data", "there")}
    assert checks["node"] == "warning"


def test_a_problem_exits_1_with_all_findings_on_stdout(alone: Any) -> None:
    for flags in ([], ["--json"]):
        result = alone("doctor", *flags)  # ./duetime-data
        assert result.exit_code == 1
        assert "There is no database at duetime-data/duetime.db." in result.stdout
        assert "Name its folder with --data" in result.stdout
        assert result.stderr == ""


def test_a_folder_and_a_url_together_are_bad_usage(alone: Any) -> None:
    assert alone("doctor", "--data", "there", "--database-url", "postgresql://a@b/c").exit_code == 2


def test_a_database_is_named_by_flag_or_environment_and_the_password_is_not_shown(alone: Any) -> None:
    url = "postgresql://ann:s3cret@127.0.0.1:1/shop"
    for result in (alone("doctor", "--database-url", url), alone("doctor", "--json", env={"DATABASE_URL": url})):
        assert result.exit_code == 1
        assert "127.0.0.1:1/shop can't be reached" in result.stdout
        assert "s3cret" not in result.stdout + result.stderr


@pytest.mark.slow
async def test_a_postgresql_database_is_checked(alone: Any) -> None:
    async with fresh_database() as url:
        await asyncio.to_thread(alone.ok, "migrate", "--database-url", url)
        result = await asyncio.to_thread(alone, "doctor", "--database-url", url, "--json")
    checks = {check["check"]: check for check in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert checks["schema"]["status"] == "ok"
    assert checks["nodes"]["found"] == "No node is alive: nothing runs."


async def set_fsync(admin: asyncpg.Connection, value: str) -> None:
    await admin.execute(f"ALTER SYSTEM SET fsync = {value}")
    await admin.execute("SELECT pg_reload_conf()")
    while await admin.fetchval("SHOW fsync") != value:
        assert not admin.is_closed()


@asynccontextmanager
async def fsync_on() -> AsyncIterator[None]:
    """Turns fsync on: the server of these tests runs without it, which the doctor reports as a problem."""
    async with connected(server_url()) as admin:
        before = await admin.fetchval("SHOW fsync")
        await set_fsync(admin, "on")
        try:
            yield
        finally:
            await set_fsync(admin, before)


@pytest.mark.slow
async def test_a_database_with_a_running_node_has_no_problem_and_exits_0(alone: Any, tmp_path: Path) -> None:
    async with fresh_database() as url, fsync_on():
        node = Server(tmp_path / "node", DATABASE_URL=url)
        try:
            await asyncio.to_thread(node.start)
            result = await asyncio.to_thread(alone, "doctor", "--database-url", url, "--json")
        finally:
            node.close()
    checks = json.loads(result.stdout)
    assert [check for check in checks if check["status"] != "ok"] == []
    assert result.exit_code == 0


def test_the_cluster_is_shown_with_its_one_node(duetime: Any) -> None:
    cluster = duetime.json("cluster")
    (node,) = cluster["nodes"]
    shown = duetime.ok("cluster")
    for word in (node["name"], "alerts, api, timer, worker", "never", "64", "trusted", "none of 64 shards"):
        assert word in shown
