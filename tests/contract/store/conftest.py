"""The stores that must pass this suite. A backend is what passes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from duetime.domain.commands import StartNode
from duetime.ports.store import Store
from duetime.store.sqlite import SqliteStore
from samples import NOW, one

MakeStore = Callable[[], Store]

FACTORIES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "data"),
}


@pytest.fixture(params=sorted(FACTORIES))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_store(backend: str, tmp_path: Path) -> MakeStore:
    """Makes a store, not yet started, on the same data each time."""
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
