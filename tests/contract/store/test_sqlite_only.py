"""The embedded store only: its folder, its file, its disk and its schema."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from duetime.domain.audit import PROMOTED
from duetime.domain.commands import AddKey, CreateJobs, PauseJob, StartNode
from duetime.domain.errors import Conflict, Overloaded
from duetime.domain.instants import MINUTE
from duetime.domain.job import JobStatus
from duetime.domain.states import ErrorType, State
from duetime.ports.store import JobQuery
from duetime.store.blocks import COMMANDS
from duetime.store.sqlite import SqliteStore, StoreUnusable, blocks
from duetime.store.sqlite.blocks import load_blocks, load_migrations
from duetime.store.sqlite.connection import FILE_NAME, migrate, open_connection
from patience import PATIENCE_SECONDS
from processes import child, output_of
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    entry_of,
    execution,
    job_of,
    new_job,
    new_key,
    one,
    spec,
    verified,
)
from snapshot import recount, totals
from store.later_schema import BROKEN, LATER, use_migrations

CHILD = Path(__file__).with_name("child.py")
NEWEST = load_migrations()[-1][0]


async def filled(folder: Path, jobs: int = 300) -> None:
    """A database of some hundred pages, closed."""
    store = SqliteStore(folder)
    await store.start()
    made = tuple(new_job(spec(description="x" * 1500)) for _ in range(jobs))
    await one(store, CreateJobs(NOW, made))
    await store.stop()


def schema_of(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


def fresh_schema(folder: Path) -> list[tuple[object, ...]]:
    folder.mkdir()
    connection = open_connection(folder, writer=True)
    migrate(connection)
    found = schema_of(connection)
    connection.close()
    return found


# The folder's lock


async def test_a_second_process_on_the_folder_is_refused_with_a_message(tmp_path: Path):
    with child(CHILD, "sqlite", str(tmp_path), "create") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        (said,) = output_of(CHILD, "sqlite", str(tmp_path), "open")
        assert said == (
            f"StoreUnusable: {tmp_path / 'data'} is in use by another Duetime (process {process.pid}). "
            "Stop it, or use another folder (--data)."
        )
        assert process.poll() is None


async def test_a_second_store_in_one_process_is_refused_and_the_first_continues(tmp_path: Path):
    first, second = SqliteStore(tmp_path), SqliteStore(tmp_path)
    await first.start()
    with pytest.raises(StoreUnusable, match="is in use by another Duetime"):
        await second.start()
    await add_job(first)
    await first.stop()


async def test_the_lock_is_released_however_the_process_ends(tmp_path: Path):
    with child(CHILD, "sqlite", str(tmp_path), "create") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.kill()
        process.wait()
    store = SqliteStore(tmp_path / "data")
    await store.start()
    await store.stop()


async def test_a_folder_is_free_again_after_a_stop_and_after_a_failed_start(tmp_path: Path):
    await filled(tmp_path)
    good = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnusable):
        await SqliteStore(tmp_path).start()
    (tmp_path / FILE_NAME).write_bytes(good)
    store = SqliteStore(tmp_path)
    await store.start()
    assert await store.count_jobs(JobQuery(TENANT)) == 300
    await store.stop()


async def test_a_missing_folder_is_created(tmp_path: Path):
    store = SqliteStore(tmp_path / "a" / "b")
    await store.start()
    await store.stop()
    assert (tmp_path / "a" / "b" / FILE_NAME).exists()


# A damaged file


@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.9])
async def test_a_damaged_file_is_refused_at_the_start_and_not_changed(tmp_path: Path, part: float):
    await filled(tmp_path)
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    page = int(len(content) * part) // 4096 * 4096
    content[page : page + 4096] = bytes(byte ^ 0xFF for byte in content[page : page + 4096])
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match=r"the database is damaged: .*Restore duetime.db from a backup"):
        await SqliteStore(tmp_path).start()
    assert path.read_bytes() == content


async def test_a_truncated_file_is_refused(tmp_path: Path):
    await filled(tmp_path)
    path = tmp_path / FILE_NAME
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreUnusable, match="the database is damaged"):
        await SqliteStore(tmp_path).start()


# A full disk


async def test_a_full_disk_raises_overloaded_and_loses_nothing_and_writes_continue_afterwards(tmp_path: Path):
    said = output_of(CHILD, "sqlite", str(tmp_path), "full", "2000000")
    assert said[0] == "started"
    refused = [line for line in said if line.startswith("refused ")]
    checks = [line for line in said if line.startswith("check ")]
    acknowledged = [line for line in said[1:] if " " not in line]
    assert len(refused) == len(checks) == 3
    assert all("nothing was" in line and "try again" in line for line in refused)
    assert all("the last write failed" in line for line in checks)
    assert said[-1] == "healed None"
    assert len(acknowledged) > 10

    store = SqliteStore(tmp_path / "data")
    await store.start()
    for job_id in acknowledged:
        await job_of(store, job_id)
    for line in refused:
        assert await store.get_job(TENANT, line.split()[1]) is None
    assert await store.count_jobs(JobQuery(TENANT)) == len(acknowledged)
    assert await totals(store) == await recount(store)
    await store.stop()


# The schema


async def test_a_newer_schema_is_refused_and_not_changed(tmp_path: Path):
    await filled(tmp_path, 3)
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    newest = load_migrations()[-1][0]
    connection.execute(f"PRAGMA user_version = {newest + 1}")
    connection.close()
    with pytest.raises(StoreUnusable, match=f"has schema {newest + 1}, this Duetime knows {newest} at most"):
        await SqliteStore(tmp_path).start()
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    assert connection.pragma("user_version") == newest + 1
    assert connection.execute("SELECT count(*) FROM jobs").get == 3
    connection.close()


def test_migrations_are_numbered_one_by_one():
    assert [number for number, _ in load_migrations()] == list(range(1, len(load_migrations()) + 1))


def test_a_schema_migrated_step_by_step_equals_a_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER)
    fresh = fresh_schema(tmp_path / "fresh")
    for number, _ in load_migrations():
        folder = tmp_path / f"from-{number}"
        folder.mkdir()
        connection = open_connection(folder, writer=True)
        for step, sql in load_migrations()[:number]:
            connection.execute(sql)
            connection.pragma("user_version", step)
        migrate(connection)
        assert schema_of(connection) == fresh
        connection.close()


def test_a_second_migration_changes_nothing(tmp_path: Path):
    fresh = fresh_schema(tmp_path / "fresh")
    connection = open_connection(tmp_path / "fresh", writer=True)
    migrate(connection)
    assert schema_of(connection) == fresh
    connection.close()


async def test_a_migration_keeps_the_rows_and_changes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    await filled(tmp_path, 3)
    newest = use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER)
    store = SqliteStore(tmp_path)
    await store.start()
    assert await store.count_jobs(JobQuery(TENANT)) == 3
    await store.stop()
    with closing(open_connection(tmp_path, writer=False)) as connection:
        assert connection.pragma("user_version") == newest
        assert connection.execute("SELECT name, jobs FROM colors").fetchall() == [("green", 3)]


def test_a_migration_that_fails_changes_nothing_and_those_before_it_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = use_migrations(monkeypatch, tmp_path / "before", blocks, LATER[0])
    schema = fresh_schema(tmp_path / "fresh")
    use_migrations(monkeypatch, tmp_path / "broken", blocks, BROKEN)
    folder = tmp_path / "data"
    folder.mkdir()
    with closing(open_connection(folder, writer=True)) as connection:
        with pytest.raises(apsw.SQLError, match="no_such_table"):
            migrate(connection)
        assert connection.pragma("user_version") == before
        assert schema_of(connection) == schema


NEWEST = blocks.load_migrations()[-1][0]
KILLED_WHILE_MIGRATING = """
import os, signal, sys
from pathlib import Path
from duetime.store.sqlite import blocks
from duetime.store.sqlite.connection import migrate, open_connection

