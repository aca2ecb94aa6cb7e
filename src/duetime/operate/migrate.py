"""`duetime migrate`: brings the schema and the registry's tables to this version of Duetime.

It does the same as a node's start, under the same locks, and starts no node. Concurrent runs converge; the next run
continues one that was killed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from duetime.domain.doctor import reason
from duetime.postgres import TROUBLE
from duetime.registry.postgres import PostgresRegistry, read_view
from duetime.settings.table import Settings
from duetime.store import StoreUnusable
from duetime.store.postgres.connections import Address
from duetime.store.postgres.schema import migrate as migrate_schema
from duetime.store.sqlite.connection import FILE_NAME, migrate_folder

REGISTRY_SECONDS = 10.0


class Migrated(msgspec.Struct, frozen=True):
    """`database` is for display: host and database, or the file; no password. `before` 0: there was no schema."""

    database: str
    before: int
    after: int
    has_changed: bool


async def migrate(settings: Settings) -> Migrated:
    """Migrates the configured database. Raises StoreUnusable, with the reason."""
    if settings.database_url:
        return await _migrate_postgres(settings.database_url)
    return await asyncio.to_thread(_migrate_sqlite, settings.data)


def _migrate_sqlite(folder: Path) -> Migrated:
    try:
        before, after = migrate_folder(folder)
    except OSError as error:
        raise StoreUnusable(f"{folder} can't be used: {error.strerror or error}. May this user write there?") from None
    return Migrated(str(folder / FILE_NAME), before, after, before != after)


async def _migrate_postgres(url: str) -> Migrated:
    address = Address(url)
    try:
        before, after = await migrate_schema(address)
        has_registry = await read_view(address.url, REGISTRY_SECONDS) is not None
        registry = PostgresRegistry(address.url)
        try:
            await registry.start()
        finally:
            await registry.stop()
    except (*TROUBLE, RuntimeError) as error:
        raise StoreUnusable(
            f"the database {address.shown} can't be used: {reason(error)}. "
            "Is the server running, is the URL right, and may this user create tables there?"
        ) from None
    return Migrated(address.shown, before, after, before != after or not has_registry)
