"""The stores that must pass this suite."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

from duetime.domain.capacity import UNBOUNDED, Capacity
from duetime.domain.commands import StartNode
from duetime.ports.store import Store
from duetime.store.postgres import writer, writer_connection
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.connection import FILE_NAME
from samples import NOW, one
from store.postgres_server import emptied_database, patient_store, rows_of

DATABASE = "DUETIME_TEST_DATABASE"  # the variable with the URL of the test's database, for its child processes


class MakeStore(Protocol):
    def __call__(self, capacity: Capacity = UNBOUNDED) -> Store: ...


FACTORIES: dict[str, Callable[[Path, Capacity], Store]] = {
    "sqlite": lambda folder, capacity: SqliteStore(folder / "data", capacity),
    "postgres": lambda folder, capacity: patient_store(os.environ[DATABASE], capacity=capacity),
}
Raw = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


@pytest.fixture(params=sorted(FACTORIES))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def several_connections() -> None:
    """For tests with concurrent writes: PostgreSQL's stores have all their writer connections."""


@pytest.fixture
async def make_store(
    request: pytest.FixtureRequest, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeStore:
    """Makes a store that is not started, each time on the same data."""
    if backend == "postgres":
        monkeypatch.setenv(DATABASE, await emptied_database())
        if "several_connections" not in request.fixturenames:
            # Most tests write one command after the other. They need one connection, which plans only their statements.
            monkeypatch.setattr(writer, "WRITER_CONNECTIONS", 1)
            monkeypatch.setattr(writer_connection, "OF_A_BURST", ())
    return lambda capacity=UNBOUNDED: FACTORIES[backend](tmp_path, capacity)


@pytest.fixture
async def store(make_store: MakeStore) -> AsyncIterator[Store]:
    made = make_store()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def raw(backend: str, make_store: MakeStore, tmp_path: Path) -> Raw:
    """SQL that bypasses the store, the same for both."""

    async def run(sql: str) -> list[tuple[Any, ...]]:
        if backend == "postgres":
            return await rows_of(sql)
        with closing(apsw.Connection(str(tmp_path / "data" / FILE_NAME))) as connection:
            connection.set_busy_timeout(5000)
            return list(connection.execute(sql))

    return run


@pytest.fixture
async def node(store: Store) -> int:
    """A node that has joined and is alive."""
    return int(await one(store, StartNode(NOW, "node-1")))
