"""The registries that must pass this suite."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from contract.registry.worlds import EmbeddedWorld, MemoryWorld, PostgresWorld, World
from duetime.ports.registry import Registry
from store.postgres_server import server_url


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresWorld]:
    """A separate schema for each test on the server of the session."""
    schema = f"registry_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server_url())
    await connection.execute(f"CREATE SCHEMA {schema}")
    joint = "&" if "?" in server_url() else "?"
    yield PostgresWorld(f"{server_url()}{joint}search_path={schema}")
    await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    await connection.close()


def make_world(request: pytest.FixtureRequest) -> World:
    if request.param == "postgres":
        return request.getfixturevalue("postgres")  # type: ignore[no-any-return]
    return EmbeddedWorld() if request.param == "embedded" else MemoryWorld()


async def started(world: World) -> AsyncIterator[Registry]:
    made = world.registry()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    return make_world(request)


@pytest.fixture
async def registry(world: World) -> AsyncIterator[Registry]:
    async for made in started(world):
        yield made


@pytest.fixture
async def other(world: World) -> AsyncIterator[Registry]:
    """The same registry from another process."""
    async for made in started(world):
        yield made


@pytest.fixture(params=["embedded", "memory", "postgres"])
def small_world(request: pytest.FixtureRequest) -> World:
    return make_world(request)


@pytest.fixture
async def alone(small_world: World) -> AsyncIterator[Registry]:
    """Any registry that a single node can use."""
    async for made in started(small_world):
        yield made
