from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.logs import objects
from logs.s3_server import S3Server


@pytest.fixture(autouse=True)
def _no_process_ends_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LET_GO_SECONDS", 0)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()
