"""The database fails over to its standby under load: the nodes follow, and nothing is missed, doubled or lost.

The pair replicates synchronously, so acknowledged data is on the standby; otherwise it could be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cluster import Cluster
from cluster.processes import Receiver, now_ms, wait_until
from cluster.replication import Pair, PairDatabase
from cluster.test_database_away import people_who_ask
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow

JOBS = 600


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.fixture
def replicated(tmp_path: Path, receiver: Receiver, pair: Pair) -> Iterator[Cluster]:
    """Nodes that are not started yet, on a primary with a standby."""
    cluster = Cluster(tmp_path, receiver, PairDatabase(pair), NODE_LEASE_SECONDS="2s", DB_OP_TIMEOUT="1s")
    yield cluster
    cluster.close()


def begin_load(cluster: Cluster) -> None:
    cluster.start("a", "b")
    begin = cluster.soon(1500)
    cluster.create_spread(JOBS, begin, begin + cluster.lasting(3000), "/slow/0.05")
    wait_until(lambda: cluster.receiver.count() > 100, 60, "the load has begun", 0.002)
    cluster.crashes.append(now_ms())


def assert_carried_on(cluster: Cluster) -> None:
    """Checks the new primary: all acknowledged jobs, and those created meanwhile."""
    cluster.crashes.append(now_ms())
    cluster.wait_for_shares("a", "b", seconds=60)
    cluster.wait_for_quiet(120)
    for name, node in cluster.nodes.items():
        wait_until(lambda node=node: node.client.get("/health").status == 200, 60, f"{name} is healthy")
    report = cluster.assert_green()
    assert report.counts["executions"] == JOBS


def test_a_dead_primary_is_replaced_by_its_standby_and_nothing_is_missed_or_doubled(
    replicated: Cluster, pair: Pair
) -> None:
    begin_load(replicated)
    with people_who_ask(replicated):
        pair.primary.stop("immediate")
        pair.promote()
        replicated.create(replicated.body("2099-01-01T00:00:00Z"))  # it accepts writes again
    assert_carried_on(replicated)


def test_nodes_leave_a_primary_that_becomes_read_only_although_connections_stay_open(
    replicated: Cluster, pair: Pair
) -> None:
    begin_load(replicated)
    with people_who_ask(replicated):
        pair.make_primary_read_only()
        pair.promote()
        replicated.create(replicated.body("2099-01-01T00:00:00Z"))
    assert_carried_on(replicated)


# Every write of the store is refused, while the heartbeat, on its own connection, succeeds.
NO_WRITES = """
import os
import asyncpg
from duetime.store.postgres.writer_connection import WriterConnection
whole = WriterConnection._transact
async def transact(self, *arguments, **options):
    if os.path.exists("no-writes"):
        raise asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction")
    return await whole(self, *arguments, **options)
WriterConnection._transact = transact
"""


def test_a_node_that_cannot_write_releases_its_shards_until_it_can(cluster: Cluster) -> None:
    first = cluster.nodes["a"]
    first.start(faulty(first, NO_WRITES))
    cluster.start("b")
    begin = now_ms() + 1500
    cluster.create_spread(300, begin, begin + 3000)
    trap = first.folder / "no-writes"
    trap.touch()
    cluster.server = cluster.nodes["b"]
    cluster.crashes.append(now_ms())
    cluster.wait_for_shares("b", seconds=60)
    assert first.client.get("/health").status == 503
    assert "the store accepts no writes: shards are given up" in first.errors()
    trap.unlink()
    cluster.crashes.append(now_ms())
    cluster.wait_for_shares("a", "b", seconds=60)
    cluster.wait_for_quiet(60)
    report = cluster.assert_green()
    assert report.counts["executions"] == 300
