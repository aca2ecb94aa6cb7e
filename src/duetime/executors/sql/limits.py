"""What a SQL job may have, and what it may reach."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.sql_servers import SqlServers

MEBIBYTE = 1024 * 1024


class SqlLimits(msgspec.Struct, frozen=True):
    """`rows` and `bytes` bound what is kept of a result, never what a statement does."""

    rows: Annotated[int, Meta(ge=0)] = 100
    bytes: Annotated[int, Meta(ge=256)] = 16_384  # of the result as JSON
    connections: Annotated[int, Meta(ge=1)] = 4  # at once, for a tenant and URL
    pools: Annotated[int, Meta(ge=1)] = 64  # tenants and URLs whose connections are kept while nobody uses them
    idle_seconds: Annotated[float, Meta(gt=0)] = 30.0  # a connection that nobody uses is closed after that
    received_bytes: Annotated[int, Meta(ge=1024)] = 8 * MEBIBYTE  # from a server for one statement
    file_bytes: Annotated[int, Meta(ge=1)] = 100 * MEBIBYTE  # of a SQLite file
    memory_bytes: Annotated[int, Meta(ge=1)] = 64 * MEBIBYTE  # of SQLite for one statement


class SqlRules(msgspec.Struct, frozen=True):
    """What the operator allows. The defaults allow PostgreSQL servers at public addresses."""

    allowed: bool = True
    servers: SqlServers = SqlServers(public=True)
    superusers: bool = False  # roles that can run programs or touch files on the database's machine
    sqlite_folder: str = ""  # empty: no SQLite
