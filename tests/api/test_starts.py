"""Concurrent requests: addresses take turns, and public documents are encoded once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import msgspec
import pytest
import uvicorn

from duetime.api import openapi
from duetime.api.app import create_routes
from duetime.api.http.protocol import BoundedProtocol, request_starts
from patience import PATIENCE_SECONDS

HOSTILE, VICTIM = "127.0.0.2", "127.0.0.3"
PER_ROUND = 16
REQUESTS = 10 * PER_ROUND


class Server(uvicorn.Server):
    """Records the address of each request as it begins."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        protocol = cast(Any, partial(BoundedProtocol, starts=request_starts(PER_ROUND)))
        super().__init__(
            uvicorn.Config(self.respond, interface="asgi3", http=protocol, lifespan="off", log_config=None)
        )

    async def respond(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def capture_signals(self) -> Any:
        return nullcontext()


@pytest.fixture
async def listener() -> AsyncIterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        yield listener


@pytest.fixture
async def server(listener: socket.socket) -> AsyncIterator[Server]:
    server = Server()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield server
    server.should_exit = True
    await serving


async def connect(listener: socket.socket, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*listener.getsockname(), local_addr=(address, 0))


async def test_a_request_does_not_wait_for_all_earlier_ones_of_another_address(
    server: Server, listener: socket.socket
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        hostile = [await connect(listener, HOSTILE) for _ in range(REQUESTS)]
        victim = await connect(listener, VICTIM)
        for _, writer in [*hostile, victim]:  # all of them before the server reads the first one
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for reader, writer in [*hostile, victim]:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
    assert len(server.begun) == REQUESTS + 1
    assert server.begun.index(VICTIM) <= 3 * PER_ROUND


async def test_a_request_whose_client_disconnects_before_its_turn_does_not_begin(
    server: Server, listener: socket.socket
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        hostile = [await connect(listener, HOSTILE) for _ in range(REQUESTS)]
        for _, writer in hostile:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            writer.transport.abort()
        reader, writer = await connect(listener, VICTIM)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert server.begun[-1] == VICTIM
    assert len(server.begun) < REQUESTS


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
async def test_the_openapi_document_is_encoded_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_routes(cast(Any, None), openapi.DOCS_ROUTES)
    made: list[Any] = []
    document = {"info": {"version": "1"}, "paths": {}}
    monkeypatch.setattr(openapi, "openapi_document", lambda app: made.append(app) or document)
    bodies = []
    for _ in range(3):
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http",
            "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}, "state": {},
        }  # fmt: skip
        sent: list[dict[str, Any]] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any, sent: list[dict[str, Any]] = sent) -> None:
            sent.append(message)

        await app(cast(Any, scope), receive, send)
        bodies.append(sent[1]["body"])
    assert len(made) == 1
    assert bodies[0] is bodies[1] is bodies[2]
    assert path == "/docs" or msgspec.json.decode(bodies[0]) == document
