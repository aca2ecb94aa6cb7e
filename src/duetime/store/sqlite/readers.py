"""Threads that read the database file, each with its own connection. Three groups do not block each other:

- The engine has one thread: a user's slow list must not delay an execution.
- The node has one thread for its own reads: health, load, API keys.
- Users share a few threads, by tenant: one tenant's slow lists take no thread from another tenant's reads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from duetime.domain.errors import Overloaded
from duetime.places import Places
from duetime.ports.usage import PoolUsage
from duetime.store.decoding import Rows, bounded
from duetime.store.sqlite.connection import READER_CACHE_KIB, SMALL_CACHE_KIB, open_connection

R = TypeVar("R")
Fetch = Callable[[str, dict[str, Any]], R]

AT_ONCE = 2  # reads of users; a tenant below its share may start beyond this number
MOST_AT_ONCE = 8
MOST_WAITING = 256  # reads of one tenant
# Of SQLite's virtual machine, some 12 ms: how often a read checks its time limit, which needs Python's lock.
STEPS = 1_000_000


class Reads:
    """Reads without a time limit."""

    cache_kib = READER_CACHE_KIB

    def __init__(self, folder: Path, threads: int, name: str) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(threads, name)
        self._threads = threads
        self._busy = 0
        self._local = threading.local()
        self.connections: list[apsw.Connection] = []

    async def text(self, sql: str, values: dict[str, Any]) -> str | None:
        """Returns all rows as one JSON text: Python's lock is taken once for any number of rows."""
        return await self._run(self._fetch, sql, values)

    def usage(self) -> PoolUsage:
        """Returns how many of the threads read now. Reads that wait for a thread are not counted."""
        busy = min(self._busy, self._threads)
        return PoolUsage(busy, max(0, len(self.connections) - busy), self._threads)

    async def _run(self, call: Callable[..., R], *values: Any) -> R:
        self._busy += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, *values)
        finally:
            self._busy -= 1

    async def stop(self) -> None:
        await asyncio.to_thread(self._pool.shutdown)
        for connection in self.connections:
            connection.close()

    def _reader(self) -> apsw.Connection:
        """Returns this thread's own connection."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_connection(self._folder, writer=False, cache_kib=self.cache_kib)
            self.connections.append(connection)
        return connection

    def _fetch(self, sql: str, values: dict[str, Any]) -> str | None:
        connection = self._reader()
        for (text,) in connection.execute(f"SELECT '[' || group_concat(row) || ']' FROM ({sql})", values):
            return None if text is None else str(text)
        return None


class TimedReads(Reads):
    """Reads that raise Overloaded after `seconds`."""

    def __init__(self, folder: Path, threads: int, name: str, seconds: float) -> None:
        super().__init__(folder, threads, name)
        self.seconds = seconds

    async def text(self, sql: str, values: dict[str, Any]) -> str | None:
        return await self._in_time(self._fetch, sql, values)

    async def page(self, sql: str, values: dict[str, Any]) -> Rows:
        """Returns as many rows as fit into a page. Does not read the others."""
        return await self._in_time(self._fetch_page, sql, values)

    async def _in_time(self, fetch: Fetch[R], sql: str, values: dict[str, Any]) -> R:
        return await self._until(time.monotonic() + self.seconds, fetch, sql, values)  # waiting counts, too

    async def _until(self, until: float, fetch: Fetch[R], sql: str, values: dict[str, Any]) -> R:
        return await self._run(self._fetch_until, until, fetch, sql, values)

    def _fetch_until(self, until: float, fetch: Fetch[R], sql: str, values: dict[str, Any]) -> R:
        def is_late() -> bool:
            return time.monotonic() > until

        connection = self._reader()
        connection.set_progress_handler(is_late, STEPS)
        try:
            if is_late():
                raise self._too_slow()
            return fetch(sql, values)
        except apsw.InterruptError:
            raise self._too_slow() from None
        finally:
            connection.set_progress_handler(None)

    def _fetch_page(self, sql: str, values: dict[str, Any]) -> Rows:
        return bounded(row for (row,) in self._reader().execute(sql, values))

    def _too_slow(self) -> Overloaded:
        return Overloaded(
            f"reading this took longer than {self.seconds:g} s and was stopped; read less (a narrower "
            "filter, a smaller page), or raise DB_OP_TIMEOUT",
            retry_after=2,
        )


class FairReads(TimedReads):
    """Reads of users. `tenant` among the values is the tenant that reads. The time limit includes the wait."""

    cache_kib = SMALL_CACHE_KIB

    def __init__(self, folder: Path, name: str, seconds: float) -> None:
        super().__init__(folder, MOST_AT_ONCE, name, seconds)
        self.places = Places(AT_ONCE, MOST_AT_ONCE, MOST_WAITING)

    async def _in_time(self, fetch: Fetch[R], sql: str, values: dict[str, Any]) -> R:
        until = time.monotonic() + self.seconds
        async with self.places.of(values.get("tenant") or ""):
            return await self._until(until, fetch, sql, values)
