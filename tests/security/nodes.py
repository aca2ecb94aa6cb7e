"""Nodes with authentication, on either store, with settings of the test."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.people import ENCRYPTION_KEY, SETTINGS, database
from cluster.processes import Server

STORES = ("sqlite", "postgresql")


@contextmanager
def nodes(store: str, folder: Path, **settings: str) -> Iterator[list[Server]]:
    """One node on SQLite, or two that share a database in PostgreSQL."""
    if store == "sqlite":
        with _started([Server(folder / "a", **{**SETTINGS, **settings})]) as started:
            yield started
        return
    keys = f"k1:{b64encode(ENCRYPTION_KEY).decode()}"
    with database() as url:
        shared = {**SETTINGS, "DATABASE_URL": url, "ENCRYPTION_KEYS": keys, **settings}
        with _started([Server(folder / name, NODE_NAME=name, **shared) for name in "ab"]) as started:
            yield started


@contextmanager
def _started(servers: list[Server]) -> Iterator[list[Server]]:
    try:
        for server in servers:
            server.start()
        yield servers
        ended = [server.errors() for server in servers if server.returncode() is not None]
        assert not ended, f"a node ended on its own: {ended}"
    finally:
        for server in servers:
            server.close()
