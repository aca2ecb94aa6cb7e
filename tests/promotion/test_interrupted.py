"""Killed promotions are repeated until they complete, and two nodes never run the same jobs."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest

from duetime.operate.promote import PromotionFailed
from duetime.store.postgres import StoreUnusable
from duetime.store.postgres.load import Load
from duetime.store.sqlite import SqliteStore
from promotion.many import fill_many
from promotion.source import Silent, promotion, rows_of
from promotion.typed import kill_after, promote, serve
from store.postgres_server import connected

MANY = 20_000


async def jobs_in(url: str) -> int:
    async with connected(url) as connection:
        if await connection.fetchval("SELECT to_regclass('jobs') IS NULL"):
            return 0
        return int(await connection.fetchval("SELECT count(*) FROM jobs"))


@pytest.mark.slow
# promote_page: 1 is in the middle of the copy, 6 is its last page.
@pytest.mark.parametrize(
    ("crash_at", "is_complete"),
    [("promote_marked", False), ("promote_page:1", False), ("promote_page:6", False), ("promote_copied", False),
     ("promote_committed", True)],
)  # fmt: skip
async def test_a_kill_leaves_all_or_nothing_and_no_node_starts_on_the_source(
    source: Path, target: str, crash_at: str, is_complete: bool
):
    (count,) = rows_of(source, "SELECT count(*) FROM jobs")[0]
    killed = promote(source, "--to", target, CRASH_AT=crash_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert await jobs_in(target) == (count if is_complete else 0)
    refused = serve(source)
    assert refused.returncode == 1
    assert "is on its way to the database duetime_test_" in refused.stderr

    again = promote(source, "--to", target, "--json")
    assert again.returncode == 0, again.stderr
    outcome = json.loads(again.stdout)
    assert outcome["was_complete"] is is_complete
    assert {"what": "jobs", "source": count, "target": count} in outcome["checks"]
    assert await jobs_in(target) == count
    assert "was promoted to the database duetime_test_" in serve(source).stderr


@pytest.mark.slow
async def test_kills_at_random_moments_leave_all_or_nothing(tmp_path: Path, target: str):
    folder, seed = tmp_path / "data", random.randrange(2**32)
    rng = random.Random(seed)
    fill_many(folder, MANY)
    seen = []
    for _ in range(5):
        kill_after(rng.uniform(0.1, 2.0), folder, "--to", target)
        seen.append(await jobs_in(target))
    assert set(seen) <= {0, MANY}, f"seed {seed}: {seen}"
    assert seen == sorted(seen), f"seed {seed}: what was complete is gone: {seen}"
    outcome = await promotion(folder, target).run()
    assert all(check.source == check.target for check in outcome.checks), f"seed {seed}"
    assert await jobs_in(target) == MANY


async def test_a_third_run_reports_that_nothing_is_left(source: Path, target: str):
    first = await promotion(source, target).run()
    second = await promotion(source, target).run()
    assert (first.was_complete, second.was_complete) == (False, True)
    assert second.checks == first.checks


async def test_a_cancelled_promotion_leaves_the_source_unchanged(source: Path, target: str):
    """Ctrl-C cancels the task."""
    person = Silent()
    task = asyncio.create_task(promotion(source, target, person).run())
    person.on_advance = task.cancel
    with pytest.raises(asyncio.CancelledError):
        await task
    assert person.done > 0
    assert await jobs_in(target) == 0
    assert rows_of(source, "SELECT * FROM promotion") == []
    store = SqliteStore(source)
    await store.start()
    await store.stop()
    assert (await promotion(source, target).run()).was_complete is False


async def test_a_lost_database_leaves_the_source_unchanged(source: Path, target: str):
    person = Silent()
    async with connected(target) as other:
        end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'duetime promote'"
        ended: list[asyncio.Task[object]] = []
        person.on_advance = lambda: ended.append(asyncio.ensure_future(other.execute(end))) if not ended else None
        with pytest.raises(PromotionFailed, match=r"the copy broke off .*: nothing was moved"):
            await promotion(source, target, person).run()
        await ended[0]
    assert rows_of(source, "SELECT * FROM promotion") == []
    assert (await promotion(source, target).run()).was_complete is False


async def test_a_commit_whose_response_is_lost_is_detected_by_the_next_run(
    source: Path, target: str, monkeypatch: pytest.MonkeyPatch
):
    commit = Load._commit

    async def unanswered(self: Load) -> None:
        await commit(self)
        raise ConnectionResetError("the answer never came")

    with monkeypatch.context() as patched:
        patched.setattr(Load, "_commit", unanswered)
        with pytest.raises(PromotionFailed, match=r"the copy broke off .*: run this again to find out"):
            await promotion(source, target).run()
    assert "is on its way to" in serve(source).stderr
    assert (await promotion(source, target).run()).was_complete


async def test_a_copy_that_differs_is_dropped(source: Path, target: str, monkeypatch: pytest.MonkeyPatch):
    """The comparison detects a lost row, and nothing is committed."""
    convert = Load.convert

    def lossy(self: Load, table: str, page: list[tuple[object, ...]]) -> object:
        return convert(self, table, page[1:] if table == "attempts" else page)

    monkeypatch.setattr(Load, "convert", lossy)
    with pytest.raises(PromotionFailed, match=r"the copy differs from the source, and was dropped: attempts: \d+ here"):
        await promotion(source, target).run()
    assert await jobs_in(target) == 0
    assert rows_of(source, "SELECT * FROM promotion") == []


@pytest.mark.parametrize("column", ["due_at = due_at + 1", "version = version + 1", "status = 'PAUSED'"])
async def test_a_timer_that_differs_is_found_by_the_sum(source: Path, target: str, column: str, monkeypatch):
    add_totals = Load.add_totals

    async def meddle(self: Load) -> None:
        await add_totals(self)
        await self._connection.execute(
            f"UPDATE timers SET {column} "
            "WHERE job = (SELECT job FROM timers WHERE due_at IS NOT NULL ORDER BY job LIMIT 1)"
        )

    monkeypatch.setattr(Load, "add_totals", meddle)
    with pytest.raises(PromotionFailed, match="checksum of timers"):
        await promotion(source, target).run()
    assert await jobs_in(target) == 0


async def test_of_two_concurrent_promotions_one_copies(source: Path, target: str):
    results = await asyncio.gather(
        promotion(source, target).run(), promotion(source, target).run(), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 1
    assert isinstance(refused[0], (PromotionFailed, StoreUnusable))
    assert (await promotion(source, target).run()).was_complete
