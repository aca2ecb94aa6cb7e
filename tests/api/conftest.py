"""One real server and one receiver for all tests of the API: a test looks at jobs of its own only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.person import Person
from cluster.processes import Client, Receiver, Server


@pytest.fixture(scope="session")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path_factory.mktemp("receiver"))
    yield receiver
    receiver.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("api")).start()
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
    """A job that is not due for long."""
    return person.body()
