"""Opens connections to the database file: settings, the check at start, migrations, and the lock on the folder."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import closing
from pathlib import Path
from typing import IO
from weakref import WeakSet

import apsw

from duetime.private_files import make_file, make_folder
from duetime.process.crash import crash_point
from duetime.store import StoreUnusable
from duetime.store.sqlite.blocks import load_migrations

FILE_NAME = "duetime.db"
LOCK_NAME = "duetime.lock"
LOOK_SECONDS = 1.0  # a command that only checks whether a node runs holds the lock for less
MIGRATION_LOCK_NAME = "migrate.lock"
MIGRATION_SECONDS = 60.0  # how long one migration waits for another
WRITER_CACHE_KIB = 32 * 1024
READER_CACHE_KIB = 8 * 1024
SMALL_CACHE_KIB = 1024  # for many connections, or those that need no cache: the system caches most pages


def lock_folder(folder: Path, purpose: str = "") -> IO[str]:
    """Takes and returns the folder's lock: one process a data folder. It is released when the process ends in any way.

    The file names the process and, unless it is a node, its purpose. Raises StoreUnusable if another process holds it.
    """
    make_folder(folder)  # only the folder's owner may read jobs and their targets
    if (lock := _lock(folder / LOCK_NAME, LOOK_SECONDS)) is None:
        owner, _ = _read_holder(folder / LOCK_NAME)
        raise StoreUnusable(
            f"{folder} is in use by another Duetime (process {owner}). Stop it, or use another folder (--data)."
        )
    lock.truncate(0)
    lock.write(f"{os.getpid()} {purpose}".strip())
    lock.flush()
    _held.add(lock)
    return lock


_held: WeakSet[IO[str]] = WeakSet()


def _leave_to_parent() -> None:
    """Closes a forked child's copies of the locks, which would lock the folder after the parent has ended."""
    for lock in list(_held):
        lock.close()
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def get_lock_owner(folder: Path) -> str | None:
    """Returns the process that holds the folder's lock; None if no process does. A start waits while this looks."""
    try:
        with open(folder / LOCK_NAME) as lock:
            return None if _is_ours(lock, fcntl.LOCK_SH) else _read_holder(folder / LOCK_NAME)[0]
    except FileNotFoundError:
        return None


def _lock(file: Path, patience_seconds: float) -> IO[str] | None:
    make_file(file)
    lock = open(file, "a+")  # noqa: SIM115 (the caller holds it)
    begun = time.monotonic()
    while not _is_ours(lock, fcntl.LOCK_EX):
        if time.monotonic() - begun > patience_seconds:
            lock.close()
            return None
        time.sleep(0.01)
    return lock


def _is_ours(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(file: Path) -> tuple[str, str]:
    """Returns (process, purpose)."""
    process, _, purpose = file.read_text().strip().partition(" ")
    return process or "unknown", purpose


def open_connection(folder: Path, *, writer: bool, cache_kib: int | None = None) -> apsw.Connection:
    if cache_kib is None:
        cache_kib = WRITER_CACHE_KIB if writer else READER_CACHE_KIB
    if writer:
        make_file(folder / FILE_NAME)  # SQLite gives the WAL and its index the same permissions
    connection = apsw.Connection(str(folder / FILE_NAME), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5000)
    settings = [
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",  # an acknowledged commit survives a power failure
        f"PRAGMA cache_size = -{cache_kib}",
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
    """Runs SQLite's quick check on everything or one table. Raises StoreUnusable with the damage it found."""
    argument = f"('{table}')" if table else "(10)"
    try:
        found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check{argument}")]
    except apsw.Error as error:
        found = [str(error)]
    if found != ["ok"]:
        raise damaged("; ".join(found[:3]))


def damaged(what: str) -> StoreUnusable:
    return StoreUnusable(
        f"the database is damaged: {' '.join(what.split())}. Nothing was changed. Restore {FILE_NAME} from a backup, "
        f"or recover what can be read with: sqlite3 {FILE_NAME} .recover"
    )


def fence_all_nodes(connection: apsw.Connection, *, with_workers: bool = False) -> None:
    """Ends every node that the file still shows as alive. The caller holds the folder's lock, so no node is running.

    (StartNode ends a node of the same name, but a machine or a container may have another name after a crash.)
    Workers of Python functions are separate processes, which outlive a node. They can report until their leases expire,
    so they are not ended, unless this database is left for another one (`with_workers`).
    """
    spared = "" if with_workers else "AND id NOT IN (SELECT node FROM workers)"
    list(connection.execute(f"UPDATE nodes SET ended_at = unixepoch('subsec') * 1000 WHERE ended_at IS NULL {spared}"))


def migrate(connection: apsw.Connection) -> tuple[int, int]:
    """Brings the schema up to date, each step in its own transaction: after a kill, the next call continues.

    Returns the version before and the version now.
    """
    migrations = load_migrations()
    newest = migrations[-1][0]
    version = get_version(connection)
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
                crash_point("in_migration")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            crash_point("after_migration")
    return version, newest


def get_version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def migrate_folder(folder: Path) -> tuple[int, int]:
    """Migrates the schema as a start does, and does nothing else. Raises StoreUnusable while a node runs.

    Migrations wait for each other at a separate lock. With the folder's lock they could be mistaken for a node, because
    its holder writes its purpose a moment after it has taken the lock.
    """
    make_folder(folder)
    if (turn := _lock(folder / MIGRATION_LOCK_NAME, MIGRATION_SECONDS)) is None:
        raise StoreUnusable(
            f"{folder} is being migrated by another process for {MIGRATION_SECONDS:g} s. Try again later."
        )
    with turn, lock_folder(folder, "migrate"), closing(open_checked(folder)) as connection:
        return migrate(connection)


def open_checked(folder: Path) -> apsw.Connection:
    """Returns a connection for writing, after an integrity check. Raises StoreUnusable."""
    try:
        connection = open_connection(folder, writer=True)
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise damaged(str(error)) from None
    except (apsw.Error, OSError) as error:
        raise StoreUnusable(f"{folder} can't be opened ({error}). May this user write there?") from None
    try:
        check_integrity(connection)
    except BaseException:
        connection.close()
        raise
    return connection
