"""/alert-channels: where notices of alerts are sent."""

from __future__ import annotations

import json
import signal
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import People
from api.person import FAR, Person, refused
from cluster.processes import Answer, Server, wait_until
from duetime.domain.channels import LONGEST_URL
from security.inbox import Inbox, inbox

TOKEN = "T0K3N"


@pytest.fixture
def box() -> Iterator[Inbox]:
    with inbox() as made:
        yield made


def ended(person: Person, tested: Answer) -> dict[str, Any]:
    assert tested.status == 202, tested
    job_id = tested.json()["job_id"]
    wait_until(lambda: person.executions(job_id), 20, "the notice was fired")
    return wait_until(
        lambda: next((it for it in person.executions(job_id) if it["state"] not in ("QUEUED", "RUNNING")), None),
        60, "the notice was sent",
    )  # fmt: skip


def test_a_channel_is_listed_without_its_token(person: Person) -> None:
    made = person.client.put("/alert-channels/ops", {"url": f"https://hooks.example.com/{TOKEN}"})
    assert made.status == 200
    assert made.json().keys() == {"name", "kind", "shown", "created_at", "created_by"}
    assert (made.json()["kind"], made.json()["shown"]) == ("webhook", "https://hooks.example.com/…")
    listed = person.client.get("/alert-channels")
    assert made.json() in listed.json()["channels"]
    assert TOKEN not in listed.body.decode()
    assert person.client.delete("/alert-channels/ops").status == 200
    refused(person.client.delete("/alert-channels/ops"), 404, "NOT_FOUND")


def test_a_channel_can_get_another_url_and_kind(person: Person) -> None:
    person.client.put("/alert-channels/other", {"url": "https://hooks.example.com/x"})
    changed = person.client.put("/alert-channels/other", {"url": f"https://discord.com/{TOKEN}", "kind": "apprise"})
    assert (changed.json()["kind"], changed.json()["shown"]) == ("apprise", "https://discord.com/…")
    changed = person.client.put("/alert-channels/other", {"url": f"slack://{TOKEN}/B/C", "kind": None})
    assert (changed.json()["kind"], changed.json()["shown"]) == ("apprise", "slack://…")
    names = [it["name"] for it in person.client.get("/alert-channels").json()["channels"]]
    assert names.count("other") == 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"url": f"syslog://{TOKEN}"}, "/url"),
        ({"url": f"file:///{TOKEN}"}, "/url"),
        ({"url": f"mqtt://{TOKEN}"}, "/url"),
        ({"url": f"dbus://{TOKEN}"}, "/url"),
        ({"url": f"unknown://{TOKEN}"}, "/url"),
        ({"url": TOKEN}, "/url"),
        ({"url": f"slack://{TOKEN} x"}, "/url"),
        ({"url": f"slack://{TOKEN}", "kind": "webhook"}, "/url"),
        ({"url": f"https://hooks.example.com:22/{TOKEN}"}, "/url"),
        ({"url": "json://" + "x" * LONGEST_URL}, "/url"),
        ({"url": ""}, "/url"),
        ({"url": "json://x.example", "kind": "pigeon"}, "/kind"),
        ({}, "/url"),
    ],
)
def test_a_channel_that_can_not_be_is_refused_without_showing_its_url(
    person: Person, body: dict[str, Any], pointer: str
) -> None:
    answer = person.client.put("/alert-channels/bad", body)
    refused(answer, 400, "INVALID_REQUEST", pointer)
    assert TOKEN not in answer.body.decode()


@pytest.mark.parametrize("name", ["x" * 256, "a%00b"])
def test_a_name_has_bounds(person: Person, name: str) -> None:
    refused(person.client.put(f"/alert-channels/{name}", {"url": "json://x.example"}), 400, "INVALID_REQUEST", "/name")


def test_a_test_notice_reaches_a_webhook(person: Person, box: Inbox) -> None:
    person.client.put("/alert-channels/hook", {"url": box.url(f"/alerts?key={TOKEN}")})
    execution = ended(person, person.client.post("/alert-channels/hook/test"))
    assert (execution["state"], execution["http_status"]) == ("COMPLETED", 200)
    (request,) = box.received
    sent = json.loads(request.body)
    assert (sent["type"], sent["data"]["title"]) == ("alert.test", "Test of the alert channel 'hook'")
    assert request.headers["idempotency-key"] == execution["execution_id"]


