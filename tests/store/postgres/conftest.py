"""Fixtures for PostgreSQL only: connections that break, locks, partitions, other nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from duetime.domain.commands import StartNode
from duetime.store.postgres import PostgresStore
from samples import NOW, one
from store.postgres_server import connected, emptied_database, patient_store
from store.proxy import Proxy


@pytest.fixture
async def url() -> str:
    return await emptied_database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = patient_store(url)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """Another node's store on the same database."""
    made = patient_store(url)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def node(store: PostgresStore) -> int:
    return int(await one(store, StartNode(NOW, "node-1")))


@pytest.fixture
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection with which a test blocks a store."""
    async with connected(url) as connection:
        yield connection


@pytest.fixture
async def proxy(url: str) -> Proxy:
    return Proxy(url)
