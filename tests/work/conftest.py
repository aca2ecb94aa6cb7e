"""A real server that runs scripts and SQL, and real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.processes import Receiver, Server
from work.workers import Asker, WorkerProcess

StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is not started. A silent worker loses its executions after two seconds."""
    server = Server(
        tmp_path / "server", ALLOW_SCRIPTS="true", ALLOW_SQL="true", SQL_ALLOWED_HOSTS="127.0.0.0/8",
        SQL_ALLOW_SUPERUSERS="true", WORKER_LEASE_SECONDS="2s",
    )  # fmt: skip
    yield server
    server.close()


@pytest.fixture
def ask(server: Server) -> Asker:
    return Asker(server)


@pytest.fixture
def start_worker(server: Server, tmp_path: Path) -> Iterator[StartWorker]:
    """Workers of tests/work/jobs.py, which are killed after the test."""
    started: list[WorkerProcess] = []

    def start(*options: str, **environment: str) -> WorkerProcess:
        started.append(WorkerProcess(server, tmp_path, *options, **environment))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path)
    yield receiver
    receiver.close()