def test_a_test_notice_reaches_a_service_by_apprise(person: Person, box: Inbox) -> None:
    person.client.put("/alert-channels/service", {"url": f"json://user:{TOKEN}@127.0.0.1:{box.port}/alerts"})
    execution = ended(person, person.client.post("/alert-channels/service/test"))
    assert (execution["state"], execution["http_status"]) == ("COMPLETED", 200)
    (request,) = box.received
    assert json.loads(request.body)["title"] == "Test of the alert channel 'service'"
    assert request.headers["authorization"] == f"Basic {b64encode(f'user:{TOKEN}'.encode()).decode()}"


def test_a_channel_that_fails_shows_why_and_nothing_of_its_url(person: Person) -> None:
    person.client.put("/alert-channels/failing", {"url": person.receiver.url("/status/404")})
    execution = ended(person, person.client.post("/alert-channels/failing/test"))
    assert (execution["state"], execution["error_type"]) == ("FAILED", "http_error")
    assert execution["error_message"] == "127.0.0.1 answered 404."
    detail = person.client.get(f"/executions/{execution['execution_id']}")
    assert "/status/404" not in detail.body.decode()
    assert detail.json()["attempts"][0]["response"] is None


def test_a_channel_that_is_not_there_can_not_be_tested(person: Person) -> None:
    message = refused(person.client.post("/alert-channels/nobody/test"), 404, "NOT_FOUND")
    assert "duetime alert channel list" in message


def test_a_notice_is_shown_as_a_job_of_its_own_type(person: Person, box: Inbox) -> None:
    person.client.put("/alert-channels/shown", {"url": box.url()})
    tested = person.client.post("/alert-channels/shown/test")
    ended(person, tested)
    job = person.job(tested.json()["job_id"])
    assert (job["type"], job["payload"]["channels"], job["payload"]["status"]) == ("notice", ["shown"], "test")
    listed = person.client.get("/jobs?type=notice").json()["jobs"]
    assert job["job_id"] in [it["job_id"] for it in listed]


NOTICE = {"type": "notice", "name": "n", "schedule": FAR, "payload": {"channels": ["ops"], "title": "t"}}
ONLY_DUETIME = "notices of alerts are jobs that only Duetime itself creates and changes"


def test_users_can_not_create_notices(person: Person) -> None:
    for answer in (person.client.post("/jobs", NOTICE), person.client.put("/jobs/by-key/n", NOTICE)):
        assert ONLY_DUETIME in refused(answer, 400, "INVALID_REQUEST", "/type")
    batch = person.client.request("POST", "/jobs:batch", [NOTICE, {**NOTICE, "payload": {"url": "http_request"}}])
    assert (batch.json()["created"], batch.json()["refused_count"]) == ([], 2)
    assert ONLY_DUETIME in batch.json()["refused"][0]["message"]
    lines = b"\n".join(json.dumps(NOTICE).encode() for _ in range(3))
    batch = person.client.post("/jobs:batch", lines, content_type="application/x-ndjson")
    assert (batch.json()["created"], batch.json()["refused_count"]) == ([], 3)
    assert ONLY_DUETIME in batch.json()["refused"][0]["message"]


def test_users_can_not_change_notices_or_make_jobs_into_them(person: Person, box: Inbox) -> None:
    person.client.put("/alert-channels/kept", {"url": box.url()})
    job_id = person.client.post("/alert-channels/kept/test").json()["job_id"]
    changes: list[dict[str, Any]] = [{"name": "x"}, {"payload": {"title": "x"}}, {"type": "notice"}]
    for change in changes:
        assert ONLY_DUETIME in refused(person.client.patch(f"/jobs/{job_id}", change), 400, "INVALID_REQUEST", "/type")
    other = person.create()
    refused(person.client.patch(f"/jobs/{other}", NOTICE), 400, "INVALID_REQUEST", "/type")


