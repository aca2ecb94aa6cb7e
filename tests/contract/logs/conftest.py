"""The log stores that must pass this suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from duetime.logs import objects
from duetime.logs.folder import FolderLogs
from duetime.logs.objects import ObjectLogs
from duetime.ports.logs import LogStore
from duetime.testing import HandClock
from logs.s3_server import S3Server
from samples import NOW

LIMIT = 1024 * 1024


class MakeLogs(Protocol):
    def __call__(self, limit_bytes: int = LIMIT) -> LogStore: ...


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _no_process_ends_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LET_GO_SECONDS", 0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture(params=["folder", "objects-file", "objects-s3"])
def make_logs(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> MakeLogs:
    """Makes a log store that is not started, each time at the same place, as another node would have it."""
    if request.param == "folder":
        return lambda limit_bytes=LIMIT: FolderLogs(tmp_path / "logs", limit_bytes, clock)
    if request.param == "objects-file":
        return lambda limit_bytes=LIMIT: ObjectLogs(f"file://{tmp_path}/objects", limit_bytes, clock)
    server: S3Server = request.getfixturevalue("s3_server")
    url = f"s3://{server.make_bucket()}/some/where"
    return lambda limit_bytes=LIMIT: ObjectLogs(url, limit_bytes, clock, server.options)


@pytest.fixture
async def logs(make_logs: MakeLogs) -> AsyncIterator[LogStore]:
    made = make_logs()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def other(make_logs: MakeLogs) -> AsyncIterator[LogStore]:
    """The same logs from another node."""
    made = make_logs()
    await made.start()
    yield made
    await made.stop()
