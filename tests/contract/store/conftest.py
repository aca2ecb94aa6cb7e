"""The stores that must pass this suite. A backend is what passes it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from duetime.domain.commands import StartNode
from duetime.ports.store import Store
from duetime.store.postgres import PostgresStore
from duetime.store.sqlite import SqliteStore
from samples import NOW, one
from store.postgres_server import emptied_database

MakeStore = Callable[[], Store]
DATABASE = "DUETIME_TEST_DATABASE"  # where a test's child process finds the test's database

FACTORIES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "data"),
    "postgres": lambda folder: PostgresStore(os.environ[DATABASE]),
}


@pytest.fixture(params=sorted(FACTORIES))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make_store(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
    """Makes a store, not yet started, on the same data each time."""
    if backend == "postgres":
        monkeypatch.setenv(DATABASE, await emptied_database())
    return lambda: FACTORIES[backend](tmp_path)


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    made = make_store()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def node(store: Store) -> int:
    """A node that has joined and is alive."""
    return int(await one(store, StartNode(NOW, "node-1")))
