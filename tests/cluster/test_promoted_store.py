"""A store, a registry and two buses whose server becomes read-only while their connections stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from cluster.replication import Pair
from duetime.bus.postgres import PostgresBus
from duetime.domain import commands as c
from duetime.domain.hint import Hint
from duetime.ports.store import JobQuery
from duetime.registry.postgres import PostgresRegistry
from samples import NOW, TENANT, add_job, job_of, one
from store.postgres_server import patient_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


async def wait_for_hint(speaker: PostgresBus, listener: list[Hint]) -> None:
    """Waits until a hint reaches the other bus. (Hints that are sent while it does not listen are lost.)"""
    listener.clear()
    async with asyncio.timeout(60):
        while not listener:
            speaker.send(Hint(waiting_at=0))
            await asyncio.sleep(0.05)


async def test_all_connections_of_a_node_move_from_the_old_primary_to_the_new_one(pair: Pair) -> None:
    store, registry = patient_store(pair.url), PostgresRegistry(pair.url, ttl_seconds=600, call_seconds=20)
    speaker, listener, newcomer = (PostgresBus(pair.url) for _ in range(3))
    received, received_by_newcomer = list[Hint](), list[Hint]()
    await store.start()
    await registry.start()
    await speaker.start(lambda hint: None)
    await listener.start(received.append)
    try:
        before = await add_job(store)
        node = int(await one(store, c.StartNode(NOW, "node-1")))
        await registry.join(node, "node-1", ["timer"])
        await wait_for_hint(speaker, received)
        await asyncio.gather(*(store.count_jobs(JobQuery(TENANT)) for _ in range(8)))  # connections for reading
        await asyncio.to_thread(pair.make_primary_read_only)
        await asyncio.to_thread(pair.promote)
        after = await add_job(store)  # retried by the store itself: the caller gets no error
        counts = await asyncio.gather(*(store.count_jobs(JobQuery(TENANT)) for _ in range(8)))
        assert counts == [2] * 8, "somebody reads on the old one"
        assert [(await job_of(store, job_id)).job_id for job_id in (before, after)] == [before, after]
        assert await store.check() is None
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):  # the result shows in the next call
            await registry.renew(node)
        assert [member.node for member in (await registry.renew(node)).members] == [node]
        await newcomer.start(received_by_newcomer.append)  # it has no connection to the old primary
        await wait_for_hint(speaker, received_by_newcomer)
        await wait_for_hint(newcomer, received)
    finally:
        for part in (speaker, listener, newcomer, registry, store):
            await part.stop()
