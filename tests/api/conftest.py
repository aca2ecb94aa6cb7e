"""One real server and one receiver for all tests of the API. Each test uses only its own jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.people import People, database, on_postgresql, on_sqlite
from api.person import Person
from cluster.processes import Client, Receiver, Server


@pytest.fixture(scope="session")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path_factory.mktemp("receiver"))
    yield receiver
    receiver.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("api"), ALLOW_SQL="true", HEALTH_FAILURE_THRESHOLD="1").start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@pytest.fixture
def client(server: Server) -> Client:
    return server.client


@pytest.fixture
def person(client: Client, receiver: Receiver) -> Person:
    return Person(client, receiver)


@pytest.fixture
def body(person: Person) -> dict[str, Any]:
    """A job that is due in a long time."""
    return person.body()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with authentication, on SQLite."""
    server = on_sqlite(tmp_path_factory.mktemp("guarded")).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two such nodes that share a database in PostgreSQL."""
    folder = tmp_path_factory.mktemp("pair")
    with database() as url:
        nodes = on_postgresql(folder / "a", url), on_postgresql(folder / "b", url)
        try:
            for node in nodes:
                node.start()
            yield nodes
            assert [node.returncode() for node in nodes] == [None, None], "a node ended on its own"
        finally:
            for node in nodes:
                node.close()


@pytest.fixture
def people(guarded: Server, receiver: Receiver) -> People:
    return People(guarded, receiver)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def people_anywhere(request: pytest.FixtureRequest, receiver: Receiver) -> People:
    """Users of a server on either store."""
    if request.param == "sqlite":
        return People(request.getfixturevalue("guarded"), receiver)
    return People(request.getfixturevalue("pair")[0], receiver)


@pytest.fixture(scope="session")
def scripting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Users of a server on which scripts and SQL are on."""
    server = Server(tmp_path_factory.mktemp("scripting"), ALLOW_SCRIPTS="true", ALLOW_SQL="true").start()
    yield server.client
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()
