"""The URLs of connections: what they may say, and what of them may be shown.

`postgresql://user:password@host:port/database?sslmode=…` and `sqlite:///absolute/path.db?mode=ro`. User and database
have to stand there: what is left out would be taken from the node's own environment, its password with it.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

POSTGRES_PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SQLITE_MODES = ("ro", "rw", "rwc")


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
    path: str
    mode: Literal["ro", "rw", "rwc"]  # read; read and write; and make the file if there is none

    @property
    def shown(self) -> str:
        return self.path


Url = PostgresUrl | SqliteUrl


class BadUrl(ValueError):
    """Says what is wrong, without a password in it."""


def check_url(url: str) -> str | None:
    """What is wrong with a connection's URL, as a sentence that may be shown; None if nothing is."""
    try:
        parse_url(url)
    except BadUrl as problem:
        return str(problem)
    return None


def parse_url(url: str) -> Url:
    """Raises BadUrl."""
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
    if parts.netloc:
        raise BadUrl("The path must be absolute, after three slashes: sqlite:///var/lib/app.db.")
    path = unquote(parts.path)
    if not path.strip("/"):
        raise BadUrl("The URL names no file: sqlite:///var/lib/app.db.")
    if not path.startswith("/") or path.endswith("/"):
        raise BadUrl("The path must be that of a file, and absolute: sqlite:///var/lib/app.db.")
    if "\0" in path:
        raise BadUrl("The URL holds a NUL character.")
    options = _options(parts.query)
    if unknown := sorted(options.keys() - {"mode"}):
        raise BadUrl(f"The parameter {_named(unknown[0])} is not known: a SQLite URL may have mode, no other.")
    match mode := options.get("mode", "rw"):
        case "ro" | "rw" | "rwc":
            return SqliteUrl(path, mode)
        case _:
            raise BadUrl(f"mode must be one of {', '.join(SQLITE_MODES)}.")


def _options(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True))


def _named(name: str) -> str:
    """A password with a ? in it makes the rest of it a parameter's name: only what reads like one is shown."""
    return (
        name if name in ("user", "password", "port", "dbname", "options", "sslrootcert", "timeout") else "after the ?"
    )
