"""The doctor on a data folder: each problem is caused, and then found."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from duetime.domain.commands import JoinWorker, StartNode
from duetime.domain.doctor import Check, Status
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
from duetime.operate.doctor import run_checks
from duetime.settings.loading import load
from duetime.store.sqlite import SqliteStore, blocks
from duetime.store.sqlite.connection import migrate_folder
from duetime.store.sqlite.doctor import SqliteDoctor
from duetime.store.sqlite.handover import end_mark, set_mark
from samples import add_execution, add_job, one
from store.later_schema import LATER, use_migrations

OK, WARNING, PROBLEM = Status.OK, Status.WARNING, Status.PROBLEM
ALL_CHECKS = [
    "file", "integrity", "journal mode", "free space", "permissions", "node", "write-ahead log", "schema", "due timers",
    "waiting executions", "waiting functions", "lost executions",
]  # fmt: skip

Doctor = Callable[[], Awaitable[dict[str, Check]]]


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def doctor(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.chdir(tmp_path)

    async def ask() -> dict[str, Check]:
        checks = await run_checks(load({"DATA": str(folder)}, {}))
        assert [check.check for check in checks] == ALL_CHECKS
        assert all(check.found.endswith(".") and bool(check.advice) is (check.status is not OK) for check in checks)
        return {check.check: check for check in checks}

    return ask


def not_ok(checks: dict[str, Check]) -> dict[str, Status]:
    return {name: check.status for name, check in checks.items() if check.status is not OK}


async def test_a_folder_with_a_running_node_has_no_problem(doctor: Doctor, folder: Path):
    store = SqliteStore(folder)
    await store.start()
    await add_job(store, now=now())
    checks = await doctor()
    await store.stop()
    assert not_ok(checks) == {}
    assert "A node runs on this folder (process " in checks["node"].found


async def test_a_node_can_start_right_after_the_doctor(doctor: Doctor, folder: Path):
    migrate_folder(folder)
    for _ in range(3):
        assert not_ok(await doctor()) == {"node": WARNING}
        store = SqliteStore(folder)
        await store.start()
        await store.stop()


async def test_a_missing_folder_is_a_problem_and_is_not_created(doctor: Doctor, folder: Path, tmp_path: Path):
    checks = await doctor()
    assert checks["file"].found == f"There is no database at {folder}/duetime.db."
    assert checks["integrity"].status is PROBLEM
    assert os.listdir(tmp_path) == []


async def test_nothing_in_the_folder_is_changed(doctor: Doctor, folder: Path):
    migrate_folder(folder)
    before = (folder / "duetime.db").read_bytes()
    await doctor()
    assert (folder / "duetime.db").read_bytes() == before


async def test_a_damaged_file_is_a_problem(doctor: Doctor, folder: Path):
    migrate_folder(folder)
    file = folder / "duetime.db"
    pages = bytearray(file.read_bytes())
    pages[3 * 4096 : 8 * 4096] = b"\xff" * (5 * 4096)
    file.write_bytes(pages)
    checks = await doctor()
    assert checks["integrity"].status is PROBLEM
    assert checks["free space"].status is OK


async def test_a_file_that_is_no_database_is_a_problem_and_the_folder_is_still_checked(doctor: Doctor, folder: Path):
    os.mkdir(folder)
    (folder / "duetime.db").write_bytes(b"this is no database, " * 1000)
    checks = await doctor()
    assert checks["file"].status is PROBLEM
    assert checks["free space"].status is OK
    assert checks["node"].status is WARNING


async def test_another_journal_mode_and_an_older_or_newer_schema_are_reported(
    doctor: Doctor, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    migrate_folder(folder)
    use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER)
    with closing(apsw.Connection(str(folder / "duetime.db"))) as connection:
        connection.pragma("journal_mode", "delete")
    checks = await doctor()
    assert (checks["journal mode"].status, checks["schema"].status) == (WARNING, WARNING)
    with closing(apsw.Connection(str(folder / "duetime.db"))) as connection:
        connection.pragma("user_version", 99)
    assert (await doctor())["schema"].status is PROBLEM


async def test_timers_in_the_past_are_counted_with_the_latest(doctor: Doctor, folder: Path):
    store = SqliteStore(folder)
    await store.start()
    for late in (10_000, 30_000, -60_000):
        await add_job(store, now=now(), due_at=now() - late)
    checks = await doctor()
    assert not_ok(checks) == {"due timers": WARNING}
    assert checks["due timers"].found.startswith("2 timers are due in the past, the earliest by 3")
    await add_job(store, now=now(), due_at=now() - 3_600_000)
    assert not_ok(await doctor()) == {"due timers": PROBLEM}
    await store.stop()


async def test_waiting_executions_and_those_of_a_killed_node_are_counted(doctor: Doctor, folder: Path):
    store = SqliteStore(folder)
    await store.start()
    await one(store, StartNode(now(), "a"))
    await store.stop()
    row = """
        INSERT INTO executions (id, job, tenant, scheduled_at, extra, trigger, state, priority, endpoint, due_at,
                                attempt, token, node)
        VALUES (randomblob(16), randomblob(16), 't', 0, 0, 'schedule', ?, ?, 1, ?, 1, 1, ?)
    """
    with closing(apsw.Connection(str(folder / "duetime.db"))) as connection:
        connection.execute(row, ("QUEUED", 5, now() - 20_000, None))
        connection.execute(row, ("RETRYING", 9, now() - 10_000, None))
        connection.execute(row, ("QUEUED", 5, now() + 60_000, None))
        connection.execute(row, ("RUNNING", 5, now(), 1))
    checks = await doctor()
    assert not_ok(checks) == {"node": WARNING, "waiting executions": WARNING, "lost executions": WARNING}
    assert checks["waiting executions"].found.startswith("2 executions wait for a worker, the earliest for 2")
    assert checks["lost executions"].found.startswith("1 execution is held")


async def test_promoted_jobs_are_not_reported_as_late(doctor: Doctor, folder: Path):
    store = SqliteStore(folder)
    await store.start()
    await add_job(store, now=now(), due_at=now() - 3_600_000)
    await store.stop()
    with closing(apsw.Connection(str(folder / "duetime.db"))) as connection:
        mark = set_mark(connection, "db/duetime", 1)
        assert (await doctor())["due timers"].status is PROBLEM  # the promotion has not ended: no node runs it yet
        end_mark(connection, mark, 2)
    checks = await doctor()
    assert not_ok(checks) == {"node": WARNING}
    assert "have moved to db/duetime" in checks["node"].found


def test_a_check_that_takes_too_long_is_ended(folder: Path):
    migrate_folder(folder)
    with closing(apsw.Connection(str(folder / "duetime.db"))) as connection:
        connection.execute("""
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
            INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at)
            SELECT randomblob(16), 't', 0, 'PENDING', 1, 1, n FROM numbers
        """)
    with pytest.raises(TimeoutError, match="longer than 0 s"):
        SqliteDoctor(folder, 0, 0).due_timers()


async def test_waiting_functions_without_a_worker_are_named(doctor: Doctor, folder: Path):
    store = SqliteStore(folder)
    await store.start()
    at = now() - 20_000
    calls = [("acme", "known"), ("acme", "lost"), ("acme", "lost"), ("other", "known"), ("acme", "gone")]
    for tenant, function in calls:
        job = PythonJob(name="call", schedule="on_demand", payload=PythonCall(function))
        job_id = await add_job(store, job, now=at, tenant=tenant)
        await add_execution(store, job_id, at, tenant)
    await one(store, JoinWorker(at, "acme", "ann", "w", ("known", "more"), 1))
    checks = await doctor()
    await store.stop()
    assert checks["waiting functions"].status is WARNING
    assert checks["waiting functions"].found.startswith("5 functions wait for a worker, the earliest for ")
    assert checks["waiting functions"].found.endswith(" s. No worker has gone, known, lost.")
