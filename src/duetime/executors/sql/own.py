"""Keeps jobs away from Duetime's own database, under any name: a job could grant itself anything there.

Also refuses roles with too many rights at other databases. A role that can run programs on the database's machine, or
read and write its files, can do so from inside any statement. Checking the text of a statement can't prevent that.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec

from duetime.domain.connection_urls import POSTGRES_PORT, PostgresUrl
from duetime.executors.sql.problems import blocked

# Recognises our database by its tables, not by its name: a server has many names, and tables may be in any schema. The
# operators are schema-qualified, because a role's search_path may find other operators first.
_HOLDS_OWN = """
SELECT count(DISTINCT relname) OPERATOR(pg_catalog.=) 2 FROM pg_catalog.pg_class
WHERE relname OPERATOR(pg_catalog.=) ANY (ARRAY['open_runs', 'shard_epochs']::pg_catalog.name[])
AND relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p']::pg_catalog."char"[])
"""
# Strong roles that the session's user is, or may become. Before PostgreSQL 16, a role with CREATEROLE can grant itself
# any of them.
_STRONG_ROLES = """
SELECT pg_catalog.min(rolname::pg_catalog.text) FROM pg_catalog.pg_roles
WHERE (rolsuper OR (rolcreaterole AND pg_catalog.current_setting('server_version_num')::pg_catalog.int4
                    OPERATOR(pg_catalog.<) 160000)
       OR rolname OPERATOR(pg_catalog.=) ANY (ARRAY['pg_execute_server_program', 'pg_read_server_files',
                                                    'pg_write_server_files']::pg_catalog.name[]))
AND pg_catalog.pg_has_role(SESSION_USER, oid, 'MEMBER')
"""
OURS = "This is Duetime's own database, which jobs can't use: register a connection to another one."


class OwnDatabase(msgspec.Struct, frozen=True):
    """`folder`: the data folder; jobs may open no file in it. `url`: of the PostgreSQL that holds the store."""

    folder: Path | None
    url: str | None


class BadFolder(OSError):
    """The folder for SQLite files can't be used. A node with such a folder does not start."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(f"SQL_SQLITE_FOLDER: '{folder}' can't be used: {why}")


def check_folder(own: OwnDatabase, folder: str) -> None:
    """Raises BadFolder if the path is not absolute, or if the folder is inside Duetime's data folder or contains it."""
    if not os.path.isabs(folder):
        raise BadFolder(folder, "must be an absolute path, such as /var/lib/duetime-sqlite")
    if own.folder is None:
        return
    ours, theirs = os.path.realpath(own.folder), os.path.realpath(folder)
    if os.path.commonpath([ours, theirs]) in (ours, theirs):
        raise BadFolder(folder, "must neither lie in DATA nor hold it: jobs may open files of that folder")


def is_own(own: OwnDatabase, url: PostgresUrl) -> bool:
    """Returns whether the text of the URL names Duetime's own database. (`check_tables` detects it by any name.)"""
    if own.url is None:
        return False
    parts = urlsplit(own.url)
    return (parts.hostname, parts.port or POSTGRES_PORT, parts.path) == (url.host, url.port, f"/{url.database}")


async def check_tables(connection: asyncpg.Connection) -> None:
    if await connection.fetchval(_HOLDS_OWN):
        raise blocked(OURS)


async def check_role(connection: asyncpg.Connection, url: PostgresUrl) -> None:
    """Raises Failed if the connection's user can run programs or access files on the database's machine."""
    role = await connection.fetchval(_STRONG_ROLES)
    if role is None:
        return
    what = "is a strong role" if role == url.user else f"is a member of {role}"
    raise blocked(
        f"The user {url.user} of {url.shown} {what}: it can run programs or touch files on the database's machine. "
        "Give the connection a user without such rights, or the operator sets SQL_ALLOW_SUPERUSERS."
    )
