"""A TCP proxy between a store and its server. A test can make it drop, delay or cut the traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit


class Proxy:
    """`swallow_answer_to` names a command: the next one passes, its response does not, and the connection is closed."""

    def __init__(self, target: str) -> None:
        self._parts = urlsplit(target)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.swallow_answer_to: bytes | None = None
        self.swallow_before: bytes | None = None  # the command itself never arrives
        self.is_deaf = False  # no bytes pass in either direction, and the connections stay open
        self.hides_hanging_up = False  # the last bytes of the server arrive; its close does not
        self.cuts = 0
        self.commits = 0

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = dict(parse_qsl(self._parts.query)).get("host", self._parts.hostname or "127.0.0.1")
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{self._parts.port or 5432}")
        return await asyncio.open_connection(host, self._parts.port or 5432)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await self._connect()
        except OSError:
            writer.close()
            return
        self._writers |= {writer, up_writer}
        is_swallowing = asyncio.Event()

        async def to_server() -> None:
            while data := await reader.read(65536):
                self.commits += data.count(b"COMMIT\0")
                if self.swallow_before is not None and self.swallow_before in data:
                    self.swallow_before = None
                    self.cuts += 1
                    writer.transport.abort()
                    return  # the server's side stays open, and receives nothing more
                if self.swallow_answer_to is not None and self.swallow_answer_to in data:
                    self.swallow_answer_to = None
                    is_swallowing.set()
                if not self.is_deaf:
                    up_writer.write(data)
            up_writer.close()

        async def to_client() -> None:
            while data := await up_reader.read(65536):
                if is_swallowing.is_set():
                    self.cuts += 1
                    writer.transport.abort()
                    up_writer.close()
                    return
                if not self.is_deaf:
                    writer.write(data)
            if not self.hides_hanging_up:
                writer.close()

        for pump in (to_server(), to_client()):
            task = asyncio.create_task(_quietly(pump))
            self._tasks.add(task)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Returns the URL that leads through the proxy."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = self._parts.username or "postgres"
        password = f":{self._parts.password}" if self._parts.password else ""
        query = {name: value for name, value in parse_qsl(self._parts.query) if name != "host"} | {"sslmode": "disable"}
        netloc = f"{user}{password}@127.0.0.1:{port}"
        try:
            yield urlunsplit(self._parts._replace(netloc=netloc, query=urlencode(query)))
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def _quietly(pump: Coroutine[Any, Any, None]) -> None:
    with suppress(OSError):
        await pump
