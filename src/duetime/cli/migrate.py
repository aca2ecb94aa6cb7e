"""`duetime migrate`: brings a database's schema up to date."""

from __future__ import annotations

from typing import Any

import typer

from duetime.cli.errors import CommandFailed
from duetime.cli.options import Data, DatabaseUrl, Json, storage_settings


def migrate(database_url: DatabaseUrl = None, data: Data = None, as_json: Json = False) -> None:
    """Bring the schema of the database up to date, and say from which to which.

    A node does the same when it starts. Run it beforehand if nodes may not create tables, or to see how long it takes.
    Several at once, or one after a kill, do no harm. A data folder must not be in use by a node.

    \b
    duetime migrate                # what DATABASE_URL or DATA names
    duetime migrate --database-url postgresql://admin@host/duetime
    duetime migrate --data /var/lib/duetime --json
    """
    import asyncio

    from duetime.cli.output import print_json
    from duetime.operate.migrate import StoreUnusable
    from duetime.operate.migrate import migrate as migrate_database

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
        return f"{done.database} has schema {done.after} already: nothing to do."
    if done.before == 0:
        return f"{done.database} had no schema, and has schema {done.after} now."
    if done.before == done.after:
        return f"{done.database} has schema {done.after} already; the tables of leases were missing and are there now."
    return f"{done.database} was brought from schema {done.before} to {done.after}."
