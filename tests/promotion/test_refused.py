"""Refused promotions change nothing and explain what to do. Undo takes a promotion back."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import apsw
import pytest

from duetime.operate.promote import PromotionFailed
from duetime.store.postgres import StoreUnusable
from duetime.store.sqlite import SqliteStore, blocks
from duetime.store.sqlite.connection import FILE_NAME, lock_folder
from duetime.store.sqlite.handover import find_holder
from promotion.source import Silent, fill, promotion, rows_of
from promotion.typed import duetime, promote, serve
from samples import TENANT, add_job, job_of
from store.later_schema import LATER, use_migrations
from store.postgres_server import connected, fresh_database, patient_store


async def test_a_target_that_has_jobs_is_refused(source: Path, target: str):
    store = patient_store(target)
    await store.start()
    job_id = await add_job(store)
    with pytest.raises(StoreUnusable, match=r"has 1 jobs already, .* Create an empty database"):
        await promotion(source, target).run()
    assert (await job_of(store, job_id)).job_id == job_id
    await store.stop()
    assert rows_of(source, "SELECT * FROM promotion") == []


async def test_a_target_of_another_folder_is_refused(source: Path, target: str, tmp_path: Path):
    await promotion(source, target).run()
    await fill(tmp_path / "another")
    with pytest.raises(StoreUnusable, match="jobs already"):
        await promotion(tmp_path / "another", target).run()


async def test_a_target_with_a_newer_schema_is_refused(source: Path, target: str):
    await patient_store(target).start()
    async with connected(target) as connection:
        await connection.execute("INSERT INTO schema_versions (version) VALUES (99)")
    with pytest.raises(StoreUnusable, match=r"has schema 99, this Duetime knows \d+ at most.* Install that version"):
        await promotion(source, target).run()


async def test_an_unreachable_target_is_named_without_its_password(source: Path):
    result = promote(source, "--to", "postgresql://ann:secret@127.0.0.1:9/duetime")
    assert result.returncode == 1
    assert "the database 127.0.0.1:9/duetime can't be used" in result.stderr
    assert "Is the server running" in result.stderr
    assert "secret" not in result.stderr + result.stdout
    assert rows_of(source, "SELECT * FROM promotion") == []


async def test_a_folder_without_a_database_is_refused(tmp_path: Path, target: str):
    with pytest.raises(StoreUnusable, match=r"holds no duetime.db: name the folder .* with --data"):
        await promotion(tmp_path / "nothing", target).run()
    assert not (tmp_path / "nothing").exists()


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path, target: str):
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnusable, match=r"the database is damaged: .* Restore duetime.db from a backup"):
        await promotion(tmp_path, target).run()


async def test_a_source_that_was_promoted_to_another_target_is_refused(source: Path, target: str):
    await promotion(source, target).run()
    async with fresh_database() as another:
        with pytest.raises(PromotionFailed, match=r"was promoted to the database .* can't go to .* --undo --data"):
            await promotion(source, another).run()


async def test_a_source_with_an_unfinished_promotion_to_another_target_is_refused(source: Path, target: str):
    assert promote(source, "--to", target, CRASH_AT="promote_marked").returncode == -signal.SIGKILL
    async with fresh_database() as another:
        with pytest.raises(PromotionFailed, match=r"is on its way to the database .*; or undo it first"):
            await promotion(source, another).run()


async def test_an_older_source_is_migrated_if_the_operator_agrees(
    source: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    older = use_migrations(monkeypatch, tmp_path / "migrations", blocks, *LATER) - len(LATER)
    no = Silent(answer=False)
    with pytest.raises(PromotionFailed, match=rf"has schema {older} and was not changed"):
        await promotion(source, target, no).run()
    assert rows_of(source, "PRAGMA user_version") == [(older,)]
    yes = Silent()
    await promotion(source, target, yes).run()
    assert yes.asked == [
        f"{source} has schema {older}, and this Duetime copies schema {older + len(LATER)}: migrate it first?"
    ]
    assert rows_of(source, "PRAGMA user_version") == [(older + len(LATER),)]


async def test_a_newer_source_is_refused(source: Path, target: str):
    connection = apsw.Connection(str(source / FILE_NAME))
    connection.execute("PRAGMA user_version = 99").fetchall()
    connection.close()
    with pytest.raises(StoreUnusable, match="has schema 99, this Duetime knows"):
        await promotion(source, target).run()


async def test_an_uncertain_holder_of_the_lock_gets_no_signal(source: Path, target: str, tmp_path: Path):
    """The pid may belong to another container, and to any process here."""
    with lock_folder(source) as lock:
        assert find_holder(source) == (os.getpid(), "")
        lock.truncate(0)
        lock.write("1")
        lock.flush()
        assert find_holder(source) is None
        with pytest.raises(PromotionFailed, match="in use by a process that is not visible here"):
            await promotion(source, target).run()


async def test_another_command_on_the_folder_is_not_stopped(source: Path, target: str):
    with (
        lock_folder(source, "migrate"),
        pytest.raises(PromotionFailed, match=r"in use by process \d+ \(duetime migrate\): wait until it ends"),
    ):
        await promotion(source, target).run()


@pytest.mark.parametrize("arguments", [[], ["--to", "mysql://x"], ["--to", "postgresql://ann:se/cret@host/db"]])
def test_bad_usage_exits_2(tmp_path: Path, arguments: list[str]):
    result = duetime("promote", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert "cret" not in result.stdout + result.stderr


@pytest.mark.slow
async def test_a_promoted_folder_does_not_serve_and_the_message_names_the_target(source: Path, target: str):
    done = promote(source, "--to", target)
    assert done.returncode == 0, done.stderr
    assert "Both sides are equal" in done.stdout
    assert "duetime serve --database-url postgresql://" in done.stdout
    refused = serve(source)
    assert refused.returncode == 1
    assert "was promoted to the database duetime_test_" in refused.stderr
    assert "duetime serve --database-url postgresql://" in refused.stderr
    assert "duetime promote --undo" in refused.stderr


# Undo


@pytest.mark.slow
async def test_undo_empties_the_target_and_the_folder_serves_again(source: Path, target: str):
    before = rows_of(source, "SELECT count(*) FROM jobs")
    await promotion(source, target).run()
    undone = promote(source, "--undo", "--to", target, "--json")
    assert undone.returncode == 0, undone.stderr
    assert json.loads(undone.stdout)["undone"] is True
    async with connected(target) as connection:
        for table in ("jobs", "timers", "executions", "open_runs", "attempts", "skips", "counters", "promotions"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    store = SqliteStore(source)
    await store.start()
    await store.stop()
    assert rows_of(source, "SELECT count(*) FROM jobs") == before
    assert (await promotion(source, target).run()).was_complete is False


@pytest.mark.slow
async def test_undo_is_refused_once_a_node_has_run_on_the_target(source: Path, target: str):
    from duetime.domain.commands import StartNode
    from samples import one

    await promotion(source, target).run()
    store = patient_store(target)
    await store.start()
    await one(store, StartNode(2**42, "new"))
    await store.stop()
    with pytest.raises(StoreUnusable, match=r"the node new has run on .* since the promotion"):
        await promotion(source, target).undo()
    assert "was promoted to" in serve(source).stderr


@pytest.mark.slow
async def test_undo_is_refused_even_when_the_row_of_that_node_was_pruned(source: Path, target: str):
    from duetime.domain.commands import Prune, StartNode, StopNode
    from samples import one

    await promotion(source, target).run()
    store = patient_store(target)
    await store.start()
    node = await one(store, StartNode(2**42, "new"))
    await one(store, StopNode(2**42 + 1, node))
    await one(store, Prune(0, 0, 0, 100, nodes_before=2**43))
    await store.stop()
    with pytest.raises(StoreUnusable, match=r"the node whose name is no longer kept has run on .* since the promotion"):
        await promotion(source, target).undo()


@pytest.mark.slow
async def test_undo_without_the_target_needs_a_confirmation(source: Path, target: str):
    await promotion(source, target).run()
    no = Silent(answer=False)
    with pytest.raises(PromotionFailed, match="nothing was changed"):
        await promotion(source, None, no).undo()
    assert "both run the same jobs" in no.asked[0]
    assert promote(source, "--undo").returncode == 1, "nobody is there to answer"
    assert promote(source, "--undo", "--yes").returncode == 0
    assert rows_of(source, "SELECT * FROM promotion") == []


async def test_undo_with_another_target_is_refused(source: Path, target: str):
    await promotion(source, target).run()
    async with fresh_database() as another:
        with pytest.raises(PromotionFailed, match="has no data of it"):
            await promotion(source, another).undo()


@pytest.mark.parametrize("crash_at", ["promote_marked", "promote_committed"])
async def test_undo_works_after_a_killed_promotion(source: Path, target: str, crash_at: str):
    assert promote(source, "--to", target, CRASH_AT=crash_at).returncode == -signal.SIGKILL
    await promotion(source, target).undo()
    async with connected(target) as connection:
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
    store = SqliteStore(source)
    await store.start()
    assert await store.get_job(TENANT, "0" * 8 + "-0000-7000-8000-" + "0" * 12) is None
    await store.stop()


@pytest.mark.slow
async def test_a_killed_undo_can_be_repeated(source: Path, target: str):
    await promotion(source, target).run()
    assert promote(source, "--undo", "--to", target, CRASH_AT="promote_emptied").returncode == -signal.SIGKILL
    assert "was promoted to" in serve(source).stderr
    assert promote(source, "--undo", "--to", target).returncode == 0
    assert rows_of(source, "SELECT * FROM promotion") == []


async def test_undo_of_a_folder_that_was_not_promoted_is_refused(source: Path):
    with pytest.raises(PromotionFailed, match="there is nothing to undo"):
        await promotion(source, None).undo()
