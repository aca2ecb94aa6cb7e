"""Duetime's own database, which no job may reach under any name: a job could grant itself anything there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec

from duetime.domain.connection_urls import POSTGRES_PORT, PostgresUrl
from duetime.domain.execution import ErrorType
from duetime.executors.sql.problems import Failed, blocked

OWN_TABLES = ("open_runs", "shard_epochs")
# By what it holds, not by its name: a server has many names, and tables may be in any schema.
_HOLDS_OWN = """
SELECT count(DISTINCT relname) = 2 FROM pg_catalog.pg_class
WHERE relname IN ('open_runs', 'shard_epochs') AND relkind IN ('r', 'p')
"""
_OURS = "This is Duetime's own database, which jobs can't use: register a connection to another one."


class OwnDatabase(msgspec.Struct, frozen=True):
    """`folder`: the data folder, of which no file may be opened. `url`: of the PostgreSQL that holds the store."""

    folder: Path | None
    url: str | None


def check_file(own: OwnDatabase, path: str) -> None:
    """Raises Failed if it is ours, by path or by another name of the same file, or no file at all."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except FileNotFoundError:
        found = None
    except OSError as problem:
        raise Failed(ErrorType.CONNECTION_ERROR, f"{path} can't be opened: {problem.strerror}.") from None
    if own.folder is not None:
        folder = os.path.realpath(own.folder)
        if os.path.commonpath([folder, real]) == folder or (found is not None and _is_linked(folder, found)):
            raise blocked(_OURS)
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise blocked(f"{path} is no file.")


def _is_linked(folder: str, found: os.stat_result) -> bool:
    """A hard link, or the folder mounted at another place: the same inode under a name outside."""
    try:
        with os.scandir(folder) as entries:
            return any(os.path.samestat(entry.stat(follow_symlinks=False), found) for entry in entries)
    except FileNotFoundError:
        return False


def check_address(own: OwnDatabase, url: PostgresUrl) -> None:
    """Before anything is sent there; what it is reached by otherwise is found by `check_tables`."""
    if own.url is None:
        return
    parts = urlsplit(own.url)
    if (parts.hostname, parts.port or POSTGRES_PORT, parts.path) == (url.host, url.port, f"/{url.database}"):
        raise blocked(_OURS)


async def check_tables(connection: asyncpg.Connection) -> None:
    if await connection.fetchval(_HOLDS_OWN):
        raise blocked(_OURS)
