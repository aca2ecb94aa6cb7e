"""A target that misbehaves on request: the path selects how. Real sockets, loopback only."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
RETRY_AFTER = {
    "seconds": b"120",
    "huge": b"1000000000",
    "negative": b"-5",
    "garbage": b"soon\xff",
    "date": b"Wed, 21 Oct 2015 07:28:00 GMT",
    "past": b"Wed, 21 Oct 2015 07:00:00 GMT",
}


@dataclass(frozen=True)
class Received:
    line: str
    headers: dict[str, str]
    body: bytes


class Hostile:
    """Use with `async with`. `received` holds the requests; `gone` is set when a client disconnects."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self.received: list[Received] = []
        self.connections = 0
        self.reached = asyncio.Event()
        self.gone = asyncio.Event()
        self.answer = OK
        self._tls = tls
        self._answered: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        # A fixture may have reserved the port with a socket that does not listen.
        self._server = await asyncio.start_server(
            self._serve, self.host, self.port, ssl=self._tls, reuse_port=bool(self.port)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def connections_open(self) -> int:
        return len(self._tasks)

    def url(self, path: str = "/ok", host: str | None = None) -> str:
        return f"{'https' if self._tls else 'http'}://{host or self.host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled only by __aexit__, which waits for it; the streams of 3.11 log it otherwise
        finally:
            self._tasks.discard(task)
            self.gone.set()
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.received.append(Received(line, headers, body))
        self.reached.set()
        what, _, detail = line.split(" ")[1].partition("?")[0].lstrip("/").partition("/")
        act: Callable[[str, asyncio.StreamWriter], Awaitable[bool]] = getattr(self, f"do_{what}")
        keep = await act(detail, writer)
        await writer.drain()
        return keep

    async def do_ok(self, _: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(self.answer)
        return True

    async def do_hang(self, _: str, writer: asyncio.StreamWriter) -> bool:
        return False

    async def do_status(self, code: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 {code} Whatever\r\nContent-Length: 4\r\n\r\nbody".encode())
        return True

    async def do_retry(self, kind: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 429 Slow\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n" % RETRY_AFTER[kind])
        return True

    async def do_redirect(self, _: str, writer: asyncio.StreamWriter) -> bool:
        where = b"http://169.254.169.254/latest/meta-data/"
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % where)
        return True

    async def do_drip(self, part: str, writer: asyncio.StreamWriter) -> bool:
        """Sends a byte every 20 ms, of the head or of the body, without end."""
        writer.write(b"HTTP/1.1 200 OK\r\nX-Drip: " if part == "head" else b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)
        return False

    async def do_endless(self, _: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n%b\r\n" % (b"x" * 4096))
            await writer.drain()

    async def do_bomb(self, _: str, writer: asyncio.StreamWriter) -> bool:
        body = gzip.compress(bytes(20_000_000))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        return True

    async def do_giant(self, kind: str, writer: asyncio.StreamWriter) -> bool:
        """A head without end: one line, many lines, or interim responses."""
        start, more = {
            "line": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"y" * 4096),
            "many": (b"HTTP/1.1 200 OK\r\n", b"X-Many: y\r\n" * 400),
            "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
            "whole": (b"HTTP/1.1 200 OK\r\nX-Long: " + b"y" * 66_000 + b"\r\nContent-Length: 0\r\n\r\n", b""),
        }[kind]
        writer.write(start)
        while more:
            writer.write(more)
            await writer.drain()
        return False

    async def do_stale(self, _: str, writer: asyncio.StreamWriter) -> bool:
        """Answers the first request of a connection and closes it at the second."""
        if writer in self._answered:
            writer.transport.abort()
            return False
        self._answered.add(writer)
        writer.write(OK)
        return True

    async def do_raw(self, kind: str, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            {
                "garbage": b"\x00\x16SSH-2.0-OpenSSH_9.2\r\n\r\n",
                "short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
                "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
                "nul": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na\x00b\xff\xfec\x1b[m",
                "close": b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
                "two": OK + b"HTTP/1.1 500 Not yours\r\nContent-Length: 0\r\n\r\n",
                "interim": b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n" + OK,
                "upgrade": b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
                "reset": b"",
            }[kind]
        )
        await writer.drain()
        if kind == "reset":
            writer.transport.abort()
        elif kind in ("short", "close"):
            writer.close()
        return kind == "two"
