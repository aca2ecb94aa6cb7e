"""The locks of a data folder: one for its owner, and one at which migrations wait for each other."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from duetime.store.sqlite import connection
from patience import PATIENCE_SECONDS


async def test_a_migration_waits_for_one_that_has_not_written_its_purpose_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The clock advances with each sleep of the waiting migration; after ten seconds of it the first one continues."""
    now, has_lock, goes_on = 0.0, threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now > 10:
            goes_on.set()
            first_is_done.wait(PATIENCE_SECONDS)

    def getpid() -> int:
        has_lock.set()
        assert goes_on.wait(PATIENCE_SECONDS)
        return 4711

    first_is_done = threading.Event()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(connection, "os", SimpleNamespace(getpid=getpid))

    def migrate_first() -> tuple[int, int]:
        try:
            return connection.migrate_folder(tmp_path)
        finally:
            first_is_done.set()

    first = asyncio.create_task(asyncio.to_thread(migrate_first))
    await asyncio.to_thread(has_lock.wait, PATIENCE_SECONDS)
    newest = connection.load_migrations()[-1][0]
    try:
        assert await asyncio.to_thread(connection.migrate_folder, tmp_path) == (newest, newest)
    finally:
        goes_on.set()
        assert await first == (0, newest)
