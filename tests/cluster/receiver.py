"""A target that keeps a durable log: `python receiver.py LOG` listens on loopback and prints its port.

It writes one line for each request to disk (fsync) before the response; concurrent requests share an fsync.
A request whose sender disconnected before the response has a line without `t_end`. The path selects the response:

    /status/503          that status
    /fail-until/3        500 until attempt 3
    /slow/0.5            200 after half a second
    /hang                never
    anything else        200 at once
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import httptools
import msgspec
import uvloop

_FIELDS = {
    b"webhook-id": "execution_id",
    b"duetime-job-id": "job_id",
    b"duetime-scheduled-at": "scheduled_at",
    b"duetime-attempt": "attempt",
    b"duetime-fencing-token": "token",
    b"duetime-trigger": "trigger",
}
_encode = msgspec.json.Encoder().encode


class Diary:
    """Writes lines to disk; during one fsync the next group of lines collects."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._waiting: list[tuple[bytes, Callable[[], None]]] = []
        self._ready = asyncio.Event()

    def add(self, line: dict[str, Any], then: Callable[[], None]) -> None:
        self._waiting.append((_encode(line) + b"\n", then))
        self._ready.set()

    async def write(self) -> None:
        while await self._ready.wait():
            self._ready.clear()
            group, self._waiting = self._waiting, []
            await asyncio.to_thread(self._store, b"".join(line for line, _ in group))
            for _, then in group:
                then()

    def _store(self, lines: bytes) -> None:
        os.write(self._file, lines)
        os.fsync(self._file)


class Exchange(asyncio.Protocol):
    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self._parser = httptools.HttpRequestParser(self)
        self._line: dict[str, Any] | None = None
        self._later: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if self._line is None:
            self._line = {"t_start": time.time_ns() // 1_000_000}
            self._url = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._later is not None:
            self._later.cancel()
        line, self._line = self._line, None
        if line is not None and "path" in line and "t_end" not in line:
            self._diary.add({**line, "t_end": None, "status": None}, lambda: None)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        field = _FIELDS.get(name.lower())
        if field is not None and self._line is not None:
            self._line[field] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        assert self._line is not None
        self._line["path"] = self._url.decode()
        kind, _, value = self._url.decode().lstrip("/").partition("/")
        status, wait = 200, 0.0
        if kind == "status":
            status = int(value)
        elif kind == "fail-until":
            status = 500 if int(self._line.get("attempt", 1)) < int(value) else 200
        elif kind == "slow":
            wait = float(value)
        elif kind == "hang":
            return
        if wait:
            self._later = asyncio.get_running_loop().call_later(wait, self._finish, status)
        else:
            self._finish(status)

    def _finish(self, status: int) -> None:
        assert self._line is not None
        self._line |= {"t_end": time.time_ns() // 1_000_000, "status": status}
        self._diary.add(self._line, lambda: self._answer(status))

    def _answer(self, status: int) -> None:
        self._line = None
        if not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 %d Told\r\nContent-Length: 0\r\n\r\n" % status)


async def main(path: str) -> None:
    diary = Diary(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Exchange(diary), "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await diary.write()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
