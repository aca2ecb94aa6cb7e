"""The schema: numbered migrations. All missing ones run in one transaction, under a lock that ends with it.

If two nodes start at once, the second waits for the first and then finds nothing to do. A kill in the middle leaves the
old schema. A command for operators calls `migrate` and `get_versions`, too.
"""

from __future__ import annotations

import asyncpg

from duetime.postgres import Servers
from duetime.process.crash import crash_point
from duetime.store import StoreUnusable
from duetime.store.postgres.blocks import load_migrations
from duetime.store.postgres.connections import Address

LOCK = 0x64756574_696D65  # of pg_advisory_xact_lock; also held while partitions are created
MIGRATION_SECONDS = 600
_VERSION = "SELECT coalesce(max(version), 0) FROM schema_versions"


async def get_versions(connection: asyncpg.Connection) -> tuple[int, int]:
    """Returns (the database's version, the newest that this Duetime knows)."""
    newest = load_migrations()[-1][0]
    if await connection.fetchval("SELECT to_regclass('schema_versions') IS NULL"):
        return 0, newest
    return int(await connection.fetchval(_VERSION)), newest


async def migrate(address: Address) -> tuple[int, int]:
    """Brings the schema up to date. Returns the version before and the version now."""
    # A separate connection: the time limits of normal statements do not apply to a migration.
    connection = await Servers(address.url).connect(10, statement_cache_size=0)
    try:
        found, newest = await get_versions(connection)
        if found != newest:
            found = await _migrate(connection)
            crash_point("after_migration")
        if found > newest:
            raise StoreUnusable(
                f"the database {address.shown} has schema {found}, this Duetime knows {newest} at most: it was written "
                "by a newer one. Install that version on this node, or use another database."
            )
        return found, newest
    finally:
        await connection.close()


async def _migrate(connection: asyncpg.Connection) -> int:
    async with connection.transaction():
        await connection.execute(
            f"SET LOCAL lock_timeout = '{MIGRATION_SECONDS}s'; SET LOCAL statement_timeout = '{MIGRATION_SECONDS}s'"
        )
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_versions (version integer PRIMARY KEY, at timestamptz DEFAULT now())"
        )
        found = int(await connection.fetchval(_VERSION))
        for number, sql in load_migrations():
            if number > found:
                await connection.execute(sql)
                await connection.execute("INSERT INTO schema_versions (version) VALUES ($1)", number)
                crash_point("in_migration")
        return found
