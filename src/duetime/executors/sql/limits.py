"""Resource limits of SQL jobs, and the rules on what they may connect to."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.sql_servers import SqlServers

MEBIBYTE = 1024 * 1024


class SqlLimits(msgspec.Struct, frozen=True):
    """`rows` and `bytes` limit the stored result, never what a statement does."""

    rows: Annotated[int, Meta(ge=0)] = 100
    bytes: Annotated[int, Meta(ge=256)] = 16_384  # of the result as JSON
    connections: Annotated[int, Meta(ge=1)] = 4  # concurrent, per tenant and URL
    pools: Annotated[int, Meta(ge=1)] = 64  # pairs of tenant and URL that may have idle connections
    idle_seconds: Annotated[float, Meta(gt=0)] = 30.0  # an idle connection is closed after this time
    received_bytes: Annotated[int, Meta(ge=1024)] = 8 * MEBIBYTE  # from a server for one statement
    file_bytes: Annotated[int, Meta(ge=1)] = 100 * MEBIBYTE  # of a SQLite file
    memory_bytes: Annotated[int, Meta(ge=1)] = 64 * MEBIBYTE  # of SQLite for one statement


class SqlRules(msgspec.Struct, frozen=True):
    """The rules that the operator sets. The defaults allow PostgreSQL servers at public addresses."""

    allowed: bool = True
    servers: SqlServers = SqlServers(public=True)
    superusers: bool = False  # allow roles that can run programs or access files on the database's machine
    sqlite_folder: str = ""  # empty: no SQLite
