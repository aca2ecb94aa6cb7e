"""GET /executions/{id}/logs as server-sent events: each attempt as it ends, resuming, and the end of the stream."""

from __future__ import annotations

import http.client

import pytest

from api.person import Person, refused
from cluster.processes import Client
from patience import PATIENCE_SECONDS

SSE = "text/event-stream"
END_OF_FIRST = (1 << 32) + 0xFFFFFFFF  # the number of the event for the end of the first attempt


def follow(client: Client, execution_id: str, last: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
    headers = {"Accept": SSE} | ({} if last is None else {"Last-Event-ID": last})
    connection.request("GET", f"/api/v1/executions/{execution_id}/logs", headers=headers)
    response = connection.getresponse()
    assert (response.status, response.headers["content-type"].split(";")[0]) == (200, SSE)
    return response


def events(stream: bytes) -> list[list[str]]:
    """The lines of each event, without comments."""
    blocks = [block.split("\n") for block in stream.decode().split("\n\n") if block and not block.startswith(":")]
    return [[line for line in block if not line.startswith(":")] for block in blocks]


def test_a_complete_log_is_sent_at_once_and_the_stream_ends(person: Person) -> None:
    _, execution_id = person.fail()
    log, end = events(follow(person.client, execution_id).read())
    assert log[:2] == [f"id: {END_OF_FIRST}", "event: log"]
    assert "attempt 1: 127.0.0.1 answered 500." in log[2]
    assert end == ["event: end", 'data: {"state":"FAILED"}']


def test_each_attempt_is_sent_as_it_ends(person: Person) -> None:
    job_id = person.create("immediate", "/status/503", retry_policy={"delays": [0.5, 0.1]})
    execution_id = person.wait_for_state(job_id, "RETRYING")["execution_id"]
    found_events = events(follow(person.client, execution_id).read())
    ends = [f"id: {(attempt << 32) + 0xFFFFFFFF}" for attempt in (1, 2, 3)]
    assert [block[0] for block in found_events] == [*ends, "event: end"]


def test_a_follower_that_lost_its_connection_resumes(person: Person) -> None:
    _, execution_id = person.fail()
    found_events = events(follow(person.client, execution_id, str(END_OF_FIRST)).read())
    assert [block[0] for block in found_events] == ["event: end"]


def test_a_waiting_execution_that_is_cancelled_ends_the_log(person: Person) -> None:
    job_id = person.create("immediate", "/status/503", retry_policy={"delays": [3600]})
    execution_id = person.wait_for_state(job_id, "RETRYING")["execution_id"]
    response = follow(person.client, execution_id)
    person.client.post(f"/executions/{execution_id}/cancel")
    assert events(response.read())[-1] == ["event: end", 'data: {"state":"CANCELLED"}']


@pytest.mark.parametrize("last", ["x", "-1"])
def test_a_bad_last_event_id_is_refused(person: Person, last: str) -> None:
    _, execution_id = person.fail()
    answer = person.client.get(f"/executions/{execution_id}/logs", accept=SSE, last_event_id=last)
    refused(answer, 400, "INVALID_REQUEST", "/Last-Event-ID")


def test_an_unknown_execution_is_not_found(client: Client) -> None:
    refused(client.get("/executions/0198c0de-1234-7abc-8def-0123456789ab/logs", accept=SSE), 404, "NOT_FOUND")
