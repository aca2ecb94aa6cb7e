"""Streams of events and logs are shared by tenant, then by user: the largest holder gives way to the others."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from api.people import Known, People
from api.person import refused
from cluster.processes import wait_until
from duetime.api.streams import MOST_FOLLOWERS

TRY_AGAIN = b"retry: 10000\n"


class OpenStream:
    def __init__(self, client: Known, path: str = "/events") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
        self.connection.request("GET", f"/api/v1{path}", headers={**client.headers, "Accept": "text/event-stream"})
        self.response = self.connection.getresponse()

    def begins(self) -> bool:
        return self.response.status == 200 and self.response.readline().startswith(b":")

    def lines_to_the_end(self) -> list[bytes]:
        return list(self.response)


@contextmanager
def streams(client: Known, count: int) -> Iterator[list[OpenStream]]:
    """Opens this many streams, each of which has a place."""
    opened = [OpenStream(client) for _ in range(count)]
    try:
        assert all(stream.begins() for stream in opened)
        yield opened
    finally:
        for stream in opened:
            stream.connection.close()
        wait_until(lambda: _has_room(client), 20, "their places are free again")


def _has_room(client: Known) -> bool:
    stream = OpenStream(client)
    stream.connection.close()
    return stream.response.status == 200


def test_a_tenant_that_holds_all_streams_gives_way_to_another(people: People) -> None:
    with streams(people.eve, MOST_FOLLOWERS) as held:
        asked = OpenStream(people.ann)
        assert asked.begins()
        ended = held[-1].lines_to_the_end()
        assert TRY_AGAIN in ended, "the newest of the tenant with the most is told to reconnect later"
        problem = people.eve.get("/events")
        assert "try again" in refused(problem, 503, "OVERLOADED")
        assert problem.headers["retry-after"] == "10"
        job_id = people.ann.create()
        assert any(job_id.encode() in line for line in asked.response)
        asked.connection.close()


def test_followers_of_a_log_count_as_streams_and_give_way(people: People) -> None:
    failing = people.receiver.url("/status/503")
    job_id = people.eve.create("immediate", failing, retry_policy={"delays": [3600]})
    execution_id = people.eve.wait_for(job_id, "RETRYING")
    path = f"/executions/{execution_id}/logs"
    followed = [OpenStream(people.eve, path) for _ in range(MOST_FOLLOWERS)]
    assert {stream.response.readline() for stream in followed} == {b"id: 8589934591\n"}
    asked = OpenStream(people.ann)
    assert asked.begins()
    assert TRY_AGAIN in followed[-1].lines_to_the_end()
    for stream in (*followed, asked):
        stream.connection.close()
    people.eve.post(f"/executions/{execution_id}/cancel")
    wait_until(lambda: _has_room(people.eve), 20, "their places are free again")


def test_users_of_one_tenant_share_its_streams(people: People) -> None:
    with streams(people.ann, MOST_FOLLOWERS) as held:
        asked = OpenStream(people.bob)
        assert asked.begins()
        assert TRY_AGAIN in held[-1].lines_to_the_end()
        asked.connection.close()
