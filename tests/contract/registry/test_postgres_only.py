"""The PostgreSQL registry: its schema, its connection, and its errors when the database does not respond."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from contract.registry.pooler import pooler
from contract.registry.worlds import PostgresWorld
from duetime.domain.ids import SHARDS
from duetime.domain.lease import Standing
from duetime.engine.membership import Membership
from duetime.postgres import TROUBLE
from duetime.process.clock import SystemClock
from duetime.registry.postgres import PostgresRegistry
from patience import PATIENCE_SECONDS

ALL = tuple(range(SHARDS))
TIMER = ("timer",)


async def test_concurrent_starts_converge(postgres: PostgresWorld):
    nodes = [postgres.registry() for _ in range(8)]
    await asyncio.gather(*(node.start() for node in nodes))
    assert len((await nodes[0].view()).shards) == SHARDS
    await asyncio.gather(*(node.stop() for node in nodes))


async def test_a_later_start_keeps_the_rows(postgres: PostgresWorld):
    first, second = postgres.registry(), postgres.registry()
    await first.start()
    await first.join(1, "a", TIMER)
    taken = await first.take(1, ALL)
    await second.start()
    assert (await second.view()).held_by(1) == taken
    await first.stop()
    await second.stop()


async def test_a_table_with_other_rows_stops_the_start(postgres: PostgresWorld):
    node = postgres.registry()
    await node.start()
    async with postgres.connection() as connection:
        await connection.execute("INSERT INTO shards VALUES (64, NULL, 0)")
    with pytest.raises(RuntimeError, match="65 rows"):
        await node.start()
    await node.stop()


async def test_old_leases_are_removed_unless_they_hold_a_shard(postgres: PostgresWorld):
    node = postgres.registry()
    await node.start()
    for number in (1, 2, 3):
        await node.join(number, f"n{number}", TIMER)
    await node.take(2, (0,))
    await postgres.pass_time(100_000)
    await node.join(4, "n4", TIMER)
    assert (await node.view()).expired == (2,)
    await node.take(4, (0,))
    await node.join(5, "n5", TIMER)
    assert (await node.view()).expired == ()
    await node.stop()


async def test_a_closed_connection_is_opened_again(postgres: PostgresWorld):
    node = postgres.registry()
    await node.start()
    await node.join(1, "a", TIMER)
    async with postgres.connection() as connection:
        for _ in range(3):
            mine = "pid <> pg_backend_pid() AND query LIKE '%renewed%'"
            cut = f"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE {mine}"
            assert await connection.fetchval(cut) >= 1
            for _ in range(2):  # the cut may show only when the connection is used
                try:
                    view = await node.renew(1)
                    break
                except TROUBLE:
                    continue
            assert [member.node for member in view.members] == [1]
    await node.stop()


async def test_a_call_blocked_by_a_lock_times_out_and_the_next_call_has_a_connection(postgres: PostgresWorld):
    node = postgres.registry(call_seconds=0.3)
    await node.start()
    await node.join(1, "a", TIMER)
    async with postgres.connection() as gate, gate.transaction():
        await gate.execute("SELECT FROM shards WHERE shard = 0 FOR UPDATE")
        with pytest.raises(TimeoutError, match=r"no answer .* within 0\.3 s"):
            await asyncio.wait_for(node.take(1, ALL), PATIENCE_SECONDS)
    assert [member.node for member in (await node.renew(1)).members] == [1]
    await node.stop()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client closes the connection
    writer.close()


async def test_a_server_that_never_responds_times_out():
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    node = PostgresRegistry(f"postgresql://someone@127.0.0.1:{port}/db", call_seconds=0.2)
    with pytest.raises(TimeoutError, match=r"within 0\.2 s"):
        await asyncio.wait_for(node.renew(1), PATIENCE_SECONDS)
    await node.stop()
    server.close()
    await server.wait_closed()


async def test_connecting_to_a_refusing_server_is_retried_until_the_timeout_and_the_error_has_the_reason():
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    node = PostgresRegistry(f"postgresql://someone@127.0.0.1:{port}/db", call_seconds=0.3)
    with pytest.raises(TimeoutError, match=r"refused|Connect call failed"):
        await node.renew(1)
    await node.stop()


async def test_a_registry_works_behind_a_pooler_that_shares_connections(postgres: PostgresWorld):
    url = urlsplit(postgres.url)
    (host,) = parse_qs(url.query).get("host", [""])
    if not host.startswith("/"):
        pytest.skip("the server named by DUETIME_TEST_POSTGRES_URL is not reached by a socket in a folder")
    folder = Path(mkdtemp())  # short: the path of a socket has a limit
    async with pooler(f"{host}/.s.PGSQL.5432", folder):
        node = PostgresRegistry(postgres.url.replace(f"host={host}", f"host={folder}"), call_seconds=10.0)
        await node.start()
        await node.join(1, "a", TIMER)
        taken = await node.take(1, ALL)
        for _ in range(3):
            assert (await node.renew(1)).held_by(1) == taken
        await node.release(1, {5: taken[5]})
        assert (await node.take(1, (5,))) == {5: 2}
        await node.leave(1)
        assert (await node.view()).expired == (1,)
        await node.stop()
    rmtree(folder)


async def test_nodes_share_shards_hand_them_over_and_replace_expired_nodes(postgres: PostgresWorld):
    ways = [postgres.registry() for _ in range(3)]
    await asyncio.gather(*(way.start() for way in ways))
    nodes = [Membership(way, SystemClock(), number, f"n{number}", TIMER) for number, way in enumerate(ways, 1)]
    for _ in range(2):
        for node in nodes:
            await node.run_once()
    assert sorted(len(node.owned) for node in nodes) == [21, 21, 22]
    await nodes[0].leave()
    for node in nodes[1:]:
        await node.run_once()
    assert [len(node.owned) for node in nodes] == [0, 32, 32]
    await postgres.pass_time(4.0)
    await nodes[1].run_once()
    await postgres.pass_time(4.0)  # the third has not renewed
    await nodes[1].run_once()
    assert len(nodes[1].owned) == SHARDS
    await nodes[2].run_once()
    assert (nodes[2].standing, nodes[2].owned) == (Standing.LOST, {})
    await asyncio.gather(*(way.stop() for way in ways))


def test_a_call_takes_less_than_half_the_lease():
    node: Any = PostgresRegistry("postgresql:///", ttl_seconds=5.0)
    assert node._call_seconds < 2.5
