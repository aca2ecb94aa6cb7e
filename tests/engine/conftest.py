from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from duetime.ports.store import Store
from duetime.store.sqlite import SqliteStore
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = SqliteStore(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
async def stage(store: Store, clock: HandClock, executor: ScriptedExecutor) -> Stage:
    return Stage(store, clock, executor)
