"""Resource limits of SQL jobs, and the rules on what they may connect to."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.sql_servers import SqlServers
from duetime.settings.table import DEFAULTS


class SqlLimits(msgspec.Struct, frozen=True):
    """`rows` and `bytes` limit the stored result, never what a statement does."""

    rows: Annotated[int, Meta(ge=0)] = DEFAULTS.sql_rows_limit
    bytes: Annotated[int, Meta(ge=256)] = DEFAULTS.sql_result_limit  # of the result as JSON
    connections: Annotated[int, Meta(ge=1)] = DEFAULTS.sql_connections  # concurrent, per tenant and URL
    pools: Annotated[int, Meta(ge=1)] = 64  # pairs of tenant and URL that may have idle connections
    idle_seconds: Annotated[float, Meta(gt=0)] = 30.0  # an idle connection is closed after this time
    received_bytes: Annotated[int, Meta(ge=1024)] = DEFAULTS.sql_receive_limit  # from a server for one statement
    file_bytes: Annotated[int, Meta(ge=1)] = DEFAULTS.sql_sqlite_file_limit  # of a SQLite file
    memory_bytes: Annotated[int, Meta(ge=1)] = DEFAULTS.sql_sqlite_memory_limit  # of SQLite for one statement


class SqlRules(msgspec.Struct, frozen=True):
    """The rules that the operator sets. The defaults allow PostgreSQL servers at public addresses."""

    allowed: bool = True
    servers: SqlServers = DEFAULTS.sql_allowed_hosts
    superusers: bool = False  # allow roles that can run programs or access files on the database's machine
    sqlite_folder: str = ""  # empty: no SQLite
