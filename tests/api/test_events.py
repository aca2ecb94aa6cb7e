"""GET /events: events as they happen, and resuming after a lost connection."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import pytest

from api.person import Person, refused
from cluster.processes import Client, wait_until
from duetime.api.streams import MOST_FOLLOWERS
from patience import PATIENCE_SECONDS


class Event(NamedTuple):
    number: str | None
    kind: str
    data: dict[str, Any]


@contextmanager
def following(client: Client, last: str | None = None) -> Iterator[Iterator[Event]]:
    """The events from now on, or after `last`. When the block begins, the server listens."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/api/v1/events", headers={} if last is None else {"Last-Event-ID": last})
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.readline() == b": following\n"
    assert response.readline() == b"\n"
    yield _events(response)
    connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[Event]:
    fields: dict[str, str] = {}
    while line := response.readline().decode().rstrip("\n") or " ":
        if line != " ":
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}


def about(events: Iterator[Event], job_id: str) -> Iterator[Event]:
    return (event for event in events if event.data.get("job_id") == job_id)


def created_in(events: Iterator[Event]) -> Iterator[Event]:
    return (event for event in events if event.kind == "job.created")


def test_an_execution_has_events_as_it_runs(person: Person) -> None:
    with following(person.client) as events:
        job_id = person.create("immediate")
        job_events = about(events, job_id)
        created, started, completed = (next(job_events) for _ in range(3))
    assert (started.kind, started.data["state"], started.data["attempt"]) == ("execution.started", "RUNNING", 1)
    assert (created.kind, created.data["name"]) == ("job.created", person.name)
    assert (completed.kind, completed.data["state"], completed.data["attempt"]) == (
        "execution.completed", "COMPLETED", 1
    )  # fmt: skip
    assert int(created.number or 0) < int(completed.number or 0)


def test_actions_of_users_have_events(person: Person) -> None:
    with following(person.client) as events:
        job_id = person.create("every 1h")
        for action in ("pause", "resume"):
            person.client.post(f"/jobs/{job_id}/{action}")
        person.client.patch(f"/jobs/{job_id}", {"priority": 1})
        person.client.delete(f"/jobs/{job_id}")
        person.client.delete(f"/jobs/{job_id}?purge=true")
        job_events = about(events, job_id)
        kinds = [next(job_events).kind for _ in range(6)]
    assert kinds == ["job.created", "job.paused", "job.resumed", "job.changed", "job.cancelled", "job.purged"]


def test_a_follower_that_lost_its_connection_resumes(person: Person) -> None:
    with following(person.client) as events:
        first = next(about(events, person.create()))
    missed = [person.create("every 1h") for _ in range(3)]
    with following(person.client, first.number) as events:
        resumed = list(islice(created_in(events), 3))
    assert [event.data["job_id"] for event in resumed] == missed
    numbers = [int(event.number or 0) for event in (first, *resumed)]
    assert numbers == sorted(set(numbers))


def test_an_event_id_from_before_a_restart_gets_a_reset(client: Client) -> None:
    with following(client, "999999999") as events:
        assert next(events).kind == "reset"


def test_a_follower_can_resume_before_its_first_event(client: Client, person: Person) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/api/v1/events")
    response = connection.getresponse()
    assert [response.readline() for _ in range(2)] == [b": following\n", b"\n"]
    name, _, number = response.readline().decode().strip().partition(": ")
    assert name == "id"
    connection.close()
    job_id = person.create("every 1h")
    with following(person.client, number) as events:
        assert next(about(events, job_id)).kind == "job.created"


def test_the_number_of_followers_is_limited_and_a_closed_one_makes_room(client: Client) -> None:
    def status() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/api/v1/events")
        opened.append(connection)
        return connection.getresponse().status

    opened: list[http.client.HTTPConnection] = []
    answers = [status() for _ in range(MOST_FOLLOWERS + 1)]
    assert answers[0] == 200
    problem = client.get("/events")
    assert "try again" in refused(problem, 503, "OVERLOADED")
    assert problem.headers["retry-after"] == "10"
    for connection in opened:
        connection.close()
    wait_until(lambda: status() == 200, 10, "there is room again")
    opened[-1].close()


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "", "9" * 30, "\u00b2"])
def test_a_bad_last_event_id_is_refused(client: Client, last: str) -> None:
    refused(client.get("/events", last_event_id=last), 400, "INVALID_REQUEST", "/Last-Event-ID")
