"""Many: no round trip a row, and memory that does not grow with them."""

from __future__ import annotations

import time
from pathlib import Path

import apsw
import pytest

from duetime.store.sqlite.connection import FILE_NAME
from promotion.many import fill_many
from promotion.source import promotion
from store.postgres_server import connected

pytestmark = pytest.mark.slow

JOBS = 20_000
MOST_SECONDS = 15.0


async def test_twenty_thousand_jobs_with_history(tmp_path: Path, target: str):
    fill_many(tmp_path, JOBS)
    began_at = time.monotonic()
    outcome = await promotion(tmp_path, target).run()
    assert time.monotonic() - began_at < MOST_SECONDS
    counts = {check.what: check.source for check in outcome.checks}
    assert [counts[table] for table in ("jobs", "timers", "executions", "attempts")] == [JOBS] * 4
    assert all(check.source == check.target for check in outcome.checks)
    async with connected(target) as connection:
        assert await connection.fetchval("SELECT count(*) FROM executions_rest") == 0
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE tags ->> 'team' = 'billing'") == JOBS


async def test_pages_are_bounded_in_bytes_too(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch):
    from duetime.store.sqlite import export

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