def test_the_audit_has_who_changed_a_channel_and_not_its_url(person: Person, box: Inbox) -> None:
    person.client.put("/alert-channels/audited", {"url": box.url(f"/{TOKEN}")})
    person.client.post("/alert-channels/audited/test")
    person.client.delete("/alert-channels/audited")
    entries = person.client.get("/audit?resource=audited").json()["entries"]
    assert [it["action"] for it in entries] == ["alert_channel.remove", "alert_channel.test", "alert_channel.put"]
    assert entries[-1]["after"] == {"kind": "webhook", "shown": f"http://127.0.0.1:{box.port}/…"}
    assert TOKEN not in json.dumps(entries)


def test_a_channel_belongs_to_its_tenant_and_to_admins(people: People, box: Inbox) -> None:
    assert people.ada.put("/alert-channels/own", {"url": box.url("/acme")}).status == 200
    assert people.eve.put("/alert-channels/own", {"url": box.url("/evil")}).status == 200
    assert people.eve.get("/alert-channels").json()["channels"][0]["shown"] == f"http://127.0.0.1:{box.port}/…"
    tested = people.eve.post("/alert-channels/own/test")
    people.eve.wait_for(tested.json()["job_id"], "COMPLETED")
    assert [request.path for request in box.received] == ["/evil"]
    for client in (people.ann, people.bob):
        answers = [client.get("/alert-channels"), client.put("/alert-channels/own", {"url": box.url()}),
                   client.delete("/alert-channels/own"), client.post("/alert-channels/own/test")]  # fmt: skip
        assert [answer.status for answer in answers] == [403] * 4
    assert people.eve.delete("/alert-channels/own").status == 200
    still = [it["name"] for it in people.ada.get("/alert-channels").json()["channels"]]
    assert "own" in still


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operator allows no private targets, one channel a tenant, and one job."""
    settings = {"ALLOW_PRIVATE_TARGETS": "false", "TENANT_CHANNELS_LIMIT": "1", "QUEUE_JOB_LIMIT": "1"}
    server = Server(tmp_path_factory.mktemp("strict"), **settings).start()
    yield server
    server.close()


def test_a_webhook_at_a_private_address_is_refused_with_the_setting_that_allows_it(strict: Server) -> None:
    answer = strict.client.put("/alert-channels/inside", {"url": f"http://127.0.0.1:8080/{TOKEN}"})
    message = refused(answer, 400, "INVALID_REQUEST", "/url")
    assert "ALLOW_PRIVATE_TARGETS=127.0.0.1/32" in message
    assert TOKEN not in answer.body.decode()


def test_a_full_server_still_sends_notices_and_a_service_inside_is_not_reached(strict: Server, box: Inbox) -> None:
    client = strict.client
    job = {"name": "n", "schedule": FAR, "payload": {"url": "https://x.example"}}
    assert [client.post("/jobs", job).status for _ in range(2)] == [201, 507]
    assert client.put("/alert-channels/one", {"url": f"json://127.0.0.1:{box.port}/{TOKEN}"}).status == 200
    refused(client.put("/alert-channels/two", {"url": "json://x.example"}), 409, "CONFLICT")
    tested = client.post("/alert-channels/one/test")
    assert tested.status == 202
    job_id = tested.json()["job_id"]

    def failed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = client.get(f"/jobs/{job_id}/executions").json()["executions"]
        return [it for it in found if it["state"] == "FAILED"]

    (execution,) = wait_until(failed, 60, "the guard has refused it")
    assert execution["error_message"] == "127.0.0.1 is not a public address (loopback). Nothing was sent there."
    assert not box.received


def test_a_node_that_leaves_tells_the_operator_without_its_store(tmp_path: Path, box: Inbox) -> None:
    secret = f"{box.url('/operator')}?key={TOKEN}"
    urls = {"ALERT_URLS": f"{secret} json://127.0.0.1:{box.port}/service", "HEARTBEAT_URL": box.url(f"/beat/{TOKEN}")}
    server = Server(tmp_path, NODE_NAME="n1", LOG_LEVEL="debug", **urls).start()
    server.signal(signal.SIGTERM)
    assert server.wait(30) == 0
    sent = {request.path.partition("?")[0]: json.loads(request.body) for request in box.received if request.body}
    assert sent["/operator"]["data"]["title"] == "Duetime: the node n1 is leaving"
    assert sent["/service"]["title"] == "Duetime: the node n1 is leaving"
    assert TOKEN not in server.errors()
