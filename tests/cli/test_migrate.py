"""`duetime migrate`: in separate processes, several at once, and killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from duetime.store.postgres import blocks as postgres_blocks
from duetime.store.postgres.schema import LOCK, get_versions
from duetime.store.sqlite import blocks as sqlite_blocks
from node_forks import fork_server
from served import served
from store.later_schema import LATER, write_migrations
from store.postgres_server import connected, fresh_database

NEWEST = postgres_blocks.load_migrations()[-1][0]
NEWEST_SQLITE = sqlite_blocks.load_migrations()[-1][0]
SECRET = "s3cret"

pytestmark = pytest.mark.slow  # each command is a process


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def migrate(folder: Path, *args: str, **env: str) -> Ended:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DUETIME_", "DATABASE_"))}
    if "PYTHONPATH" not in env:
        done = await asyncio.to_thread(fork_server.run, ["duetime", "migrate", *args], folder, inherited | env)
        return Ended(done.returncode, done.stdout, done.stderr)
    process = await asyncio.create_subprocess_exec(  # the interpreter reads the variable as it starts
        sys.executable, "-m", "duetime.cli.main", "migrate", *args, cwd=folder, env=inherited | env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return Ended(int(process.returncode or 0), out.decode(), err.decode())


def with_migrations(folder: Path, store: str, migrations: Path) -> dict[str, str]:
    """Returns the environment of a command with these additional migrations."""
    path = folder / "python"
    path.mkdir()
    (path / "sitecustomize.py").write_text(
        f"import pathlib\nfrom duetime.store.{store} import blocks\n"
        f"blocks.MIGRATIONS = pathlib.Path({str(migrations)!r})\n"
    )
    return {"PYTHONPATH": str(path)}


def version_of(folder: Path) -> int:
    return int(apsw.Connection(str(folder / "duetime.db")).pragma("user_version"))


# PostgreSQL


async def test_an_empty_database_is_migrated_once(tmp_path: Path):
    async with fresh_database() as url:
        first = await migrate(tmp_path, "--database-url", url)
        assert (first.code, first.err) == (0, "")
        assert first.out.endswith(f"had no schema, and now has schema {NEWEST}.\n")
        again = await migrate(tmp_path, DATABASE_URL=url)
        assert again.code == 0
        assert again.out.endswith(f"already has schema {NEWEST}: nothing to do.\n")
        second_result = (await migrate(tmp_path, "--database-url", url, "--json")).json
        assert second_result | {"database": ""} == {"database": "", "from": NEWEST, "to": NEWEST, "changed": False}
        async with connected(url) as connection:
            assert await get_versions(connection) == (NEWEST, NEWEST)
            assert await connection.fetchval("SELECT count(*) FROM shards") == 64


async def test_missing_tables_of_leases_are_created(tmp_path: Path):
    async with fresh_database() as url:
        await migrate(tmp_path, "--database-url", url)
        async with connected(url) as connection:
            await connection.execute("DROP TABLE leases, shards")
            mended = await migrate(tmp_path, "--database-url", url)
            assert mended.code == 0
            assert "the tables of leases were missing and have been created" in mended.out
            assert await connection.fetchval("SELECT count(*) FROM shards") == 64


async def test_concurrent_migrations_converge(tmp_path: Path):
    async with fresh_database() as url:
        async with connected(url) as connection, connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            several = [asyncio.create_task(migrate(tmp_path, "--database-url", url, "--json")) for _ in range(3)]
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while await connection.fetchval(waiting) < 3:
                assert not any(task.done() for task in several)
        ended = await asyncio.gather(*several)
        assert [one.code for one in ended] == [0, 0, 0]
        assert sorted(one.json["from"] for one in ended) == [0, NEWEST, NEWEST]
        async with connected(url) as connection:
            assert await connection.fetchval("SELECT count(*) FROM schema_versions") == NEWEST
            assert await connection.fetchval("SELECT count(*) FROM shards") == 64


@pytest.mark.parametrize("point", ["in_migration", "in_migration:2"])
async def test_a_kill_between_two_migrations_changes_nothing(tmp_path: Path, point: str):
    """All missing migrations are one transaction."""
    later = with_migrations(tmp_path, "postgres", write_migrations(tmp_path / "migrations", postgres_blocks, *LATER))
    async with fresh_database() as url:
        await migrate(tmp_path, "--database-url", url)
        killed = await migrate(tmp_path, "--database-url", url, DUETIME_CRASH_AT=point, **later)
        assert killed.code == -signal.SIGKILL
        async with connected(url) as connection:
            assert await get_versions(connection) == (NEWEST, NEWEST)
        again = (await migrate(tmp_path, "--database-url", url, "--json", **later)).json
        assert (again["from"], again["to"], again["changed"]) == (NEWEST, NEWEST + len(LATER), True)


@pytest.mark.parametrize(("point", "reached"), [("in_migration", 0), ("after_migration", NEWEST)])
async def test_a_killed_migration_is_continued(tmp_path: Path, point: str, reached: int):
    async with fresh_database() as url:
        killed = await migrate(tmp_path, "--database-url", url, DUETIME_CRASH_AT=point)
        assert killed.code == -signal.SIGKILL
        again = (await migrate(tmp_path, "--database-url", url, "--json")).json
        assert (again["from"], again["to"], again["changed"]) == (reached, NEWEST, True)
        async with connected(url) as connection:
            assert await get_versions(connection) == (NEWEST, NEWEST)
            assert await connection.fetchval("SELECT count(*) FROM shards") == 64


async def test_a_newer_schema_is_refused(tmp_path: Path):
    async with fresh_database() as url:
        await migrate(tmp_path, "--database-url", url)
        async with connected(url) as connection:
            await connection.execute("INSERT INTO schema_versions (version) VALUES (99)")
        refused = await migrate(tmp_path, "--database-url", url)
        assert (refused.code, refused.out) == (1, "")
        assert f"has schema 99, this Duetime knows {NEWEST} at most" in refused.err
        assert "Install that version" in refused.err


async def test_a_conflicting_table_is_reported_in_a_sentence(tmp_path: Path):
    async with fresh_database() as url:
        async with connected(url) as connection:
            await connection.execute("CREATE TABLE jobs (in_the_way integer)")
        refused = await migrate(tmp_path, "--database-url", url)
        assert (refused.code, refused.out) == (1, "")
        assert 'can\'t be used: relation "jobs" already exists.' in refused.err
        assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://ann:{SECRET}@127.0.0.1:1/shop", "the database 127.0.0.1:1/shop can't be used: "),
        (f"postgresql://ann:{SECRET}@no.such.host.invalid/shop", "the database no.such.host.invalid/shop can't be"),
        (f"postgresql://ann@127.0.0.1:1/shop?password={SECRET}", "the database 127.0.0.1:1/shop can't be used: "),
    ],
)
async def test_an_unreachable_database_is_named_without_the_password(tmp_path: Path, url: str, says: str):
    refused = await migrate(tmp_path, DATABASE_URL=url)
    assert (refused.code, refused.out) == (1, "")
    assert says in refused.err
    assert len(refused.err.splitlines()) == 1
    assert SECRET not in refused.err


async def test_a_password_that_looks_like_a_host_is_refused_without_showing_it(tmp_path: Path):
    refused = await migrate(tmp_path, "--database-url", f"postgresql://ann:12/{SECRET}@db/shop")
    assert refused.code == 2
    assert SECRET not in refused.err


# SQLite


async def test_a_folder_is_migrated_once(tmp_path: Path):
    first = await migrate(tmp_path, "--data", "there")
    assert (first.code, first.out) == (0, f"there/duetime.db had no schema, and now has schema {NEWEST_SQLITE}.\n")
    again = await migrate(tmp_path, DUETIME_DATA="there")
    assert (again.code, again.out) == (0, f"there/duetime.db already has schema {NEWEST_SQLITE}: nothing to do.\n")
    assert version_of(tmp_path / "there") == NEWEST_SQLITE


async def test_a_folder_takes_precedence_over_a_url_in_the_environment(tmp_path: Path):
    done = await migrate(tmp_path, "--data", "there", "--json", DATABASE_URL="postgresql://nobody@127.0.0.1:1/x")
    assert done.json == {"database": "there/duetime.db", "from": 0, "to": NEWEST_SQLITE, "changed": True}


async def test_a_folder_and_a_url_together_are_bad_usage(tmp_path: Path):
    refused = await migrate(tmp_path, "--data", "there", "--database-url", "postgresql://a@b/c")
    assert (refused.code, refused.err) == (2, "duetime: give --database-url or --data, not both\n")


async def test_concurrent_migrations_of_a_folder_converge(tmp_path: Path):
    ended = await asyncio.gather(*(migrate(tmp_path, "--data", "there", "--json") for _ in range(4)))
    assert [one.code for one in ended] == [0, 0, 0, 0], ended
    assert sorted(one.json["from"] for one in ended) == [0] + [NEWEST_SQLITE] * 3
    assert version_of(tmp_path / "there") == NEWEST_SQLITE


@pytest.mark.parametrize(
    ("point", "reached"), [("in_migration", 0), ("after_migration", 1), ("in_migration:2", 1), ("after_migration:2", 2)]
)
async def test_a_killed_migration_of_a_folder_is_continued(tmp_path: Path, point: str, reached: int):
    later = with_migrations(tmp_path, "sqlite", write_migrations(tmp_path / "migrations", sqlite_blocks, *LATER))
    killed = await migrate(tmp_path, "--data", "there", DUETIME_CRASH_AT=point, **later)
    assert killed.code == -signal.SIGKILL
    again = (await migrate(tmp_path, "--data", "there", "--json", **later)).json
    assert (again["from"], again["to"]) == (reached, NEWEST_SQLITE + len(LATER))
    assert version_of(tmp_path / "there") == NEWEST_SQLITE + len(LATER)


async def test_a_migrated_folder_is_refused_by_the_older_version(tmp_path: Path):
    await migrate(tmp_path, "--data", "there")
    later = with_migrations(tmp_path, "sqlite", write_migrations(tmp_path / "migrations", sqlite_blocks, *LATER))
    done = await migrate(tmp_path, "--data", "there", **later)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"there/duetime.db was migrated from schema {NEWEST_SQLITE} to {NEWEST_SQLITE + len(LATER)}.\n"
    refused = await migrate(tmp_path, "--data", "there")
    assert refused.code == 1
    assert f"has schema {NEWEST_SQLITE + len(LATER)}, this Duetime knows {NEWEST_SQLITE} at most" in refused.err


async def test_a_folder_with_a_running_node_is_not_migrated(tmp_path: Path):
    with served(tmp_path):
        refused = await migrate(tmp_path, "--data", "data")
    assert (refused.code, refused.out) == (1, "")
    assert "data is in use by another Duetime (process " in refused.err


async def test_a_newer_schema_in_a_folder_is_refused(tmp_path: Path):
    await migrate(tmp_path, "--data", "there")
    apsw.Connection(str(tmp_path / "there" / "duetime.db")).pragma("user_version", 99)
    refused = await migrate(tmp_path, "--data", "there")
    assert (refused.code, refused.out) == (1, "")
    assert f"has schema 99, this Duetime knows {NEWEST_SQLITE} at most" in refused.err


async def test_a_file_that_is_not_a_database_is_reported_in_a_sentence(tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "duetime.db").write_bytes(b"this is no database, " * 100)
    refused = await migrate(tmp_path, "--data", "there")
    assert refused.code == 1
    assert "the database is damaged: " in refused.err


async def test_a_folder_that_cannot_be_created_is_reported_in_a_sentence(tmp_path: Path):
    (tmp_path / "there").write_text("a file")
    refused = await migrate(tmp_path, "--data", "there/below")
    assert (refused.code, refused.out) == (1, "")
    assert "there/below can't be used: " in refused.err
    assert len(refused.err.splitlines()) == 1
