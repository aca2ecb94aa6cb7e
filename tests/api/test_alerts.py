"""/alerts, /alert-rules and /silences."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import People
from api.person import Person, refused
from cluster.processes import Client, Receiver, Server, wait_until

RULE = {"kind": "failure_ratio", "threshold": 25, "least_count": 3}


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    name = f"rule-{uuid.uuid4().hex[:8]}"
    yield name
    client.delete(f"/alert-rules/{name}")


def test_the_defaults_hold_without_being_stored(client: Client) -> None:
    rules = {rule["name"]: rule for rule in client.get("/alert-rules").json()["rules"]}
    assert {"failures", "queue-build-up", "not-run", "orphans", "node-gone", "scheduler-stopped"} <= rules.keys()
    assert rules["failures"]["is_default"]
    assert rules["failures"]["changed_at"] is None
    assert (rules["failures"]["threshold"], rules["failures"]["window_seconds"]) == (10, 300)


def test_a_rule_is_added_changed_and_removed(client: Client, name: str) -> None:
    made = client.put(f"/alert-rules/{name}", RULE)
    assert made.status == 200
    assert made.json()["severity"] == "warning"  # the default of the kind
    assert client.get(f"/alert-rules/{name}").json() == made.json()
    hours = {"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin", "days": ["mon"], "critical": False}
    changed = client.put(f"/alert-rules/{name}", RULE | {"quiet_hours": hours, "enabled": False}).json()
    assert changed["quiet_hours"] == hours
    assert not changed["enabled"]
    assert client.delete(f"/alert-rules/{name}").status == 200
    refused(client.get(f"/alert-rules/{name}"), 404, "NOT_FOUND")
    refused(client.delete(f"/alert-rules/{name}"), 404, "NOT_FOUND")


def test_changes_are_in_the_audit(client: Client, name: str) -> None:
    client.put(f"/alert-rules/{name}", RULE)
    client.put(f"/alert-rules/{name}", RULE | {"threshold": 50})
    client.delete(f"/alert-rules/{name}")
    entries = client.get(f"/audit?resource={name}").json()["entries"]
    assert [entry["action"] for entry in entries] == ["alert_rule.remove", "alert_rule.put", "alert_rule.put"]
    assert (entries[1]["before"]["threshold"], entries[1]["after"]["threshold"]) == (25, 50)


def test_a_default_is_turned_off_and_holds_again_when_the_own_rule_is_removed(client: Client) -> None:
    path = "/alert-rules/lateness"
    refused(client.delete(path), 409, "CONFLICT")
    assert not client.put(path, {"kind": "lateness_p99", "enabled": False}).json()["enabled"]
    assert "holds again" in client.delete(path).json()["message"]
    assert client.get(path).json()["enabled"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/kind"),
        ({"kind": "luck"}, "/kind"),
        (RULE | {"scope": "tag:x"}, "/scope"),
        ({"kind": "failure_ratio", "scope": "job:none-such"}, "/scope"),
        (RULE | {"channels": ["none"]}, "/channels/0"),
        (RULE | {"escalate": [{"after_seconds": 60, "channels": ["none"]}]}, "/escalate/0/channels/0"),
        (RULE | {"thresold": 3}, "/thresold"),
        (RULE | {"quiet_hours": {"from": "22:00", "to": "25:00"}}, "/quiet_hours/to"),
    ],
)
def test_an_invalid_rule_is_refused_at_its_field(client: Client, name: str, body: dict[str, Any], pointer: str) -> None:
    refused(client.put(f"/alert-rules/{name}", body), 400, "INVALID_REQUEST", pointer)


def test_a_name_has_a_form(client: Client) -> None:
    refused(client.put("/alert-rules/My%20Rule", RULE), 400, "INVALID_REQUEST", "/name")


def test_a_job_is_named_by_its_key(person: Person, client: Client, name: str) -> None:
    key = f"key-{uuid.uuid4().hex[:8]}"
    job_id = client.put(f"/jobs/by-key/{key}", person.body()).json()["job_id"]
    made = client.put(f"/alert-rules/{name}", {"kind": "not_run", "scope": f"job:{key}", "window_seconds": 3600})
    assert made.json()["scope"] == f"job:{job_id}"


def test_a_silence_is_added_listed_and_ended(client: Client) -> None:
    made = client.post("/silences", {"seconds": 600, "rule": "node-gone", "subject": "node:b", "reason": "moves"})
    assert made.status == 201
    assert made.json() in client.get("/silences").json()["silences"]
    path = f"/silences/{made.json()['silence_id']}"
    assert client.delete(path).status == 200
    refused(client.delete(path), 404, "NOT_FOUND")
    refused(client.post("/silences", {"seconds": 0}), 400, "INVALID_REQUEST", "/seconds")


def test_a_user_who_is_no_admin_sees_no_alerts(people: People) -> None:
    ann = people.as_user("acme", "ann")
    for path in ("/alerts", "/alerts/history", "/alert-rules", "/silences"):
        refused(ann.get(path), 403, "FORBIDDEN")


def test_without_an_operator_nobody_has_rules_of_the_cluster(people: People) -> None:
    admin = people.as_user("acme", "root", "admin")
    assert "orphans" not in {rule["name"] for rule in admin.get("/alert-rules").json()["rules"]}
    refused(admin.put("/alert-rules/orphans", {"kind": "orphans"}), 403, "FORBIDDEN")


# A node that evaluates


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path).start()
    yield server
    server.close()


def test_failures_are_told_and_seen_and_so_is_their_end(watching: Server, receiver: Receiver) -> None:
    client, person = watching.client, Person(watching.client, receiver)
    assert client.put("/alert-channels/ops", {"url": receiver.url("/ok?alerts")}).status == 200
    test = client.post("/alert-rules/dead-letters/test")
    assert test.status == 202
    person.fail()

    def firing() -> list[dict[str, Any]]:
        return [it for it in client.get("/alerts").json()["alerts"] if it["rule"] == "dead-letters"]

    wait_until(lambda: bool(firing()), 20, "the alert fires")
    (alert,) = firing()
    assert (alert["state"], alert["told"]) == ("firing", ["ops"])
    assert "ran out of attempts" in alert["summary"]
    notices = client.get("/jobs?type=notice").json()["jobs"]
    assert sorted(job["payload"]["status"] for job in notices) == ["firing", "test"]
    client.put("/alert-rules/dead-letters", {"kind": "dead_letters", "enabled": False})
    wait_until(lambda: not firing(), 20, "the alert ends with its rule")
    (over,) = client.get("/alerts/history?rule=dead-letters").json()["alerts"]
    assert over["alert_id"] == alert["alert_id"]
    assert over["resolved_at"] is not None


def test_a_job_of_another_tenant_is_unknown_to_a_rule(people: People) -> None:
    job_id = people.ann.create()
    body = {"kind": "not_run", "window_seconds": 3600}
    answers = [
        people.eve.put("/alert-rules/mine", body | {"scope": f"job:{name}"}).json()
        for name in (job_id, "0198c0de-1234-7abc-8def-0123456789ab")
    ]
    assert answers[0]["message"].replace(job_id, "x") == answers[1]["message"].replace(
        "0198c0de-1234-7abc-8def-0123456789ab", "x"
    )
