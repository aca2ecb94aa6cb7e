"""A tenant can't send a valid request to another tenant's receiver: each tenant has its own signing key."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from api.people import SETTINGS, Known, People
from cluster.processes import Server, wait_until
from security.inbox import Inbox, Received, inbox
from security.nodes import STORES, nodes

SHARED = SETTINGS["SIGNING_SECRETS"]
DAY_SECONDS = 86_400


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with nodes(request.param, tmp_path_factory.mktemp("signing")) as started:
        yield started


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as box:
        yield box


@pytest.fixture
def people(servers: list[Server]) -> People:
    return People(servers[0])


def key_of(admin: Known) -> dict[str, Any]:
    answer = admin.get("/signing-key")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def rotated(admin: Known, overlap_seconds: int = DAY_SECONDS) -> dict[str, Any]:
    answer = admin.post("/signing-key/rotate", {"overlap_seconds": overlap_seconds})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def sent_by(box: Inbox, client: Known, amount: int = 100) -> Received:
    """Returns the request of a new job of this tenant, as a receiver gets it."""
    path = f"/{uuid.uuid4()}"
    client.create("immediate", payload={"url": box.url(path), "body": {"pay": amount}})
    (received,) = wait_until(lambda: box.at(path), 15, "the job's request has come")
    return received


def test_a_tenants_request_does_not_verify_at_another_tenants_receiver(people: People, box: Inbox) -> None:
    genuine, forged = sent_by(box, people.ann), sent_by(box, people.eve)
    shown = people.ada.get("/signing-key")
    secrets = [SHARED] + ([shown.json()["secret"]] if shown.status == 200 else [])
    used = [secret for secret in secrets if genuine.verifies(secret)]
    assert used, "the victim's receiver has a secret that its requests verify with"
    assert not [secret for secret in used if forged.verifies(secret)]


def test_only_the_secret_that_an_admin_sees_verifies_requests(people: People, box: Inbox) -> None:
    received, key = sent_by(box, people.ann), key_of(people.ada)
    assert (key["version"], key["others"]) == (1, [])
    assert len(received.signatures) == 1
    assert received.verifies(key["secret"])
    assert not received.verifies(SHARED)
    assert not received.verifies(key_of(people.eve)["secret"])


def test_notifications_are_signed_with_the_key_of_the_jobs_tenant(people: People, box: Inbox) -> None:
    path = f"/{uuid.uuid4()}"
    people.ann.create("immediate", url=box.url(), webhooks={"on_success": box.url(path)})
    (notified,) = wait_until(lambda: box.at(path), 15, "the notification has come")
    assert notified.verifies(key_of(people.ada)["secret"])
    assert not notified.verifies(key_of(people.eve)["secret"])


def test_during_a_rotation_requests_verify_with_the_new_and_the_previous_key(
    people: People, servers: list[Server], box: Inbox
) -> None:
    before, others = key_of(people.ada), key_of(people.eve)
    after = rotated(people.ada)
    assert after["version"] == 2
    assert after["secret"] != before["secret"]
    assert [(one["version"], one["secret"]) for one in after["others"]] == [(1, before["secret"])]
    assert [key_of(people.ada.at(server)) for server in servers] == [after] * len(servers)

    def on_all_nodes() -> list[Received]:
        """Returns executions of many jobs: every node has some of them."""
        received = [sent_by(box, people.ann) for _ in range(8)]
        return received if all(one.verifies(after["secret"]) for one in received) else []

    for received in wait_until(on_all_nodes, 15, "all nodes sign with the new key"):
        assert received.verifies(before["secret"])
        assert len(received.signatures) == 2
    assert key_of(people.eve) == others, "another tenant's key is as it was"


def test_a_key_that_was_rotated_without_overlap_signs_no_more(people: People, box: Inbox) -> None:
    leaked = key_of(people.ada)["secret"]
    after = rotated(people.ada, 0)
    assert after["others"] == []

    def is_over() -> bool:
        received = [sent_by(box, people.ann) for _ in range(8)]
        assert all(one.verifies(leaked) or one.verifies(after["secret"]) for one in received)
        return not any(one.verifies(leaked) for one in received)

    wait_until(is_over, 15, "no node signs with the key that leaked")


def test_a_second_rotation_is_refused_during_the_first_unless_it_has_no_overlap(people: People) -> None:
    assert rotated(people.ada)["version"] == 2
    again = people.ada.post("/signing-key/rotate")
    assert again.status == 409
    assert "version 1 of the signing key still signs" in again.json()["message"]
    assert key_of(people.ada)["version"] == 2
    assert rotated(people.ada, 0)["version"] == 3
    assert key_of(people.ada)["others"] == []


@pytest.mark.parametrize("overlap", [-1, 31 * DAY_SECONDS, "long", None, 1.5])
def test_an_invalid_overlap_changes_nothing(people: People, overlap: Any) -> None:
    answer = people.ada.post("/signing-key/rotate", {"overlap_seconds": overlap})
    assert answer.status == 400
    assert answer.json()["errors"][0]["pointer"] == "/overlap_seconds"
    assert key_of(people.ada)["version"] == 1


def test_only_admins_see_and_rotate_it(people: People) -> None:
    limited = people.as_user(people.acme, "ada", "admin", scopes=["read", "write", "run", "script", "sql", "work"])
    for client in (people.ann, limited, people.as_user(people.acme, "max", "enterprise")):
        for answer in (client.get("/signing-key"), client.post("/signing-key/rotate")):
            assert answer.status == 403
            assert b"whsec_" not in answer.body
    assert key_of(people.ada)["version"] == 1


def test_no_secret_is_in_the_audit_the_logs_the_events_or_the_data(people: People, servers: list[Server]) -> None:
    with people.ada.following() as frames:
        before, after = key_of(people.ada), rotated(people.ada)
        people.ada.create(name="the last event")
        seen = []
        for frame in frames:
            seen.append(frame.data)
            if "the last event" in frame.data:
                break
    entries = people.ada.get("/audit?action=signing_key.rotate").json()["entries"]
    assert [(one["actor"], one["resource"], one["after"]) for one in entries] == [
        ("ada", "signing-key", {"version": 2})
    ]
    written = [*seen, json.dumps(people.ada.get("/audit").json()), *(server.errors() for server in servers)]
    for server in servers:
        written += [file.read_bytes().decode("latin-1") for file in server.data.rglob("*") if file.is_file()]
    for key in (before["secret"], after["secret"]):
        assert not [text for text in written if key.removeprefix("whsec_") in text]
