"""Clients that dawdle, and ones that never stop: a connection costs neither memory nor a place for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
import uvicorn

from duetime.api import protocol
from duetime.api.protocol import BoundedProtocol

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body, more = body + message["body"], message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def streams(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Streams]:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "LOOK_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(uvicorn.Config(echo, http=BoundedProtocol, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        yield reader, writer
        writer.close()
        server.should_exit = True
        await serving


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the server closed the connection."""
    async with asyncio.timeout(5):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_head_that_does_not_come_is_not_waited_for(streams: Streams, begun: bytes) -> None:
    reader, writer = streams
    writer.write(begun)
    assert await ended(reader) == b""


async def test_a_head_that_trickles_in_is_not_waited_for(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"GET / HTTP/1.1\r\n")
    ending = asyncio.create_task(ended(reader))
    while not ending.done():
        writer.write(b"X-A: 1\r\n")
        await asyncio.wait({ending}, timeout=0.02)
    assert ending.result() == b""


async def test_a_body_that_falls_silent_is_not_waited_for(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
    assert await ended(reader) == b""


async def test_a_body_that_comes_slowly_is(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n")
    for _ in range(10):
        writer.write(b"x")
        await asyncio.sleep(0.06)
    assert (await ended(reader)).endswith(b"\r\n\r\nxxxxxxxxxx")


async def test_an_answer_may_take_its_time_and_the_connection_is_kept(streams: Streams) -> None:
    reader, writer = streams
    for _ in range(2):
        writer.write(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\nok"), 5)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("piece", [b"X-A: 1\r\n", b"X-A-very-long-value"])
async def test_a_head_without_end_is_refused(streams: Streams, piece: bytes) -> None:
    reader, writer = streams
    writer.write(b"GET / HTTP/1.1\r\n" + (b"X: " if b"\r" not in piece else b"") + piece * 20_000)
    answer = await ended(reader)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_many_requests_on_one_connection_are_not_one_large_head(streams: Streams) -> None:
    reader, writer = streams
    for _ in range(30):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: %b\r\n\r\n" % (b"x" * 4000))
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).startswith(b"HTTP/1.1 200")
