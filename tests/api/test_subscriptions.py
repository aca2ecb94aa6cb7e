"""/subscriptions: URLs that get events of a tenant."""

from __future__ import annotations

from typing import Any

import pytest

from api.person import Person, refused
from cluster.processes import Client, wait_until


def words(client: Client, event: str) -> list[dict[str, Any]]:
    """The notifications about the job, latest first."""
    found: list[dict[str, Any]] = client.get(f"/jobs?tag=duetime.event={event}").json()["jobs"]
    return found


@pytest.fixture
def hook(person: Person) -> Any:
    """A receiver of notifications. Its subscriptions are removed after the test."""
    url = person.body(path="/ok")["payload"]["url"]
    made = person.client.post("/subscriptions", {"url": url})
    assert made.status == 201
    yield made.json()
    assert person.client.delete(f"/subscriptions/{made.json()['subscription_id']}").status == 200


def test_a_subscription_without_events_gets_all_events(person: Person, hook: dict[str, Any]) -> None:
    assert hook["events"] == ["execution.completed", "execution.failed", "job.paused", "job.resumed", "job.cancelled"]
    listed = person.client.get("/subscriptions").json()["subscriptions"]
    assert hook in listed


def test_an_action_on_a_job_is_sent_once(person: Person, hook: dict[str, Any]) -> None:
    job_id = person.create("every 1h")
    for deed in ("pause", "pause", "resume", "cancel", "cancel"):
        assert person.client.post(f"/jobs/{job_id}/{deed}").status == 200
    for event in ("job.paused", "job.resumed", "job.cancelled"):
        (word,) = [word for word in words(person.client, event) if word["payload"]["body"]["data"]["job_id"] == job_id]
        assert word["payload"]["url"] == hook["url"]
        assert word["payload"]["body"]["type"] == event
        wait_until(lambda id=word["job_id"]: person.job(id)["status"] == "COMPLETED", 10, "it was sent")


def test_a_refused_action_is_not_sent(person: Person, hook: dict[str, Any]) -> None:
    job_id = person.create("every 1h")
    person.client.post(f"/jobs/{job_id}/cancel")
    before = len(words(person.client, "job.paused"))
    refused(person.client.post(f"/jobs/{job_id}/pause"), 409, "CONFLICT")
    assert len(words(person.client, "job.paused")) == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"url": "ftp://x.example"}, "/url"),
        ({"url": "https://x.example", "events": ["job.eaten"]}, "/events/0"),
        ({}, "/url"),
    ],
)
def test_an_invalid_subscription_is_refused(client: Client, body: dict[str, Any], pointer: str) -> None:
    refused(client.post("/subscriptions", body), 400, "INVALID_REQUEST", pointer)


def test_an_unknown_subscription_is_not_found(client: Client) -> None:
    refused(client.delete("/subscriptions/0198c0de-1234-7abc-8def-0123456789ab"), 404, "NOT_FOUND")
