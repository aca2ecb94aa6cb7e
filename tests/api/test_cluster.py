"""GET /cluster: the living nodes, their shards, and the standing of the node that responds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from cluster.processes import Client, Server, wait_until
from duetime.api.context import ClusterState
from duetime.api.routes.cluster import view_cluster
from duetime.domain.ids import SHARDS
from duetime.domain.instants import LATEST
from duetime.domain.lease import Holding, Member, Standing, View
from duetime.wire.cluster import Cluster, NodeView, OwnStanding
from store.postgres_server import fresh_database

ALL = frozenset({"api", "timer", "worker", "alerts"})
ROLES = sorted(ALL)
TIMER = frozenset({"timer"})


def held(**counts: int) -> tuple[Holding, ...]:
    """Shards from 0 on, with this many for each owner (n7: node 7); the rest are free."""
    owners = [int(name[1:]) for name, count in counts.items() for _ in range(count)]
    return tuple(Holding(owner, 1) for owner in owners) + (Holding(None, 1),) * (SHARDS - len(owners))


def seen(
    shards: tuple[Holding, ...], *members: Member, owned: Collection[int] = (), standing: Standing = Standing.TRUSTED
) -> Cluster:
    return view_cluster(ClusterState(7, "a", standing, owned, View(1000, members, shards)))


def test_living_nodes_are_listed_with_leases_shards_and_housekeeping():
    members = Member(7, "a", ALL, 5200), Member(8, "b", TIMER, 900)
    assert seen(held(n7=40, n8=20), *members, owned=range(40)) == Cluster(
        OwnStanding(7, "a", Standing.TRUSTED, 40),
        [NodeView(7, "a", ROLES, 4200, 40, True), NodeView(8, "b", ["timer"], 0, 20, False)],
        64,
        [60, 61, 62, 63],
    )


def test_a_shard_of_a_node_that_no_longer_lives_has_no_owner():
    cluster = seen(held(n6=2, n7=62), Member(7, "a", ALL, 5000), owned=range(2, 64))
    assert cluster.unowned_shards == [0, 1]


def test_shards_taken_and_released_since_the_last_heartbeat_are_shown():
    cluster = seen(held(n7=32), Member(7, "a", ALL, 5000), owned=range(16, 64))
    assert cluster.unowned_shards == list(range(16))
    assert cluster.nodes[0].owned_shards == 48


def test_a_node_whose_lease_is_in_doubt_owns_nothing():
    cluster = seen(held(n7=64), Member(7, "a", ALL, 5000), standing=Standing.DOUBTFUL)
    assert (cluster.node.owned_shards, cluster.nodes[0].owned_shards, len(cluster.unowned_shards)) == (0, 0, 64)


def test_a_node_without_a_view_yet_shows_no_nodes():
    cluster = view_cluster(ClusterState(7, "a", Standing.JOINED, (), None))
    assert cluster == Cluster(OwnStanding(7, "a", Standing.JOINED, 0), [], 64, list(range(64)))


def test_a_lease_that_never_expires_has_no_end():
    assert seen(held(), Member(7, "a", ALL, LATEST)).nodes[0].lease_ends_in_ms is None


def test_on_sqlite_the_one_node_owns_all(client: Client):
    answer = client.get("/cluster")
    assert answer.status == 200
    cluster = answer.json()
    (node,) = cluster["nodes"]
    assert node == {
        "id": cluster["node"]["id"], "name": cluster["node"]["name"], "roles": ROLES, "lease_ends_in_ms": None,
        "owned_shards": 64, "runs_housekeeping": True,
    }  # fmt: skip
    assert cluster["node"] | {"id": 0, "name": ""} == {
        "id": 0, "name": "", "standing": "trusted", "owned_shards": 64,
    }  # fmt: skip
    assert (cluster["shards"], cluster["unowned_shards"]) == (64, [])


def test_the_document_has_every_field_of_the_response(client: Client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["Cluster"]["properties"]) == set(client.get("/cluster").json())
    assert {"OwnStanding", "NodeView"} <= set(schemas)


@pytest.mark.slow
async def test_on_postgresql_each_of_two_nodes_shows_both(tmp_path: Path):
    async with fresh_database() as url:
        nodes = [Server(tmp_path / name, DATABASE_URL=url, NODE_NAME=name) for name in "ab"]
        try:
            for node in nodes:
                node.start()
            for node in nodes:

                def spread(asked: Server = node) -> Any:
                    found = asked.client.get("/cluster").json()
                    shares = sorted(other["owned_shards"] for other in found["nodes"])
                    return found if shares == [32, 32] and not found["unowned_shards"] else None

                cluster = wait_until(spread, 15, "both nodes own half of the shards")
                assert [other["name"] for other in cluster["nodes"]] == ["a", "b"]
                assert all(0 < other["lease_ends_in_ms"] <= 5000 for other in cluster["nodes"])
                assert sum(other["runs_housekeeping"] for other in cluster["nodes"]) == 1
                assert cluster["node"]["standing"] == "trusted"
        finally:
            for node in nodes:
                node.close()


@pytest.mark.slow
async def test_a_node_behind_a_pooler_has_its_lease_and_its_shards(tmp_path: Path):
    async with fresh_database() as url:
        node = Server(tmp_path, DATABASE_URL=f"{url}{'&' if '?' in url else '?'}pgbouncer=true")
        try:
            cluster = node.start().client.get("/cluster").json()
        finally:
            node.close()
    assert (cluster["node"]["standing"], cluster["node"]["owned_shards"]) == ("trusted", 64)


@pytest.mark.slow
async def test_roles_separate_nodes_that_serve_the_api_from_nodes_that_run_jobs(tmp_path: Path):
    async with fresh_database() as url:
        front = Server(tmp_path / "front", DATABASE_URL=url, NODE_NAME="front", ROLES="api")
        back = Server(tmp_path / "back", DATABASE_URL=url, NODE_NAME="back", ROLES="timer,worker")
        try:
            front.start()
            back.start()
            job = {"name": "x", "schedule": "immediate", "payload": {"url": "http://127.0.0.1:9/"}}
            assert back.client.post("/jobs", job).status == 404
            assert back.client.get("/cluster").status == 404
            job_id = front.client.post("/jobs", job).json()["job_id"]

            def attempted() -> Any:
                found = front.client.get(f"/jobs/{job_id}/executions").json()["executions"]
                return found[0] if found and found[0]["error_type"] else None

            tried = wait_until(attempted, 15, "the job is tried by the node that runs jobs")
            assert tried["worker_id"].startswith("back")
        finally:
            front.close()
            back.close()