folder, migrations, last = sys.argv[1:]
blocks.MIGRATIONS = Path(migrations)
connection = open_connection(Path(folder), writer=True)

def kill(cursor, statement, bindings):
    if last in statement:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

connection.exec_trace = kill
migrate(connection)
"""


@pytest.mark.parametrize(
    ("statement", "reached"),
    [
        ("CREATE TABLE jobs", 0),
        ("CREATE TABLE promotion", 0),
        ("user_version = 1", 0),
        ("CREATE TABLE job_totals", 1),
        ("UPDATE jobs SET color", NEWEST),
        (f"user_version = {NEWEST + 1}", NEWEST),
        ("INSERT INTO colors", NEWEST + 1),
    ],
)
async def test_a_killed_migration_is_continued_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, reached: int
):
    use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER)
    fresh = fresh_schema(tmp_path / "fresh")
    folder = tmp_path / "killed"
    folder.mkdir()
    command = [sys.executable, "-c", KILLED_WHILE_MIGRATING, str(folder), str(blocks.MIGRATIONS), statement]
    ended = await asyncio.create_subprocess_exec(*command)
    assert await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS) == -9, "no migration has this statement"
    connection = open_connection(folder, writer=True)
    assert connection.pragma("user_version") == reached
    connection.close()
    store = SqliteStore(folder)
    await store.start()
    await add_job(store)
    await store.stop()
    connection = open_connection(folder, writer=True)
    assert schema_of(connection) == fresh
    connection.close()


# The schema allows one execution for each instant, independently of the code above it


async def test_the_schema_allows_one_execution_for_a_job_and_an_instant(tmp_path: Path):
    connection = open_connection(tmp_path, writer=True)
    migrate(connection)
    insert = """
        INSERT INTO executions
            (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint, due_at, attempt, token)
        VALUES (?, x'01', 't', 5, 0, 'schedule', 'QUEUED', 5, 1, 5, 0, 0)
    """
    connection.execute(insert, (b"1",))
    with pytest.raises(apsw.ConstraintError):
        connection.execute(insert, (b"2",))
    connection.close()


# Unreadable definitions


def spoil(folder: Path, job_id: str) -> None:
    """As a newer version could have written it."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    connection.set_busy_timeout(5000)
    connection.execute(
        "UPDATE jobs SET spec = json_insert(spec, '$.moon_phase', 'full') WHERE id = unhex(?, '-')", (job_id,)
    )
    connection.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_an_unreadable_due_job_is_listed_separately_and_shown_with_the_reason(store: SqliteStore, tmp_path: Path):
    jobs = [await add_job(store) for _ in range(3)]
    spoil(tmp_path, jobs[1])
    for _ in range(2):  # a read writes nothing
        timers = await store.list_due_timers(NOW + MINUTE, 10)
        assert [timer.job_id for timer in timers] == [jobs[0], jobs[2]]
        ((job_id, tenant, error),) = timers.unreadable
        assert (job_id, tenant) == (jobs[1], TENANT)
    await one(store, PauseJob(NOW, tenant, job_id, "duetime", error))
    assert (await store.list_due_timers(NOW + MINUTE, 10)).unreadable == ()
    listed = {job.job_id: job for job in await store.list_jobs(JobQuery(TENANT))}
    assert sorted(listed) == jobs
    spoilt = listed[jobs[1]]
    assert (spoilt.status, spoilt.due_at, spoilt.resume_at) == (JobStatus.PAUSED, None, NOW + MINUTE)
    assert (spoilt.spec.name, spoilt.paused_by) == ("report", "duetime")
    for text in (spoilt.pause_reason, spoilt.spec.description):
        assert text is not None
        assert "can't be read by this version" in text
        assert "moon_phase" in text
    assert await store.next_due_at() == NOW + MINUTE
    with pytest.raises(Conflict, match="moon_phase"):
        await store.get_job(TENANT, jobs[1])


