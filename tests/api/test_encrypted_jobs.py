"""Secrets of a job from end to end: the target gets them; responses, logs, audit and files never have them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from api.person import Person, refused
from cluster.processes import Server

TOKEN, PIN = "s3cret-of-ann-0815", "pin-of-ann-4711"
HIDDEN = "********"


class Echo(BaseHTTPRequestHandler):
    """Responds with everything that it received, and fails."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        deliveries = {"authorization": self.headers["authorization"], "body": body.decode()}
        self.server.deliveries.append(deliveries)  # type: ignore[attr-defined]
        answer = json.dumps(deliveries).encode()
        self.send_response(400)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def echo() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yields the URL, and the requests that it received."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.deliveries = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", server.deliveries  # type: ignore[attr-defined]
        server.shutdown()


def payload(url: str, **fields: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return {"url": url, "headers": headers, "body": {"pin": PIN, "n": 1}, "secret": ["/body/pin"], **fields}


def test_only_the_target_receives_the_secrets(
    person: Person, server: Server, echo: tuple[str, list[dict[str, str]]]
) -> None:
    url, deliveries = echo
    job_id = person.create("immediate", payload=payload(url), retry_policy={"max_retries": 0})
    (execution,) = person.wait_for_end(job_id)
    (request,) = deliveries
    assert request["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(request["body"]) == {"pin": PIN, "n": 1}
    shown = person.job(job_id)["payload"]
    assert shown["headers"] == {"Authorization": HIDDEN}
    assert (shown["body"], shown["secret"]) == ({"pin": HIDDEN, "n": 1}, ["/body/pin"])
    answers = [
        person.client.get(path)
        for path in (
            f"/jobs/{job_id}", f"/jobs/{job_id}/executions", f"/executions/{execution['execution_id']}",
            f"/executions/{execution['execution_id']}/logs", f"/audit?resource={job_id}", "/jobs", "/dead-letters",
        )
    ]  # fmt: skip
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert HIDDEN.encode() in answers[2].body  # the echo, without the secrets
    files = [file.read_bytes() for file in server.folder.rglob("*") if file.is_file()]  # the database and the logs
    for text in (*(answer.body for answer in answers), *files):
        assert TOKEN.encode() not in text
        assert PIN.encode() not in text
    assert any(b"encrypted:1:" in file for file in files)
    assert not any(b"encrypted:" in answer.body for answer in answers)


def test_a_change_keeps_secrets_that_it_does_not_name(person: Person, echo: tuple[str, list[dict[str, str]]]) -> None:
    url, deliveries = echo
    job_id = person.create(payload=payload(url), retry_policy={"max_retries": 0})
    assert person.client.patch(f"/jobs/{job_id}", {"payload": {"body": {"n": 2}}}).status == 200
    assert person.client.patch(f"/jobs/{job_id}", {"payload": {"headers": {"X-Other": "more"}}}).status == 200
    assert person.client.post(f"/jobs/{job_id}/run").status == 202
    person.wait_for_end(job_id)
    assert [request["authorization"] for request in deliveries] == [f"Bearer {TOKEN}"]
    assert json.loads(deliveries[0]["body"]) == {"pin": PIN, "n": 2}


def test_a_redacted_value_cannot_be_stored_as_a_secret(person: Person) -> None:
    job_id = person.create(payload=payload(person.receiver.url()))
    shown = person.job(job_id)["payload"]
    answer = person.client.patch(f"/jobs/{job_id}", {"payload": {"body": shown["body"]}})
    refused(answer, 400, "INVALID_REQUEST", "/payload/body/pin")
    answer = person.client.patch(f"/jobs/{job_id}", {"payload": {"headers": shown["headers"]}})
    refused(answer, 400, "INVALID_REQUEST", "/payload/headers/Authorization")
    answer = person.client.patch(f"/jobs/{job_id}", {"payload": {"secret": None}})
    refused(answer, 400, "INVALID_REQUEST", "/payload/body/pin")


def test_an_encryption_mark_in_the_wrong_place_and_a_forged_one_are_refused(person: Person) -> None:
    url = person.receiver.url()
    for fields, pointer in (
        ({"secret": ["/body/nothing"]}, "/payload/secret/0"),
        ({"headers": {"X-A": "encrypted:1:k1:AAAA"}}, "/payload/headers/X-A"),
        ({"secret": ["/body"] * 21}, "/payload/secret"),
    ):
        message = refused(
            person.client.post("/jobs", person.body(payload=payload(url, **fields))), 400, "INVALID_REQUEST", pointer
        )
        assert TOKEN not in message
        assert PIN not in message
