"""The URLs of connections: how they are read, and what of them may be shown.

`postgresql://user:password@host:port/database?sslmode=…` and `sqlite:///file.db?mode=ro`. User and database are
required: a driver would take a missing one, and the password, from the node's own environment. A SQLite URL names a
file in the tenant's own folder, without a path: it can't lead out of that folder.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

POSTGRES_PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SQLITE_MODES = ("ro", "rw", "rwc")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SIDE_FILES = ("-journal", "-wal", "-shm")  # that SQLite creates beside a file


class PostgresUrl(msgspec.Struct, frozen=True):
    host: str
    port: int
    user: str
    password: str
    database: str
    sslmode: str

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


class SqliteUrl(msgspec.Struct, frozen=True):
    name: str  # of a file in the tenant's folder
    mode: Literal["ro", "rw", "rwc"]  # read; read and write; read, write and create the file

    @property
    def shown(self) -> str:
        return self.name


Url = PostgresUrl | SqliteUrl


class BadUrl(ValueError):
    """The URL is invalid. The message says why, and contains no password."""


def parse_url(url: str) -> Url:
    """Returns the parts of a connection's URL. Raises BadUrl."""
    if any(ord(sign) <= 32 or ord(sign) == 127 for sign in url):
        raise BadUrl("The URL holds a blank or a control character: write it as %20 and so on.")
    if "#" in url:
        raise BadUrl("The URL holds a #: write it as %23, also in a password.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadUrl("The URL can't be read: check its port, and brackets around an IPv6 address.") from None
    match parts.scheme:
        case "postgresql" | "postgres":
            return _postgres(parts, port or POSTGRES_PORT)
        case "sqlite":
            return _sqlite(parts)
        case _:
            raise BadUrl("The URL must begin with postgresql:// or sqlite:///.")


def _postgres(parts: SplitResult, port: int) -> PostgresUrl:
    options = _options(parts.query)
    if "host" in options:
        raise BadUrl("Unix sockets can't be used: name the server's host before the database, not as ?host=.")
    if unknown := sorted(options.keys() - {"sslmode"}):
        raise BadUrl(f"The parameter {_named(unknown[0])} is not known: a PostgreSQL URL may have sslmode, no other.")
    host = unquote(parts.hostname or "")
    if not host:
        raise BadUrl("The URL names no host: postgresql://user:password@host:port/database.")
    if "/" in host or "," in host:
        raise BadUrl("The URL must name one host: neither the path of a Unix socket nor several hosts.")
    user, database = unquote(parts.username or ""), unquote(parts.path.removeprefix("/"))
    if not user:
        raise BadUrl("The URL names no user: postgresql://user:password@host:port/database.")
    if not database or "/" in database:
        raise BadUrl("The URL must name one database: postgresql://user:password@host:port/database.")
    sslmode = options.get("sslmode", "prefer")
    if sslmode not in SSL_MODES:
        raise BadUrl(f"sslmode must be one of {', '.join(SSL_MODES)}.")
    password = unquote(parts.password or "")
    if "\0" in user + password + database + host:
        raise BadUrl("The URL holds a NUL character.")
    return PostgresUrl(host, port, user, password, database, sslmode)


def _sqlite(parts: SplitResult) -> SqliteUrl:
    name = unquote(parts.path).removeprefix("/")
    if not name and not parts.netloc:
        raise BadUrl("The URL names no file: sqlite:///reports.db.")
    if parts.netloc or not parts.path.startswith("/") or not _FILE.fullmatch(name) or name.endswith(_SIDE_FILES):
        raise BadUrl(
            "The URL must name a file in the tenant's own folder, without a path, after three slashes, such as "
            "sqlite:///reports.db: 1 to 100 letters, digits, '.', '_' and '-', the first no '.' or '-'."
        )
    options = _options(parts.query)
    if unknown := sorted(options.keys() - {"mode"}):
        raise BadUrl(f"The parameter {_named(unknown[0])} is not known: a SQLite URL may have mode, no other.")
    match mode := options.get("mode", "rw"):
        case "ro" | "rw" | "rwc":
            return SqliteUrl(name, mode)
        case _:
            raise BadUrl(f"mode must be one of {', '.join(SQLITE_MODES)}.")


def _options(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True))


def _named(name: str) -> str:
    """Returns a parameter's name for a message. After a ? in a password, the name may be a part of the password."""
    known = ("user", "password", "port", "dbname", "options", "sslrootcert", "timeout")
    return name if name in known else "after the ?"
