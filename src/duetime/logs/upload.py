"""Uploads the lines of one open log to an object store, as chunks: one a second while lines come, one as soon as there
are enough bytes for it, and the last one at the close.

A failed chunk is retried under the same name with growing pauses until it succeeds: a second put changes nothing.
Meanwhile new lines wait in memory, as far as there is room.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from duetime.logs.memory import OBJECT_BYTES, Writer
from duetime.ports.logs import Line

CHUNK_BYTES = 256 * 1024
CHUNK_SECONDS = 1.0
# After this many chunks, only one every ten seconds: a program may print a line a second for days.
MANY_CHUNKS = 300
SELDOM_SECONDS = 10.0
LINGER_SECONDS = 120.0  # how long the upload is retried after the log's close
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


class ChunkStore(Protocol):
    async def count_numbered(self, tenant: str, execution_id: str, attempt: int) -> int | None:
        """Returns how many lines of the attempt are stored already; None if the store does not respond."""

    async def put_chunk(self, tenant: str, execution_id: str, lines: Sequence[Line]) -> bool:
        """Stores a chunk. Returns False if the store did not take it."""


class Upload:
    def __init__(self, store: ChunkStore, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._written = asyncio.Event()
        self._due = asyncio.Event()
        self._closing = asyncio.Event()
        self._give_up_at = 0.0  # on the loop's clock, once the log is closing
        self._chunks = 0

    def note(self) -> None:
        self._written.set()
        if self._writer.closed and not self._closing.is_set():
            self._closing.set()
            self._give_up_at = asyncio.get_running_loop().time() + LINGER_SECONDS
        if self._writer.closed or self._writer.waiting_bytes >= CHUNK_BYTES:
            self._due.set()

    async def run(self) -> None:
        """Runs until the log is closed and stored, or until the retries after its close have taken too long."""
        if not await self._settle():
            return
        while True:
            lines = await self._gather()
            if not lines:
                return
            pause = FIRST_PAUSE_SECONDS
            while not await self._store.put_chunk(self._writer.tenant, self._writer.execution_id, lines):
                if not await self._pause(pause):
                    return
                pause *= 2
            self._chunks += 1
            self._writer.keep(len(lines))

    async def _settle(self) -> bool:
        pause = FIRST_PAUSE_SECONDS
        while True:
            writer = self._writer
            numbered = await self._store.count_numbered(writer.tenant, writer.execution_id, writer.attempt)
            if numbered is not None:
                self._writer.settle(numbered)
                return True
            if not await self._pause(pause):
                return False
            pause *= 2

    async def _gather(self) -> list[Line]:
        """Waits until the next chunk is due, and returns its lines; none if the log is closed and all is stored."""
        writer = self._writer
        while not writer.waiting():
            if writer.closed:
                return []
            self._written.clear()
            await self._written.wait()
        if not writer.closed and writer.waiting_bytes < CHUNK_BYTES:
            self._due.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHUNK_SECONDS if self._chunks < MANY_CHUNKS else SELDOM_SECONDS):
                    await self._due.wait()
        return _first_chunk(writer.waiting())

    async def _pause(self, seconds: float) -> bool:
        """Returns False if it is time to give up. A close ends one pause early, for a last try: the caller waits."""
        loop = asyncio.get_running_loop()
        seconds = min(seconds, LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1.0)
        if self._closing.is_set():
            await asyncio.sleep(seconds)
            return loop.time() < self._give_up_at
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        return True


def _first_chunk(lines: list[Line]) -> list[Line]:
    size = 0
    for count, line in enumerate(lines, 1):
        size += len(line.text) + OBJECT_BYTES
        if size >= CHUNK_BYTES:
            return lines[:count]
    return lines