async def test_an_unreadable_waiting_execution_becomes_a_dead_letter_and_the_others_run(
    store: SqliteStore, tmp_path: Path
):
    node = await one(store, StartNode(NOW, "node-1"))
    jobs = [await add_job(store) for _ in range(3)]
    made = [await add_execution(store, job_id) for job_id in jobs]
    spoil(tmp_path, jobs[1])
    assert [claim.execution_id for claim in await claim_waiting(store, node, NOW)] == [made[0], made[2]]
    found = await execution(store, made[1])
    assert (found.state, found.dead, found.error_type) == (State.FAILED, True, ErrorType.INTERNAL_ERROR)
    assert await totals(store) == await recount(store)


async def test_an_unreadable_expired_claim_is_listed_separately(store: SqliteStore, tmp_path: Path):
    jobs = [await add_job(store) for _ in range(3)]
    made = [await add_execution(store, job_id) for job_id in jobs]
    await claim_waiting(store, await one(store, StartNode(NOW, "node-1")), NOW)
    spoil(tmp_path, jobs[1])
    node = await one(store, StartNode(NOW, "node-1"))
    expired = await store.list_expired_claims(node, 10)
    assert {claim.execution_id for claim in expired} == {made[0], made[2]}
    (apart,) = expired.unreadable
    assert apart[:5] == (made[1], jobs[1], TENANT, 1, 1)
    assert "moon_phase" in apart.error
    assert (await execution(store, made[1])).state is State.RUNNING, "a read writes nothing"


# The audit


async def test_a_failed_commit_leaves_no_entry_and_the_chain_continues(store: SqliteStore, tmp_path: Path):
    def key(number: int) -> AddKey:
        return AddKey(NOW, new_key(f"key-{number}"), entry_of("key.create", f"key-{number}"))

    def behind_its_back(sql: str) -> None:
        connection = apsw.Connection(str(tmp_path / FILE_NAME))
        connection.set_busy_timeout(5000)
        connection.execute(sql)
        connection.close()

    await one(store, key(1))
    behind_its_back("CREATE TRIGGER fail BEFORE INSERT ON audit_links BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(Overloaded, match="nothing was changed"):
        await one(store, key(2))
    behind_its_back("DROP TRIGGER fail")
    await one(store, key(3))
    found = await verified(store)
    assert (found.broken, found.entries, found.heads[PROMOTED][0]) == (None, 2, 2)
    assert await store.get_key("key-2") is None


# The work of the writer does not grow with the stored rows

SLOW = ["cancel_waiting", "request_cancel_of_running", "list_running_of_job", "count_waiting_of_job", "prune_skips"]


@pytest.mark.parametrize("block", SLOW)
def test_statements_of_the_writer_read_only_the_rows_that_they_need(tmp_path: Path, block: str):
    connection = open_connection(tmp_path, writer=True)
    migrate(connection)
    values = {"job": new_job().job_id, "now": NOW, "before": NOW, "limit": 1}
    plan = " ".join(
        str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {load_blocks(*COMMANDS)[block]}", values)
    )
    assert ("skips_age" if block == "prune_skips" else "executions_open (job=? AND state=?)") in plan
    assert "SCAN" not in plan
    connection.close()
