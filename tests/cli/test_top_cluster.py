"""`duetime top` on a loaded cluster of two nodes: a slow target and a flooding tenant can be read in one frame."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import ENCRYPTION_KEY, SETTINGS, Known, database, token
from cli.conftest import Duetime
from cluster.processes import Receiver, Server, wait_until

pytestmark = pytest.mark.slow

FLOOD = 400


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("top-cluster")
    with database() as url:
        settings = {
            **SETTINGS, "DATABASE_URL": url, "OPERATOR_TENANT": "ops", "ENDPOINT_CONCURRENCY": "4",
            "ENCRYPTION_KEYS": f"k1:{b64encode(ENCRYPTION_KEY).decode()}",
        }  # fmt: skip
        pair = tuple(Server(folder / name, **settings, NODE_NAME=f"node-{name}") for name in ("a", "b"))
        try:
            for node in pair:
                node.start()
            yield pair[0], pair[1]
        finally:
            for node in pair:
                node.close()


def person(node: Server, tenant: str) -> Known:
    return Known(node.client.port, {"Authorization": f"Bearer {token(tenant, 'ada', 'admin')}"})


def top_of(node: Server, tenant: str) -> dict[str, Any]:
    duetime = Duetime(f"http://127.0.0.1:{node.client.port}")
    result = duetime("top", "--json", env={"DUETIME_TOKEN": token(tenant, "ada", "admin")})
    assert result.exit_code == 0, result.stderr
    frame: dict[str, Any] = json.loads(result.stdout)
    return frame


def test_a_slow_target_and_a_flooding_tenant_are_read_on_either_node(
    nodes: tuple[Server, Server], tmp_path: Path
) -> None:
    receiver = Receiver(tmp_path)
    slow = receiver.url("/slow/1")
    flood, small = person(nodes[0], "flood"), person(nodes[0], "small")
    lines = [{"name": f"flood {number}", "schedule": "immediate", "payload": {"url": slow}} for number in range(FLOOD)]
    assert flood.post("/jobs:batch", lines).json()["created_count"] == FLOOD
    bad = small.create("immediate", retry_policy={"max_retries": 0}, name="small and bad")

    def is_loaded(node: Server) -> dict[str, Any]:
        frame = top_of(node, "ops")
        is_waiting = frame["tenants"] and frame["tenants"][0]["waiting"] > 0 and frame["targets"]
        late = any(job["tenant"] == "flood" and job["lateness_ms"] > 1000 for job in frame["jobs"])
        small_is_there = any(job["job_id"] == bad for job in frame["jobs"])
        return frame if is_waiting and late and small_is_there and len(frame["nodes"]) == 2 else {}

    for node in nodes:
        frame = wait_until(lambda node=node: is_loaded(node), 30, "the load is in a frame")
        assert [one["name"] for one in frame["nodes"]] == ["node-a", "node-b"]
        assert sum(one["in_flight"] for one in frame["nodes"]) > 0
        assert frame["tenants"][0]["tenant"] == "flood"
        (target,) = [one for one in frame["targets"] if one["tenant"] == "flood"]
        assert (target["target"], target["waiting"] > 0) == (slow.removesuffix("/slow/1"), True)
        (job,) = [one for one in frame["jobs"] if one["job_id"] == bad]
        assert (job["failures"], job["last_error"]) == (1, "blocked_target")

    printed = Duetime(f"http://127.0.0.1:{nodes[1].client.port}")(
        "top", "--once", env={"DUETIME_TOKEN": token("ops", "ada", "admin")}
    ).stdout
    for words in ("node-a", "node-b", "flood", "small and bad", "blocked_target", slow.removesuffix("/slow/1")):
        assert words in printed

    frame = top_of(nodes[0], "small")
    assert {job["tenant"] for job in frame["jobs"]} == {"small"}
    assert "flood" not in json.dumps(frame)
    assert frame["nodes"] == []
    receiver.close()
