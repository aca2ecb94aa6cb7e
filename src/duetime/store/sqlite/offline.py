"""Offline access to a database, even while a node runs on it: for `duetime keys rotate` and `duetime audit verify`.

It takes no lock on the folder and starts no node; with SQLite's own lock both write in turns. It must only apply
commands that are safe from any process: commands that name the version they were made for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from duetime.domain import audit
from duetime.domain.capacity import UNBOUNDED
from duetime.domain.commands import Command
from duetime.domain.job import JobSpec
from duetime.ports.store import AuditCheckpoint, AuditPage, ChannelRecord, ConnectionRecord
from duetime.store import StoreUnusable
from duetime.store.decoding import decode, read_specs
from duetime.store.sqlite.apply import Applier
from duetime.store.sqlite.blocks import load_blocks
from duetime.store.sqlite.export import get_versions, open_source
from duetime.store.sqlite.handover import refuse_promoted

BUSY_MS = 30_000  # a node writes all the time, but never for long

T = TypeVar("T")


class OfflineSqlite:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "duetime-offline")
        self._sql = load_blocks("reads.sql")
        self._connection: apsw.Connection | None = None

    async def start(self) -> None:
        """Raises StoreUnusable if there is no database, its schema has another version, or it was promoted."""
        await self._do(self._open)

    def _open(self) -> None:
        connection = open_source(self._folder)
        try:
            connection.set_busy_timeout(BUSY_MS)
            connection.pragma("secure_delete", 1)  # or old plain text would stay in the file's free space
            found, newest = get_versions(connection)
            if found != newest:
                raise StoreUnusable(
                    f"{self._folder} has schema {found}, and this Duetime works on schema {newest}: bring it up to "
                    "date with `duetime migrate`, or use the version that runs on it"
                )
            refuse_promoted(connection, self._folder)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._applier = Applier(connection, UNBOUNDED)

    async def stop(self) -> None:
        if self._connection is not None:
            await self._do(self._connection.close)
        self._thread.shutdown()

    async def list_specs(self, after: str, limit: int) -> list[tuple[str, str, int, JobSpec]]:
        """As `ports.store.Store` says."""
        return await read_specs(
            lambda last: self._do(lambda: self._text("list_specs", {"after": last, "limit": limit})), after
        )

    async def list_connections(self, tenant: str | None, limit: int) -> list[ConnectionRecord]:
        """As `ports.store.Store` says."""
        values = {"tenant": tenant, "limit": limit}
        return await self._do(lambda: decode(ConnectionRecord, self._text("list_connections", values)))

    async def list_channels(self, tenant: str | None, limit: int) -> list[ChannelRecord]:
        """As `ports.store.Store` says."""
        values = {"tenant": tenant, "limit": limit, "after": ""}
        return await self._do(lambda: decode(ChannelRecord, self._text("list_channels", values)))

    async def list_audit_pages(self, after: tuple[int, int], limit: int) -> list[AuditPage]:
        """As `ports.store.Store` says."""
        values = {"after": after[1] if after[0] >= audit.PROMOTED else -(2**40), "limit": limit}
        return await self._do(lambda: decode(AuditPage, self._text("list_audit_pages", values)))

    async def list_audit_checkpoints(self) -> list[AuditCheckpoint]:
        """As `ports.store.Store` says."""
        return await self._do(lambda: decode(AuditCheckpoint, self._text("list_audit_checkpoints", {})))

    def _text(self, block: str, values: dict[str, Any]) -> str | None:
        assert self._connection is not None
        sql = f"SELECT '[' || group_concat(row) || ']' FROM ({self._sql[block]})"
        ((text,),) = self._connection.execute(sql, values).fetchall()
        return None if text is None else str(text)

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        """As `ports.store.Store` says, in its own commit."""
        return await self._do(lambda: self._apply(commands))

    def _apply(self, commands: Sequence[Command]) -> list[Any]:
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._applier.begin()
            answers = [self._applier.apply(command) for command in commands]
            self._applier.end()
            self._connection.execute("COMMIT")
        except BaseException:
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
            raise
        return answers

    async def _do(self, deed: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, deed)
        except apsw.Error as error:
            raise StoreUnusable(f"the database in {self._folder} can't be read or written: {error}") from error
