"""What the operator is told although the database is gone: by each node, without the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.database import Database
from cluster.processes import Server, wait_until
from security.inbox import Inbox, inbox

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

TOKEN = "T0K3N"


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as made:
        yield made


@pytest.fixture
def nodes(tmp_path: Path, database: Database, box: Inbox) -> Iterator[list[Server]]:
    made = [
        Server(
            tmp_path / name, NODE_NAME=name, DATABASE_URL=database.url, ALERT_URLS=box.url(f"/told?key={TOKEN}"),
            ALERT_DATABASE_AFTER="1s", HEARTBEAT_URL=box.url(f"/beat/{name}"), HEARTBEAT_INTERVAL="1s",
        )
        for name in "ab"
    ]  # fmt: skip
    for server in made:
        server.start()
    yield made
    for server in made:
        server.close()


def told(box: Inbox, kind: str) -> list[str]:
    """Returns the nodes that have sent this, in order."""
    sent: list[dict[str, Any]] = [json.loads(it.body) for it in box.received if it.path.startswith("/told")]
    return sorted(it["data"]["data"]["node"] for it in sent if it["type"] == kind)


def beats(box: Inbox) -> list[int]:
    return [len(box.at(f"/beat/{name}")) for name in "ab"]


def test_each_node_tells_that_its_database_is_gone_and_back_and_has_no_heartbeat_meanwhile(
    nodes: list[Server], database: Database, box: Inbox
) -> None:
    wait_until(lambda: min(beats(box)) >= 1, 30, "both nodes have a heartbeat")
    database.server.stop()
    wait_until(lambda: told(box, "alert.firing") == ["a", "b"], 60, "both nodes have told that it is gone")
    silent = beats(box)
    assert told(box, "alert.resolved") == []
    assert beats(box) == silent
    database.server.start()
    wait_until(lambda: told(box, "alert.resolved") == ["a", "b"], 60, "both nodes have told that it is back")
    wait_until(
        lambda: all(now > then for now, then in zip(beats(box), silent, strict=True)), 60, "the heartbeats go on"
    )
    assert told(box, "alert.firing") == ["a", "b"], "each told it once"
    for server in nodes:
        assert TOKEN not in server.errors()
