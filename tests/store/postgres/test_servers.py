"""Several servers in one URL: the one that accepts writes is found, in any state of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from duetime.bus.postgres import PostgresBus
from duetime.domain import commands as c
from duetime.domain.errors import TimedOut
from duetime.domain.hint import Hint
from duetime.postgres import Servers, urls_of
from duetime.registry.postgres import PostgresRegistry
from duetime.store.postgres import PostgresStore
from samples import NOW, add_job, one
from store.proxy import Proxy

PATIENCE = 30.0


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """A server that accepts connections and sends nothing. Returns its address."""
    ends: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: ends.append(writer), "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for end in ends:
            end.transport.abort()


def before(address: str, url: str) -> str:
    """The URL with another server before its own."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}@{address},{host}").geturl()


@pytest.fixture
async def behind_a_deaf_one(proxy: Proxy) -> AsyncIterator[str]:
    async with proxy.serving() as url, deaf() as address:
        yield before(address, url)


async def test_a_server_that_does_not_respond_leaves_time_for_the_next(behind_a_deaf_one: str):
    """The driver alone would use the whole timeout for the first."""
    connection = await Servers(behind_a_deaf_one).connect(1.0)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_the_server_that_was_found_last_is_tried_first(behind_a_deaf_one: str):
    servers = Servers(behind_a_deaf_one)
    await (await servers.connect(1.0)).close()
    async with asyncio.timeout(PATIENCE):  # no share of it is used for the server that does not respond
        connection = await servers.connect(2 * PATIENCE)
    await connection.close()


async def started_and_written(store: PostgresStore) -> None:
    """On a busy machine the timeout of a write may end while the store connects."""
    await store.start()
    while True:
        try:
            await add_job(store)
            return
        except TimedOut:
            continue


async def test_store_registry_and_bus_find_the_primary_after_a_server_that_does_not_respond(behind_a_deaf_one: str):
    store, registry = PostgresStore(behind_a_deaf_one, op_timeout_seconds=2.0), PostgresRegistry(behind_a_deaf_one)
    speaker, listener = PostgresBus(behind_a_deaf_one), PostgresBus(behind_a_deaf_one)
    hint_received = asyncio.Event()
    try:
        await asyncio.gather(  # each waits for the server that does not respond
            started_and_written(store),
            registry.start(),
            speaker.start(lambda _: None),
            listener.start(lambda _: hint_received.set()),
        )
        node = int(await one(store, c.StartNode(NOW, "node-1")))
        assert [member.node for member in (await registry.join(node, "node-1", ["timer"])).members] == [node]
        async with asyncio.timeout(PATIENCE):
            while not hint_received.is_set():  # hints are lost until both listen
                speaker.send(Hint(waiting_at=0))
                await asyncio.sleep(0.05)
    finally:
        for part in (speaker, listener, registry, store):
            await part.stop()


async def test_when_no_server_responds_the_last_error_is_raised():
    with pytest.raises(OSError, match="9"):
        await Servers("postgresql://nobody@127.0.0.1:9,127.0.0.1:9/nowhere").connect(2.0)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p%40@one/db", ["postgresql://u:p%40@one/db"]),
        ("postgresql:///db?host=/run/postgresql", ["postgresql:///db?host=/run/postgresql"]),
        (
            "postgresql://u:p%40@one:1,two:2/db?sslmode=disable",
            [
                "postgresql://u:p%40@one:1/db?sslmode=disable&target_session_attrs=read-write",
                "postgresql://u:p%40@two:2/db?sslmode=disable&target_session_attrs=read-write",
            ],
        ),
        (
            "postgresql://one,[::1]:2/db?target_session_attrs=primary",
            [
                "postgresql://one/db?target_session_attrs=primary",
                "postgresql://[::1]:2/db?target_session_attrs=primary",
            ],
        ),
        (
            "postgresql://u@/db?host=/run/one,two&port=1,2",
            [
                "postgresql://u@/db?host=/run/one&port=1&target_session_attrs=read-write",
                "postgresql://u@/db?host=two&port=2&target_session_attrs=read-write",
            ],
        ),
    ],
)
def test_a_url_with_several_servers_is_split_into_one_url_per_server(url: str, found: list[str]):
    assert urls_of(url) == found
