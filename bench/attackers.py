"""Two hostile tenants that attack a node in every way they have, all at once, until this process is stopped.

    python -m bench.attackers PORT TOKEN TOKEN

Every attack is a loop: an attack that is refused, closed or answered begins again. Prints `ready` when all have begun.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
import uvloop

FROM = "127.0.0.66"  # the address that attacks come from: a victim's own is not to pay for it
IDLE_SOCKETS = 1000
DRIPPING_BODIES = 300
STREAMS = 100
ARRAY_BYTES = 200_000_000
SECRETS = 1000
PAUSE_SECONDS = 0.5  # before an attack that was ended begins again

Attack = Callable[[], Awaitable[None]]


class Attackers:
    def __init__(self, port: int, tokens: list[str]) -> None:
        self._port = port
        self._tokens = tokens
        self._names = count()

    def attacks(self) -> list[Attack]:
        first, second = self._tokens
        return [
            self._trailers,
            self._chunk_extensions,
            *[self._idle_socket] * IDLE_SOCKETS,
            *[lambda: self._dripping_body(second)] * DRIPPING_BODIES,
            *[lambda: self._stream(first)] * STREAMS,
            *[lambda: self._array(second)] * 3,
            lambda: self._api_keys(first),
            lambda: self._lists(second),
        ]

    async def create_jobs(self) -> None:
        """Jobs that run every second: against targets that answer without end, and with many secrets to redact."""
        targets = [await serve(answer) for answer in (_endless_trailers, _tiny_chunks, _endless_informational, _echo)]
        echo = targets[-1]
        secrets = {f"field{number}": f"secret-{number:06}" for number in range(SECRETS)}
        pointers = [f"/body/{name}" for name in secrets]
        every_second = {"type": "http_request", "schedule": "every 1s", "overlap": "allow", "timeout_seconds": 5}
        for token in self._tokens:
            for port in targets:
                url = f"http://127.0.0.1:{port}/"
                await self._ask(token, "POST", "/api/v1/jobs", every_second | self._named({"url": url}))
            payload = {"url": f"http://127.0.0.1:{echo}/", "method": "POST", "body": secrets, "secret": pointers}
            await self._ask(token, "POST", "/api/v1/jobs", every_second | self._named(payload))

    def _named(self, payload: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"attack-{next(self._names)}", "payload": payload}

    # Before authentication

    async def _trailers(self) -> None:
        await self._send_for_ever(_head("POST", "chunked") + b"0\r\n", b"x-a: b\r\n" * 8000)

    async def _chunk_extensions(self) -> None:
        await self._send_for_ever(_head("POST", "chunked"), b"1;" + b"a=b;" * 8000 + b"\r\nx\r\n")

    async def _idle_socket(self) -> None:
        reader, writer = await self._connect()
        try:
            await reader.read()
        finally:
            writer.close()

    async def _dripping_body(self, token: str) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(_head("POST", "100000", token=token))
            closed = asyncio.ensure_future(reader.read())
            while not closed.done():
                writer.write(b" ")
                await asyncio.wait({closed}, timeout=0.5)
        finally:
            writer.close()

    # As a tenant

    async def _array(self, token: str) -> None:
        job = msgspec.json.encode({"name": "a", "type": "http_request", "schedule": "2100-01-01T00:00:00Z"})
        await self._send_for_ever(
            _head("POST", str(ARRAY_BYTES), "/api/v1/jobs:batch", token) + b"[", (job + b",") * 8000
        )

    async def _stream(self, token: str) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(_head("GET", "", "/api/v1/events", token))
            await reader.read()
        finally:
            writer.close()

    async def _api_keys(self, token: str) -> None:
        name = f"key-{next(self._names)}"
        await self._ask(token, "POST", "/api/v1/api-keys", {"name": name, "user_id": name, "role": "admin"})

    async def _lists(self, token: str) -> None:
        await self._ask(token, "GET", "/api/v1/executions?limit=100&state=FAILED", None)

    # Over sockets

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=(FROM, 0))

    async def _send_for_ever(self, begin: bytes, piece: bytes) -> None:
        reader, writer = await self._connect()
        try:
            answered = asyncio.ensure_future(reader.read())
            writer.write(begin)
            while not answered.done():
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            writer.close()

    async def _ask(self, token: str, method: str, path: str, body: Any) -> bytes:
        reader, writer = await self._connect()
        try:
            data = b"" if body is None else msgspec.json.encode(body)
            writer.write(_head(method, str(len(data)), path, token, "close") + data)
            return await reader.read()
        finally:
            writer.close()


def _head(
    method: str, length: str, path: str = "/api/v1/jobs", token: str = "", connection: str = "keep-alive"
) -> bytes:
    framing = "transfer-encoding: chunked" if length == "chunked" else f"content-length: {length or 0}"
    accept = "accept: text/event-stream\r\n" if path.endswith("/events") else ""
    credential = f"authorization: Bearer {token}\r\n" if token else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{accept}{credential}"
        f"connection: {connection}\r\n{framing}\r\n\r\n"
    ).encode()


# Targets that answer without end


async def serve(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> int:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _write_for_ever(writer: asyncio.StreamWriter, begin: bytes, piece: bytes) -> None:
    writer.write(begin)
    while not writer.transport.is_closing():
        writer.write(piece)
        await writer.drain()


async def _endless_trailers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    begin = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    await _write_for_ever(writer, begin, b"x-a: b\r\n" * 8000)


async def _tiny_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await _write_for_ever(writer, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 8000)


async def _endless_informational(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await _write_for_ever(writer, b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" * 2000)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what it got: all of a job's secrets come back to be redacted."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    body = await reader.readexactly(length)
    writer.write(b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def _repeat(attack: Attack) -> None:
    while True:
        with suppress(OSError):
            await attack()
        await asyncio.sleep(PAUSE_SECONDS)


async def main(port: int, tokens: list[str]) -> None:
    attackers = Attackers(port, tokens)
    await attackers.create_jobs()
    attacks = [asyncio.create_task(_repeat(attack)) for attack in attackers.attacks()]
    print("ready", flush=True)
    await asyncio.gather(*attacks)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2:4]))
