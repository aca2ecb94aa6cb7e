"""One real server with identity for all tests of the client. A test reads only its own jobs."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from client.both import Maker
from client.proxy import Proxy
from client.tokens import FREE_REQUESTS, SECRET, token
from served import served, target


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:  # only until it has started: other tests start servers meanwhile
            patch.setenv("DUETIME_JWT_SECRET", SECRET)
            patch.setenv("DUETIME_SIGNING_SECRETS", f"whsec_{b64encode(bytes(32)).decode()}")
            patch.setenv("DUETIME_FREE_REQUESTS_PER_HOUR", str(FREE_REQUESTS))
            url = running.enter_context(served(tmp_path_factory.mktemp("client")))
        yield url


@pytest.fixture(scope="session")
def hook() -> Iterator[str]:
    """Yields the URL of a target for jobs."""
    with target() as url:
        yield url


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    maker = Maker(request.param)
    yield maker
    maker.close()


@pytest.fixture
def client(make: Maker, server: str) -> Any:
    """A client of an admin."""
    return make(server, token())


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with Proxy(server).serving() as proxy:
        yield proxy


@pytest.fixture
def job(hook: str) -> Callable[..., dict[str, Any]]:
    """Returns definitions that are never due, with a unique name."""
    name = f"job {uuid.uuid4()}"

    def define(path: str = "/ok", **fields: Any) -> dict[str, Any]:
        return {"name": name, "schedule": "2099-01-01T00:00:00Z", "payload": {"url": hook + path}, **fields}

    return define
