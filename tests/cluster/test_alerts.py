"""Alerts of a real cluster: a node that stops, and an owner killed between its decision and its notice."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.database import Database
from cluster.processes import Client, Receiver, wait_until

pytestmark = pytest.mark.slow

KEYS = "k1:" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
PATH = "/ok?notices"


@pytest.fixture
def watched(tmp_path: Path, receiver: Receiver, database: Database) -> Any:
    """Nodes that are not started yet; their notices go to the receiver."""
    cluster = Cluster(tmp_path, receiver, database, NODE_LEASE_SECONDS="2s", ENCRYPTION_KEYS=KEYS)
    yield cluster
    cluster.close()


def put_channel(cluster: Cluster) -> None:
    answer = cluster.server.client.put("/alert-channels/ops", {"url": cluster.receiver.url(PATH)})
    assert answer.status == 200, answer


def firing(client: Client, rule: str) -> list[dict[str, Any]]:
    return [it for it in client.get("/alerts").json()["alerts"] if (it["rule"], it["state"]) == (rule, "firing")]


def notices(client: Client, rule: str) -> list[dict[str, Any]]:
    jobs = client.get("/jobs?type=notice&limit=100").json()["jobs"]
    return [job for job in jobs if job["payload"]["data"].get("rule") == rule]


def fail(cluster: Cluster) -> None:
    cluster.create(cluster.body("immediate", "/status/400", retry_policy={"max_retries": 0}))


def test_a_killed_node_fires_and_resolves_when_it_is_back(watched: Cluster) -> None:
    watched.start("a", "b")
    put_channel(watched)
    watched.kill_node("a")
    client = watched.server.client
    wait_until(lambda: bool(firing(client, "node-gone")), 60, "the alert of the dead node fires")
    assert firing(client, "node-gone")[0]["subject"] == "node:a"
    watched.start("a")
    wait_until(lambda: not firing(client, "node-gone"), 60, "the node is back")
    statuses = [job["payload"]["status"] for job in notices(client, "node-gone")]
    assert sorted(statuses) == ["firing", "resolved"]


def test_a_node_that_was_told_to_stop_is_not_gone(watched: Cluster) -> None:
    watched.start("a", "b")
    watched.terminate("a")
    assert watched.nodes["a"].wait(30) == 0
    fail(watched)  # the next owner evaluates: this alert shows it
    client = watched.server.client
    wait_until(lambda: bool(firing(client, "dead-letters")), 60, "the other node evaluates")
    assert not firing(client, "node-gone")


@pytest.mark.parametrize("crash_at", ["alerts_decided", "alerts_written"])
def test_an_owner_that_dies_around_its_decision_leaves_it_to_the_next_one(watched: Cluster, crash_at: str) -> None:
    """Told once or twice, never not at all."""
    watched.add("a")
    watched.add("b")
    watched.nodes["a"].start(CRASH_AT=crash_at)
    watched.start("b")
    watched.server = watched.nodes["b"]
    put_channel(watched)
    fail(watched)
    assert watched.nodes["a"].wait(60) == -signal.SIGKILL, "the owner has decided something"
    client = watched.server.client
    wait_until(lambda: bool(firing(client, "dead-letters")), 60, "the next owner has taken over")
    wait_until(lambda: bool(notices(client, "dead-letters")), 60, "it is told")
    told = notices(client, "dead-letters")
    assert 1 <= len(told) <= 2
    wait_until(
        lambda: all(job["status"] == "COMPLETED" for job in notices(client, "dead-letters")), 60, "it has arrived"
    )
