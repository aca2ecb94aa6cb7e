"""Opens connections to the database file: settings, the check at start, migrations, and the lock on the folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

import apsw

from duetime.store.sqlite.blocks import load_migrations

FILE_NAME = "duetime.db"
WRITER_CACHE_KIB = 32 * 1024
READER_CACHE_KIB = 8 * 1024


class StoreUnusable(Exception):
    """The database can't be used as it is. The message says why and what to do."""


def lock_folder(folder: Path) -> IO[str]:
    """One process a data folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "duetime.lock", "a+")  # noqa: SIM115 (held until the store stops)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        lock.close()
        raise StoreUnusable(
            f"{folder} is in use by another Duetime (process {owner}). Stop it, or start this one with another --data."
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def open_connection(folder: Path, *, writer: bool) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writer else 0)
    connection = apsw.Connection(str(folder / FILE_NAME), flags=flags)
    connection.set_busy_timeout(5000)
    settings = [
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",  # a commit that was answered survives the power going
        f"PRAGMA cache_size = -{WRITER_CACHE_KIB if writer else READER_CACHE_KIB}",
        "PRAGMA temp_store = MEMORY",
        "PRAGMA trusted_schema = OFF",
    ]
    if writer:
        settings += ["PRAGMA wal_autocheckpoint = 4000", "PRAGMA journal_size_limit = 67108864"]
    else:
        settings.append("PRAGMA query_only = ON")
    for setting in settings:
        list(connection.execute(setting))
    return connection


def check_integrity(connection: apsw.Connection, table: str | None = None) -> None:
    """SQLite's own quick check, of everything or of one table. Raises StoreUnusable with what it found."""
    argument = f"('{table}')" if table else "(10)"
    try:
        found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check{argument}")]
    except apsw.Error as error:
        found = [str(error)]
    if found != ["ok"]:
        raise damaged("; ".join(found[:3]))


def damaged(what: str) -> StoreUnusable:
    return StoreUnusable(
        f"the database is damaged: {what}. Nothing was changed. Restore {FILE_NAME} from a backup, "
        f"or recover what can be read with: sqlite3 {FILE_NAME} .recover"
    )


def void_nodes(connection: apsw.Connection) -> None:
    """Whoever holds the folder's lock is alone: every node that the file still shows as alive is gone.

    (StartNode voids a node of the same name; but a machine or a container may be called otherwise after a crash.)
    """
    list(connection.execute("UPDATE nodes SET ended_at = unixepoch('subsec') * 1000 WHERE ended_at IS NULL"))


def migrate(connection: apsw.Connection) -> None:
    """Bring the schema up to date, each step in a transaction of its own: a kill in between is simply carried on."""
    migrations = load_migrations()
    newest = migrations[-1][0]
    version = connection.pragma("user_version")
    if version > newest:
        raise StoreUnusable(
            f"the database has schema {version}, this Duetime knows {newest} at most: it was written by a newer one. "
            "Install that version, or start with another --data."
        )
    for number, sql in migrations:
        if number > version:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for _ in connection.execute(sql):
                    raise AssertionError("a migration selects nothing")
                list(connection.execute(f"PRAGMA user_version = {number}"))
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
