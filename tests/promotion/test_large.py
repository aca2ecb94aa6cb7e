"""Many rows: no round trip for each row, and constant memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from duetime.store.sqlite import export
from duetime.store.sqlite.connection import FILE_NAME
from promotion.many import fill_many
from promotion.source import promotion
from store.postgres_server import connected

pytestmark = pytest.mark.slow

JOBS = 4_000
PAGE_ROWS = 500


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the calls of the driver: each is one round trip, or a few."""
    asked: list[str] = []

    def noted(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: asked.append(name) or whole(*args, **named)  # type: ignore[func-returns-value]

    for name in ("execute", "executemany", "fetch", "fetchrow", "fetchval", "copy_records_to_table"):
        monkeypatch.setattr(asyncpg.Connection, name, noted(name, getattr(asyncpg.Connection, name)))
    return asked


async def test_many_jobs_with_history_are_copied_in_pages(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch, asked: list[str]
):
    fill_many(tmp_path, JOBS)
    monkeypatch.setattr(export, "PAGE_ROWS", PAGE_ROWS)
    outcome = await promotion(tmp_path, target).run()
    pages = JOBS // PAGE_ROWS
    assert 4 * pages <= asked.count("copy_records_to_table") <= 10 * pages, "of four tables, and what goes with them"
    assert len(asked) < JOBS / 4, Counter(asked)
    counts = {check.what: check.source for check in outcome.checks}
    assert [counts[table] for table in ("jobs", "timers", "executions", "attempts")] == [JOBS] * 4
    assert all(check.source == check.target for check in outcome.checks)
    async with connected(target) as connection:
        assert await connection.fetchval("SELECT count(*) FROM executions_rest") == 0
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE tags ->> 'team' = 'billing'") == JOBS


async def test_the_bytes_of_a_page_are_limited_too(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch):
    fill_many(tmp_path, 40)
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    connection.execute("UPDATE jobs SET spec = json_set(spec, '$.description', printf('%.100000c', 'x'))").fetchall()
    pages = list(export.Export(connection).read("jobs", ("id", "spec")))
    assert len(pages) == 1
    monkeypatch.setattr(export, "PAGE_BYTES", 1_000_000)
    pages = list(export.Export(connection).read("jobs", ("id", "spec")))
    assert max(map(len, pages)) == 10
    assert sum(map(len, pages)) == 40
    connection.close()
    await promotion(tmp_path, target).run()
