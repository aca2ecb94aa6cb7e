"""A TCP proxy between a node and its database, in its own thread. The test selects a mode:

open        all data passes
slow        all data passes, in each direction `seconds` later
deaf        no data passes in either direction, and no end gets an error: packets are dropped
half_open   data of the node arrives, and no response returns
shut        connections are closed, and new ones are refused
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")


class Gate:
    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._mode = "open"
        self._seconds = 0.0
        self._at_commit = ""  # the mode that the next COMMIT switches to
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._thread.start()
        self._server = self._do(self._listen())
        port = self._server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}"))

    def _do(self, deed: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(deed, self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    # Actions of a test

    def open(self) -> None:
        """Lets all data pass again. Connections that were deaf are closed, because they have lost data."""
        was_broken = self._mode in ("deaf", "half_open")
        self._set("open", cut=was_broken)

    def slow(self, seconds: float) -> None:
        self._seconds = seconds
        self._set("slow")

    def deaf(self) -> None:
        self._set("deaf")

    def half_open(self) -> None:
        self._set("half_open")

    def shut(self) -> None:
        self._set("shut", cut=True)

    def lose_at_commit(self, mode: str) -> None:
        """The next COMMIT arrives, and its response does not: then the gate is `deaf`, `half_open` or `shut`."""
        self._at_commit = mode

    def is_lost(self) -> bool:
        """Returns whether that COMMIT has arrived."""
        return not self._at_commit

    def _look(self, data: bytes) -> None:
        if self._at_commit and b"COMMIT\0" in data:
            self._mode, self._at_commit = self._at_commit, ""
            if self._mode == "shut":
                self._loop.call_later(0.05, self._cut)  # it has arrived by then

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _set(self, mode: str, cut: bool = False) -> None:
        async def change() -> None:
            self._mode = mode
            if cut:
                self._cut()

        self._do(change())

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # Traffic

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        back: asyncio.StreamWriter | None = None
        try:
            if self._mode != "shut":
                there, back = await asyncio.open_connection(self._parts.hostname, self._parts.port)
                self._writers.add(back)
                await self._join(reader, writer, there, back)
        except OSError:
            pass  # the database itself is not reachable
        finally:
            for end in (writer, back):
                if end is not None:
                    end.transport.abort()
                    self._writers.discard(end)

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        pumps = {
            asyncio.ensure_future(self._pump(reader, back, lambda: self._mode != "deaf", self._look)),
            asyncio.ensure_future(self._pump(there, writer, lambda: self._mode in ("open", "slow"))),
        }
        self._pumps |= pumps
        await asyncio.wait(pumps)
        self._pumps -= pumps

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[], bool],
        look: Callable[[bytes], None] = lambda data: None,
    ) -> None:  # fmt: skip
        # A slow line is not narrow: pieces follow each other closely, each with its own delay, in their order.
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.ensure_future(self._send(under_way, writer))
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    if passes():
                        under_way.put_nowait((self._arrives_at(), data))
                    look(data)
            if passes():  # otherwise neither end learns of the close
                under_way.put_nowait((self._arrives_at(), b""))
                await sender
        finally:
            sender.cancel()

    def _arrives_at(self) -> float:
        return self._loop.time() + (self._seconds if self._mode == "slow" else 0)

    async def _send(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            at, data = await under_way.get()
            if at > self._loop.time():
                await asyncio.sleep(at - self._loop.time())
            if not data or writer.is_closing():
                writer.close()
                return
            writer.write(data)
