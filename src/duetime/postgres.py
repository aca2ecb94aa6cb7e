"""What the store, the registry and the bus share of PostgreSQL: the driver's errors, and how a server is found.

A URL may name several servers, of which one is the primary (`postgresql://user@db1:5432,db2:5432/duetime`). Duetime
writes, so it wants the one that takes writes. The driver would give all of its time to the first server, even to one
whose packets are dropped; here each has a share, and the server that was found last is asked first.
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
    asyncpg.InternalClientError,  # it was cut in the middle of a message, or the server has said goodbye on it
)
WANTED, READ_WRITE = "target_session_attrs", "read-write"


class Servers:
    """The servers that a URL names. `options` go to `asyncpg.connect` with each call."""

    def __init__(self, url: str) -> None:
        self._urls = urls_of(url)

    async def connect(self, seconds: float, **options: Any) -> asyncpg.Connection:
        """A connection to the first server that takes it, in `seconds` at most. Raises what the last one said."""
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
        raise AssertionError("a URL names one server at least")


def urls_of(url: str) -> list[str]:
    """One URL for each server that `url` names. Where there are several, each must take writes, unless `url` says."""
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
