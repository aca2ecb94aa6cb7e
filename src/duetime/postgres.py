"""Errors of the PostgreSQL driver, and the choice of a server, for the store, the registry and the bus.

A URL may name several servers, of which one is the primary (`postgresql://user@db1:5432,db2:5432/duetime`). Duetime
needs the one that accepts writes. The driver would spend its whole timeout on the first server, even if packets to it
are dropped. Here each server gets a share of the timeout, and the last one that worked is tried first.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlunsplit

import asyncpg

from duetime.domain.database_urls import split_url

TROUBLE = (
    OSError,  # and TimeoutError
    asyncpg.PostgresError,
    asyncpg.InterfaceError,  # the connection is closed
    asyncpg.InternalClientError,  # the connection broke in the middle of a message, or the server closed it
)
WANTED, READ_WRITE = "target_session_attrs", "read-write"


class Servers:
    """The servers that a URL names. `options` go to `asyncpg.connect` with each call."""

    def __init__(self, url: str) -> None:
        self._urls = urls_of(url)

    async def connect(self, seconds: float, **options: Any) -> asyncpg.Connection:
        """Returns a connection to the first server that accepts one, within `seconds`. Raises the last error."""
        urls = list(self._urls)
        for url in urls:
            try:
                connection = await asyncpg.connect(url, timeout=seconds / len(urls), **options)
            except TROUBLE:
                if url is urls[-1]:
                    raise
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return connection
        raise AssertionError("a URL names at least one server")


def urls_of(url: str) -> list[str]:
    """Returns a URL for each server of `url`. If there are several, each URL requires writes, unless `url` differs."""
    parts = split_url(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, at, netloc = parts.netloc.rpartition("@")
    hosts = netloc.split(",")
    in_query = "host" in options and not netloc
    if in_query:
        names, ports = options["host"].split(","), options.get("port", "").split(",")
        hosts = [f"{name}\n{ports[min(number, len(ports) - 1)]}" for number, name in enumerate(names)]
    if len(hosts) < 2:
        return [url]
    options.setdefault(WANTED, READ_WRITE)
    found: list[str] = []
    for host in hosts:
        if in_query:
            name, _, port = host.partition("\n")
            mine = options | {"host": name} | ({"port": port} if port else {})
            address = f"{user}{at}"
        else:
            mine, address = options, f"{user}{at}{host}"
        found.append(urlunsplit(parts._replace(netloc=address, query=urlencode(mine, safe="/", quote_via=quote))))
    return found
