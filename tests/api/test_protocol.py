"""Slow clients, and clients that never stop: no connection takes memory or a place for ever."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
import uvicorn

from duetime.api.http import protocol
from duetime.api.http.protocol import BoundedProtocol
from patience import PATIENCE_SECONDS

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PIECE = b"x" * protocol.BODY_BYTES
LARGE = 32 * 1024 * 1024  # more than the buffers of two sockets hold
SLOWLY_SECONDS = 1.5  # the whole takes longer, and each piece a small part of it: a busy machine is slow, too


class Server(uvicorn.Server):
    port = 0

    def __init__(self) -> None:
        self.lost = lost = asyncio.Event()  # set when a connection has ended

        class Watched(BoundedProtocol):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                lost.set()

        super().__init__(uvicorn.Config(echo, http=Watched, lifespan="off", log_config=None))

    def capture_signals(self) -> Any:
        return nullcontext()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", scope["path"] != "/early"
    if scope["path"] == "/endless":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] == "http.request":
            await send({"type": "http.response.body", "body": bytes(LARGE), "more_body": True})
        return
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body, more = body + message["body"], message["more_body"]
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    elif scope["path"] == "/large":
        body = bytes(LARGE)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "LOOK_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server()
        server.port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield server
        server.should_exit = True
        await serving


@pytest.fixture
async def streams(server: Server) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    yield reader, writer
    writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Returns the bytes until the server closes the connection."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_connection_without_a_head_is_closed(streams: Streams, begun: bytes) -> None:
    reader, writer = streams
    writer.write(begun)
    assert await ended(reader) == b""


async def test_a_slow_head_is_closed(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"GET / HTTP/1.1\r\n")
    ending = asyncio.create_task(ended(reader))
    while not ending.done():
        writer.write(b"X-A: 1\r\n")
        await asyncio.wait({ending}, timeout=0.02)
    assert ending.result() == b""


async def test_a_body_that_stops_is_refused(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
    assert (await ended(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_slow_body_is_accepted(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_SECONDS", SLOWLY_SECONDS)
    reader, writer = streams
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(PIECE * 12))
    for _ in range(12):
        writer.write(PIECE)
        await asyncio.sleep(SLOWLY_SECONDS / 10)
    assert (await ended(reader)).endswith(b"\r\n\r\n" + PIECE * 12)


async def drip(streams: Streams) -> bytes:
    """Writes a byte every 20 ms until the server closes the connection. Returns its response."""
    reader, writer = streams
    ending = asyncio.create_task(ended(reader))
    while not ending.done():
        writer.write(b"x")
        await asyncio.wait({ending}, timeout=0.02)
    return ending.result()


async def test_a_body_that_comes_byte_by_byte_is_refused(streams: Streams) -> None:
    streams[1].write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
    assert (await drip(streams)).startswith(b"HTTP/1.1 408 ")


async def test_a_chunked_body_that_comes_byte_by_byte_is_refused(streams: Streams) -> None:
    reader, writer = streams
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    ending = asyncio.create_task(ended(reader))
    while not ending.done():
        writer.write(b"1\r\nx\r\n")
        await asyncio.wait({ending}, timeout=0.02)
    assert ending.result().startswith(b"HTTP/1.1 408 ")


async def test_slow_bytes_after_the_response_do_not_keep_the_connection(streams: Streams) -> None:
    streams[1].write(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
    assert (await drip(streams)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/large", "/endless"])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_a_connection_whose_response_is_not_read_is_closed(server: Server, path: str, connection: str) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as client:  # a stream would read by itself
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", server.port))
        await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n".encode())
        assert await loop.sock_recv(client, 12) == b"HTTP/1.1 200"
        await asyncio.wait_for(server.lost.wait(), PATIENCE_SECONDS)


async def test_a_response_that_is_read_slowly_is_sent(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_SECONDS", SLOWLY_SECONDS)
    reader, writer = streams
    writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    for _ in range(32):
        await reader.readexactly(LARGE // 32)
        await asyncio.sleep(SLOWLY_SECONDS / 25)
    assert await ended(reader) == b""


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\x00Y: z\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_get_a_problem(streams: Streams, nonsense: bytes) -> None:
    reader, writer = streams
    writer.write(nonsense)
    head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert (problem["status"], problem["error"]) == (400, "INVALID_REQUEST")
    assert b"content-length: %d" % len(body) in head


async def test_a_slow_response_keeps_its_connection(streams: Streams) -> None:
    reader, writer = streams
    for _ in range(2):
        writer.write(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\nok"), PATIENCE_SECONDS)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("piece", [b"X-A: 1\r\n", b"X-A-very-long-value"])
async def test_a_head_without_end_is_refused(streams: Streams, piece: bytes) -> None:
    reader, writer = streams
    writer.write(b"GET / HTTP/1.1\r\n" + (b"X: " if b"\r" not in piece else b"") + piece * 20_000)
    answer = await ended(reader)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_a_response_leaves_in_one_piece(server: Server) -> None:
    """A head that is sent before its body costs one more system call for the node and for its client."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setblocking(False)
        for _ in range(20):
            await loop.sock_sendall(client, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
            piece = await loop.sock_recv(client, 65536)
            assert piece.startswith(b"HTTP/1.1 200")
            assert piece.endswith(b"\r\n\r\nabc"), piece


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
        b"no http\r\n\r\n",
    ],
    ids=["nothing", "a request", "half a body", "no http"],
)
async def test_a_connection_that_ended_is_freed_without_the_collector(server: Server, sent: bytes) -> None:
    """A node's collector looks at old objects rarely: a client that connects in a loop would fill its memory."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            server.lost.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(sent)
            if sent.endswith(b"\r\n\r\n"):
                await asyncio.wait_for(reader.read(1), PATIENCE_SECONDS)
            writer.close()
            await asyncio.wait_for(server.lost.wait(), PATIENCE_SECONDS)
        left = [found for found in gc.get_objects() if isinstance(found, BoundedProtocol)]
    finally:
        gc.enable()
    assert len(left) <= 2  # the last one may still be closing


async def test_many_requests_on_one_connection_are_not_one_large_head(streams: Streams) -> None:
    reader, writer = streams
    for _ in range(30):
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: %b\r\n\r\n" % (b"x" * 4000))
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_SECONDS)).startswith(b"HTTP/1.1 200")
