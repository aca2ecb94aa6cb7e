"""Two real nodes: rates, counts and health are the same whichever is asked, also while one of them is killed."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.processes import Client, wait_until

pytestmark = pytest.mark.slow

GOOD, BAD = 300, 100


def figures(client: Client) -> dict[str, Any]:
    """What does not change from one moment to the next: windows that have ended, and counts."""
    metrics, counts = client.get("/observability/metrics").json(), client.get("/stats").json()
    return {name: metrics[name] for name in ("scope", "until", "total", "by_type", "by_tenant")} | {"counts": counts}


def alike(cluster: Cluster) -> bool:
    """Whether all running nodes say the same. (A read may fall to either side of the end of a bucket.)"""
    first, *others = [figures(cluster.nodes[name].client) for name in cluster.up()]
    return all(first == other for other in others)


def executions(client: Client, window: str = "15m") -> tuple[int, int]:
    total = client.get("/observability/metrics").json()["total"][window]
    return total["executions"], total["failed"]


def test_both_nodes_tell_the_same_also_while_one_is_killed(cluster: Cluster) -> None:
    cluster.start("a", "b")
    a, b = (cluster.nodes[name].client for name in "ab")
    begin = cluster.soon(1500)
    once = {"retry_policy": {"max_retries": 0}}
    cluster.create_spread(GOOD, begin, begin + 2000, "/ok", **once)
    cluster.create_spread(BAD, begin, begin + 2000, "/status/404", **once)
    cluster.wait_for_quiet(40)
    done = (GOOD + BAD, BAD)
    wait_until(lambda: executions(a) == executions(b) == done, 30, "both nodes know of all executions")
    wait_until(lambda: alike(cluster), 30, "both nodes tell the same")
    found = figures(a)
    assert found["total"]["5m"]["errors"] == {"http_error": BAD}
    assert found["counts"]["executions"]["FAILED"] == BAD
    assert found["counts"]["jobs"]["COMPLETED"] == GOOD + BAD
    names = {node["name"] for node in a.get("/observability/metrics").json()["nodes"]}
    assert names == {"a", "b"}, "each node tells of both"
    assert sum(node["shards"] for node in b.get("/observability/metrics").json()["nodes"]) == 64

    for client in (a, b):
        health = client.get("/health?verbose=true")
        assert health.status == 200, "what fails for all nodes takes none of them out"
        assert health.json()["status"] == "degraded"
        assert health.json()["components"]["executions"].startswith("degraded: 25.0 % of 400")
        assert client.get("/health/ready").status == 200

    cluster.kill_node("a")
    assert executions(b) == done, "what the killed node has written is there at once"
    cluster.wait_for_shares("b", seconds=30)
    begin = cluster.soon(500)
    cluster.create_spread(40, begin, begin + 500, "/ok", **once)
    cluster.wait_for_quiet(40)
    wait_until(lambda: executions(b) == (GOOD + BAD + 40, BAD), 30, "the other goes on counting")
    cluster.start("a")
    a = cluster.nodes["a"].client
    wait_until(lambda: executions(a) == (GOOD + BAD + 40, BAD), 30, "a node that starts knows what was before")
    wait_until(lambda: alike(cluster), 30, "both nodes tell the same again")
