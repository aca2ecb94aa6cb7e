"""`duetime migrate`: migrates the schema of a database."""

from __future__ import annotations

from typing import Any

import typer

from duetime.cli.errors import CommandFailed
from duetime.cli.options import Data, DatabaseUrl, Json, storage_settings
from duetime.cli.output import print_json


def migrate(database_url: DatabaseUrl = None, data: Data = None, as_json: Json = False) -> None:
    """Migrate the schema of the database, and print the versions before and after.

    A node does the same when it starts. Run it beforehand if nodes may not create tables, or to see how long it takes.
    It is safe to run several at once, or to run it again after a kill. A data folder must not be in use by a node.

    \b
    duetime migrate                # the database of DATABASE_URL or DATA
    duetime migrate --database-url postgresql://admin@host/duetime
    duetime migrate --data /var/lib/duetime --json
    """
    import asyncio

    from duetime.operate.migrate import migrate as migrate_database
    from duetime.store import StoreUnusable

    settings = storage_settings(database_url, data)
    try:
        done = asyncio.run(migrate_database(settings))
    except StoreUnusable as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        print_json({"database": done.database, "from": done.before, "to": done.after, "changed": done.has_changed})
    else:
        typer.echo(_sentence(done))


def _sentence(done: Any) -> str:
    if not done.has_changed:
        return f"{done.database} already has schema {done.after}: nothing to do."
    if done.before == 0:
        return f"{done.database} had no schema, and now has schema {done.after}."
    if done.before == done.after:
        return (
            f"{done.database} already has schema {done.after}; the tables of leases were missing and have been created."
        )
    return f"{done.database} was migrated from schema {done.before} to {done.after}."
