from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import Receiver, Server
from cluster.scenario import Scenario


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
