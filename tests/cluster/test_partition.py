"""The connection between one node and the database is slow, drops everything, or works in one direction only."""

from __future__ import annotations

import pytest

from cluster.cluster import Cluster
from cluster.gate import Gate
from cluster.processes import now_ms, wait_until

pytestmark = pytest.mark.slow


def start_behind(gate: Gate, cluster: Cluster) -> None:
    """`a` reaches the database through the gate, `b` directly."""
    cluster.add("a", DATABASE_URL=gate.url)
    cluster.start("a", "b")
    cluster.server = cluster.nodes["b"]


def cut_off(gate: Gate, cluster: Cluster, how: str) -> None:
    start_behind(gate, cluster)
    begin = cluster.soon(1000)
    end = begin + cluster.lasting(4000)
    cluster.create_spread(400, begin, end, "/slow/0.1")
    wait_until(lambda: now_ms() > begin + 300, 10, "the load has begun", 0.005)
    cluster.crashes.append(now_ms())
    getattr(gate, how)()
    cluster.wait_for_shares("b")
    answer = cluster.nodes["a"].client.get("/jobs?limit=1")
    assert answer.status == 503, answer
    wait_until(lambda: now_ms() > end - 1000, 20, "most of it was due meanwhile")
    gate.open()
    cluster.wait_for_shares("a", "b", seconds=20)
    wait_until(lambda: cluster.nodes["a"].client.get("/health").status == 200, 20, "it is healthy again")
    cluster.wait_for_quiet()
    cluster.assert_green()


@pytest.mark.parametrize("how", ["deaf", "half_open", pytest.param("shut", marks=pytest.mark.soak)])
def test_a_disconnected_node_loses_its_shards_and_later_gets_some_again(gate: Gate, cluster: Cluster, how: str) -> None:
    cut_off(gate, cluster, how)


def test_a_slow_connection_to_the_database_only_makes_a_node_late(gate: Gate, cluster: Cluster) -> None:
    start_behind(gate, cluster)
    begin = cluster.soon(1000)
    end = begin + cluster.lasting(3500)
    cluster.create_spread(350, begin, end)
    wait_until(lambda: now_ms() > begin + 500, 10, "the load has begun", 0.005)
    gate.slow(0.3)
    wait_until(lambda: now_ms() > end - 1000, 20, "most of it was due meanwhile")
    gate.open()
    cluster.wait_for_quiet()
    cluster.wait_for_shares("a", "b", seconds=20)
    cluster.assert_green()
