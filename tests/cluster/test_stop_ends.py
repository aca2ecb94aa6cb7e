"""SIGTERM ends a node within its time limit, whatever its database does. A second SIGTERM ends it at once."""

from __future__ import annotations

import signal
from typing import NamedTuple

import pytest

from cluster.cluster import Cluster
from cluster.gate import Gate
from cluster.processes import Server, now_ms, wait_until
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow

JOBS = 300
HANGS = 120.0  # seconds: a process that has not ended by then hangs
SHORT = {"DISPATCHER_DRAIN_TIMEOUT": "1s", "HTTP_SHUTDOWN_TIMEOUT": "1s"}
PATIENT = {"DISPATCHER_DRAIN_TIMEOUT": "1h", "HTTP_SHUTDOWN_TIMEOUT": "1h"}


class Node(NamedTuple):
    cluster: Cluster
    gate: Gate
    server: Server


@pytest.fixture
def node(cluster: Cluster, gate: Gate) -> Node:
    """A node that reaches its database through a gate, with commits under way and more to come."""
    server = cluster.add(
        "behind", DATABASE_URL=gate.url, DB_OP_TIMEOUT=f"{cluster.lease:.1f}s",
        NODE_LEASE_SECONDS=f"{2 * cluster.lease:.1f}s",
    )  # fmt: skip
    return Node(cluster, gate, server)


def begin_load(node: Node, path: str = "/ok", **settings: str) -> None:
    node.server.start(**settings)
    node.cluster.server = node.server
    node.cluster.database.watch_fires()
    begin = node.cluster.soon(1500)
    node.cluster.create_spread(JOBS, begin, begin + node.cluster.lasting(8000), path)
    fired = "SELECT count(*) FROM executions"
    wait_until(lambda: node.cluster.database.rows(fired)[0][0] > 20, 60, "the load has begun", 0.01)


def lose_database(node: Node, how: str) -> None:
    """Stops the database during a commit of the engine. The node can't find out whether it took effect."""
    node.gate.lose_at_commit("shut" if how == "stopped" else how)
    wait_until(node.gate.is_lost, 60, "a commit is under way", 0.001)
    node.cluster.crashes.append(now_ms())
    if how == "stopped":
        node.cluster.database.server.stop()
    wait_until(lambda: node.server.client.get("/health").status == 503, 60, "the node has noticed")


@pytest.mark.parametrize("how", ["deaf", "half_open", "shut", "stopped"])
def test_a_node_ends_although_its_database_fails_during_commits(node: Node, how: str) -> None:
    begin_load(node, **SHORT)
    lose_database(node, how)
    node.server.signal(signal.SIGTERM)
    assert node.server.wait(HANGS) == 0, node.server.errors()
    assert "stopped" in node.server.errors()


def test_a_second_signal_ends_a_node_at_once_despite_long_timeouts(node: Node) -> None:
    begin_load(node, "/slow/600", **PATIENT)
    lose_database(node, "half_open")
    node.server.signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in node.server.errors(), 60, "it has heard the first")
    node.server.signal(signal.SIGTERM)
    assert node.server.wait(HANGS) == 0, node.server.errors()


def test_another_node_takes_over_executions_that_could_not_be_recorded(node: Node) -> None:
    begin_load(node, **SHORT)
    lose_database(node, "half_open")
    node.server.signal(signal.SIGTERM)
    assert node.server.wait(HANGS) == 0, node.server.errors()
    node.cluster.start("a")
    node.cluster.wait_for_quiet(120)
    report = node.cluster.assert_green()
    assert report.counts["executions"] == JOBS


# Python waits for this thread at its exit, like for one that reads a disk that does not respond.
THREAD_THAT_HANGS = """
import threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
"""


def test_a_hanging_thread_does_not_keep_the_process_alive(node: Node) -> None:
    node.server.start(faulty(node.server, THREAD_THAT_HANGS), **SHORT)
    node.server.signal(signal.SIGTERM)
    assert node.server.wait(HANGS) == 1, node.server.errors()
    assert "the stop took too long" in node.server.errors()
