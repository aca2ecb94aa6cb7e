"""Two real nodes: each tells of both, in one order, and a follower goes on at the other when its node is killed."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, NamedTuple

import pytest

from cluster.cluster import Cluster
from cluster.processes import Server, now_ms, wait_until
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow


class Event(NamedTuple):
    id: int | None
    kind: str
    data: dict[str, Any]


class Following:
    """Follows the events of one node after another. `last` is the id of the last event."""

    def __init__(self) -> None:
        self.last: int | None = None

    def events(self, node: Server) -> Iterator[Event]:
        """Yields the events of a node until the connection ends. When the first is asked for, the node listens."""
        connection = http.client.HTTPConnection("127.0.0.1", node.client.port, timeout=PATIENCE_SECONDS)
        headers = {} if self.last is None else {"Last-Event-ID": str(self.last)}
        connection.request("GET", "/api/v1/events", headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        assert response.readline() == b": following\n"
        return self._read(response, connection)

    def _read(self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection) -> Iterator[Event]:
        fields: dict[str, str] = {}
        try:
            while raw := response.readline():
                if line := raw.decode().rstrip("\n"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                    continue
                if "id" in fields:
                    self.last = int(fields["id"])
                if "event" in fields:
                    yield Event(self.last if "id" in fields else None, fields["event"], json.loads(fields["data"]))
                fields = {}
        except (OSError, http.client.HTTPException):
            return  # the node was killed
        finally:
            connection.close()


def name_the_end(cluster: Cluster, name: str) -> None:
    body = {**cluster.body("immediate"), "name": name}
    assert cluster.server.client.post("/jobs", body).status == 201


def until(events: Iterator[Event], name: str, found: list[Event] | None = None) -> list[Event]:
    """Returns the events before the creation of the job with this name; `found` has them as they come."""
    found = [] if found is None else found
    for event in takewhile(lambda event: event.data.get("name") != name, events):
        found.append(event)
    return found


def test_both_nodes_tell_the_same_in_the_same_order_while_one_is_killed(cluster: Cluster) -> None:
    cluster.start("a", "b")
    moving, staying = Following(), Following()
    expected: list[Event] = []
    on_a, on_b = moving.events(cluster.nodes["a"]), staying.events(cluster.nodes["b"])
    with ThreadPoolExecutor(2) as pool:
        first, all_of_b = pool.submit(lambda: list(on_a)), pool.submit(until, on_b, "the end", expected)
        begin, span = cluster.soon(1000), cluster.lasting(4000)
        cluster.create_spread(600, begin, begin + span, "/ok")
        wait_until(lambda: now_ms() >= begin + span // 2, span / 1000 + 2, "half of the jobs are due")
        cluster.kill_node("a")
        seen = first.result()
        wait_until(lambda: any(event.kind == "node.expired" for event in expected), 15, "b tells of the end of a")
        cluster.start("a")
        resumed = moving.events(cluster.nodes["b"])
        cluster.wait_for_quiet(40)
        name_the_end(cluster, "the end")
        seen += until(resumed, "the end")
        all_of_b.result()
    assert [event.kind for event in expected].count("reset") == 0
    assert seen == expected
    ids = [event.id for event in expected if event.id is not None]
    assert ids == sorted(set(ids))
    kinds = {event.kind for event in expected}
    assert {"execution.started", "execution.completed", "node.expired", "node.joined", "shards.moved"} <= kinds
    # What the killed node had done in its last moment, and had not logged, is all that is missing.
    completed = [event.data["execution_id"] for event in expected if event.kind == "execution.completed"]
    assert len(completed) == len(set(completed))
    assert 600 - 60 <= len(completed) <= 600


def test_a_follower_resumes_after_all_nodes_were_restarted(cluster: Cluster) -> None:
    cluster.start("a", "b")
    following = Following()
    events = following.events(cluster.nodes["a"])
    name_the_end(cluster, "first")
    until(events, "first")
    name_the_end(cluster, "second")
    until(following.events(cluster.nodes["b"]), "second")  # it is in the log
    cluster.kill_node("a")
    cluster.kill_node("b")
    cluster.start("a", "b")
    name_the_end(cluster, "third")
    resumed = until(following.events(cluster.nodes["b"]), "third")
    assert "reset" not in [event.kind for event in resumed]
    assert "second" not in [event.data.get("name") for event in resumed], "it had that event"


def test_a_node_that_stands_still_keeps_no_other_from_telling(cluster: Cluster) -> None:
    cluster.start("a", "b")
    begin, span = cluster.soon(1000), cluster.lasting(3000)
    cluster.create_spread(600, begin, begin + span, "/ok")
    wait_until(lambda: now_ms() >= begin + span // 2, span / 1000 + 2, "half of the jobs are due")
    cluster.pause("a")
    following = Following()
    events = following.events(cluster.nodes["b"])
    name_the_end(cluster, "told meanwhile")
    until(events, "told meanwhile")  # in time, or the read ends with an error
    cluster.go_on("a")
    cluster.wait_for_quiet(40)
