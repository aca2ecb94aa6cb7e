from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from cluster.database import Database, Postgres
from cluster.gate import Gate
from cluster.processes import Receiver, Server, slowness
from cluster.scenario import Scenario


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of several nodes take longest, so each worker begins with some. (Each gets consecutive tests first.)"""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if os.environ.get("DUETIME_TEST_PART") == "clusters" and workers > 1:
        items.sort(key=lambda item: not {"cluster", "replicated"}.intersection(getattr(item, "fixturenames", ())))
        items[:] = [item for worker in range(workers) for item in items[worker::workers]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Not started yet."""
    server = Server(tmp_path / "server")
    yield server
    server.close()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path)
    yield receiver
    receiver.close()


@pytest.fixture
def scenario(server: Server, receiver: Receiver) -> Scenario:
    return Scenario(server, receiver)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Not started yet."""
    postgres = Postgres()
    yield postgres
    postgres.close()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with postgres.database() as database:
        yield database


@pytest.fixture
def cluster(tmp_path: Path, receiver: Receiver, database: Database) -> Iterator[Cluster]:
    """Nodes that are not started yet, with leases of two seconds, or more on a busy machine."""
    settings = {"NODE_LEASE_SECONDS": f"{2 * slowness.factor:.1f}s", "DB_OP_TIMEOUT": f"{slowness.factor:.1f}s"}
    cluster = Cluster(tmp_path, receiver, database, **settings)
    yield cluster
    cluster.close()


@pytest.fixture
def soak_cluster(tmp_path: Path, receiver: Receiver, database: Database) -> Iterator[Cluster]:
    """The same with the default settings."""
    cluster = Cluster(tmp_path, receiver, database, NODE_LEASE_SECONDS="5s")
    yield cluster
    cluster.close()


@pytest.fixture
def gate(database: Database) -> Iterator[Gate]:
    gate = Gate(database.url)
    yield gate
    gate.close()
