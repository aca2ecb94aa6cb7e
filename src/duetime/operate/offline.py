"""Opens a database whose nodes may be running, for a command next to them. It must not start a node or migrate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duetime.domain.doctor import reason
from duetime.postgres import TROUBLE, Servers
from duetime.settings.table import Settings
from duetime.store import StoreUnusable
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.postgres.schema import get_versions
from duetime.store.sqlite.offline import OfflineSqlite

CONNECT_SECONDS = 10


@asynccontextmanager
async def open_offline(settings: Settings) -> AsyncIterator[PostgresStore | OfflineSqlite]:
    """Yields the configured store. Raises StoreUnusable."""
    store: PostgresStore | OfflineSqlite
    if settings.database_url:
        await _check_schema(Address(settings.database_url))
        store = PostgresStore(settings.database_url, op_timeout_seconds=settings.db_op_timeout)
    else:
        store = OfflineSqlite(settings.data)
    try:
        await store.start()
        yield store
    finally:
        await store.stop()


async def _check_schema(address: Address) -> None:
    """Raises StoreUnusable if the schema is not current: a starting store migrates, and older nodes may be running."""
    try:
        connection = await Servers(address.url).connect(CONNECT_SECONDS, statement_cache_size=0)
        try:
            found, newest = await get_versions(connection)
        finally:
            await connection.close()
    except (*TROUBLE, ValueError) as error:
        raise StoreUnusable(
            f"the database {address.shown} can't be used: {reason(error)}. Is the server running, is the URL right?"
        ) from error
    if found != newest:
        raise StoreUnusable(
            f"the database {address.shown} has schema {found}, and this Duetime needs schema {newest}: run "
            "`duetime migrate`, or use the matching version of Duetime"
        )
