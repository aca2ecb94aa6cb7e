"""A change of a job's target does not send its stored secrets there: they must be sent again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from api.people import Known, People
from cluster.processes import Answer, wait_until
from security.inbox import Inbox, inbox
from security.nodes import STORES, nodes

SECRET = "the-victims-token"
HEADERS = {"Authorization": f"Bearer {SECRET}", "X-Plain": SECRET}


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def people(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    with nodes(request.param, tmp_path_factory.mktemp("redirected")) as started:
        yield People(started[0])


@pytest.fixture
def own() -> Iterator[Inbox]:
    with inbox() as box:
        yield box


@pytest.fixture
def attackers() -> Iterator[Inbox]:
    with inbox() as box:
        yield box


def kept(box: Inbox) -> dict[str, Any]:
    """A payload with secrets of each kind."""
    body = {"amount": 1, "card": {"number": SECRET}}
    return {"url": box.url("/own"), "headers": HEADERS, "body": body, "secret": ["/body/card/number"]}


def register(people: People, **places: str) -> None:
    for name, place in places.items():
        answer = people.ada.put(f"/connections/{name}", {"url": f"postgresql://me:password@{place}"})
        assert answer.status == 200, answer


def pointers(answer: Answer) -> list[str]:
    assert answer.status == 400, answer
    return sorted(error["pointer"] for error in answer.json()["errors"])


def ran(client: Known, job_id: str, box: Inbox, path: str) -> Any:
    before = len(box.at(path))
    assert client.post(f"/jobs/{job_id}/run").status == 202
    wait_until(lambda: len(box.at(path)) > before, 15, f"the job has called {path}")
    return box.at(path)[-1]


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_a_change_of_the_origin_keeps_no_secret(people: People, own: Inbox, attackers: Inbox, method: str) -> None:
    job_id = people.ann.create(payload=kept(own))
    thief = people.with_key(people.make_key(people.ada, user_id="ann", scopes=["read", "write", "run"])["key"])
    answer = thief.request(method, f"/jobs/{job_id}", {"payload": {"url": attackers.url("/own")}})
    if answer.status == 200:
        ran(thief, job_id, attackers, "/own")
    assert SECRET not in str(attackers.received)
    assert pointers(answer) == [
        "/payload/body/card/number",
        "/payload/headers/Authorization",
        "/payload/headers/X-Plain",
    ]
    assert "Authorization" in answer.json()["message"]
    assert SECRET not in answer.body.decode()
    received = ran(people.ann, job_id, own, "/own")
    assert received.headers["authorization"] == HEADERS["Authorization"]
    assert not attackers.received


def test_a_put_by_key_keeps_no_secret_that_is_not_sent(people: People, own: Inbox, attackers: Inbox) -> None:
    key = f"job-{uuid.uuid4()}"
    job_id = people.ann.create(payload=kept(own), key=key)
    spec = {"name": "a job", "schedule": "2099-01-01T00:00:00Z", "payload": {"url": attackers.url("/own")}}
    assert people.ann.put(f"/jobs/by-key/{key}", spec).status == 200
    ran(people.ann, job_id, attackers, "/own")
    assert SECRET not in str(attackers.received)
    hidden = people.ann.get(f"/jobs/{job_id}").json()["payload"].get("headers", {})
    assert hidden == {}


def test_the_origin_can_change_if_secrets_are_sent_again_or_removed(
    people: People, own: Inbox, attackers: Inbox
) -> None:
    job_id = people.ann.create(payload=kept(own))
    payload = {
        "url": attackers.url("/moved"),
        "headers": {"Authorization": "Bearer another", "X-Plain": None},
        "body": {"card": {"number": "4242"}},
    }
    moved = people.ann.request("PATCH", f"/jobs/{job_id}", {"payload": payload})
    assert moved.status == 200, moved
    received = ran(people.ann, job_id, attackers, "/moved")
    assert received.headers["authorization"] == "Bearer another"
    assert "x-plain" not in received.headers
    assert received.body == b'{"amount":1,"card":{"number":"4242"}}'


def test_on_the_same_origin_secrets_stay_as_they_are(people: People, own: Inbox) -> None:
    job_id = people.ann.create(payload=kept(own))
    change = {"payload": {"url": own.url("/other?page=2").replace("http://", "HTTP://"), "method": "PUT"}}
    assert people.ann.request("PATCH", f"/jobs/{job_id}", {**change, "name": "moved"}).status == 200
    change["payload"]["method"] = "POST"
    assert people.ann.request("PATCH", f"/jobs/{job_id}", change).status == 200
    assert ran(people.ann, job_id, own, "/other?page=2").headers["x-plain"] == SECRET


def test_another_port_host_or_scheme_is_another_origin(people: People, own: Inbox) -> None:
    job_id = people.ann.create(payload={"url": own.url("/own"), "headers": {"X-Plain": SECRET}})
    for url in (
        f"http://127.0.0.1:{own.port - 1}/own",
        f"http://localhost:{own.port}/own",
        "https" + own.url("/own")[4:],
    ):
        assert pointers(people.ann.request("PATCH", f"/jobs/{job_id}", {"payload": {"url": url}})) == [
            "/payload/headers/X-Plain"
        ]


@pytest.mark.parametrize(
    ("kind", "payload", "change", "pointer"),
    [
        (
            "script",
            {"script": "curl", "env": {"TOKEN": SECRET}},
            {"script": "printenv TOKEN | rev"},
            "/payload/env/TOKEN",
        ),
        ("script", {"argv": ["true"], "env": {"TOKEN": SECRET}}, {"argv": ["printenv"]}, "/payload/env/TOKEN"),
        ("script", {"script": "x", "env": {"TOKEN": SECRET}}, {"interpreter": "/bin/dash"}, "/payload/env/TOKEN"),
        ("script", {"argv": ["run"], "env": {"TOKEN": SECRET}}, {"cwd": "/tmp"}, "/payload/env/TOKEN"),
        (
            "sql_query",
            {"connection": "ours", "statement": "SELECT $1", "parameters": [SECRET], "secret": ["/parameters/0"]},
            {"connection": "theirs"},
            "/payload/parameters/0",
        ),
        (
            "sql_query",
            {"connection": "ours", "statement": "SELECT $1", "parameters": [SECRET], "secret": ["/parameters/0"]},
            {"statement": "INSERT INTO everybodys VALUES ($1)"},
            "/payload/parameters/0",
        ),
        (
            "python",
            {"function": "charge", "kwargs": {"card": SECRET}, "secret": ["/kwargs/card"]},
            {"function": "echo"},
            "/payload/kwargs/card",
        ),
    ],
)
def test_another_program_statement_or_function_gets_no_earlier_secret(
    people: People, kind: str, payload: dict[str, Any], change: dict[str, Any], pointer: str
) -> None:
    register(people, ours="127.0.0.1:1/app", theirs="127.0.0.1:1/app")
    job_id = people.ada.create(type=kind, payload=payload)
    before = people.ada.get(f"/jobs/{job_id}").json()
    assert pointers(people.ada.request("PATCH", f"/jobs/{job_id}", {"payload": change})) == [pointer]
    assert people.ada.get(f"/jobs/{job_id}").json() == before
    assert people.ada.request("PATCH", f"/jobs/{job_id}", {"description": "as it was"}).status == 200


PARAMETER = {"connection": "own", "statement": "SELECT $1", "parameters": [SECRET], "secret": ["/parameters/0"]}
ELSEWHERE = ["localhost:1/app", "127.0.0.1:2/app", "127.0.0.1:1/other"]


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_connection_with_another_target_keeps_no_secret(people: People, elsewhere: str, is_removed: bool) -> None:
    """By its name alone, it would be the same function."""
    register(people, own="127.0.0.1:1/app")
    job_id = people.ada.create(type="sql_query", payload=PARAMETER, retry_policy={"max_retries": 0})
    if is_removed:
        assert people.ada.delete("/connections/own").status == 200
    register(people, own=elsewhere)
    ended = finished(people, job_id)
    assert (ended["error_type"], "Send them again" in ended["error_message"]) == ("blocked_target", True), ended
    # A change that does not name the connection does not make it valid, nor does one that names it.
    for change in ({"description": "x"}, {"payload": {"bound_to": elsewhere}}):
        assert pointers(people.ada.request("PATCH", f"/jobs/{job_id}", change)) == ["/payload/parameters/0"]
    anew = people.ada.request("PATCH", f"/jobs/{job_id}", {"payload": {"parameters": ["another"]}})
    assert anew.status == 200, anew
    assert "Send them again" not in finished(people, job_id)["error_message"]


def test_another_password_user_or_sslmode_keeps_the_secrets(people: People) -> None:
    register(people, own="127.0.0.1:1/app")
    job_id = people.ada.create(type="sql_query", payload=PARAMETER, retry_policy={"max_retries": 0})
    for url in ("postgresql://other:changed@127.0.0.1:1/app", "postgresql://me@127.0.0.1:1/app?sslmode=disable"):
        assert people.ada.put("/connections/own", {"url": url}).status == 200
        assert "Send them again" not in finished(people, job_id)["error_message"]
        assert people.ada.request("PATCH", f"/jobs/{job_id}", {"description": url}).status == 200


def test_secret_parameters_need_a_connection_that_is_registered(people: People) -> None:
    payload = {**PARAMETER, "connection": f"none-{uuid.uuid4()}"}
    job = {"name": "a job", "type": "sql_query", "schedule": "on_demand", "payload": payload}
    for answer in (people.ada.post("/jobs", job), people.ada.put(f"/jobs/by-key/{uuid.uuid4()}", job)):
        assert pointers(answer) == ["/payload/connection"]
    refused = people.ada.post("/jobs:batch", [job]).json()["refused"]
    assert [error["pointer"] for error in refused[0]["errors"]] == ["/payload/connection"]
    register(people, own="127.0.0.1:1/app")
    made = people.ada.post("/jobs", {**job, "payload": {**PARAMETER, "secret": []}})
    assert made.status == 201, made
    assert people.ada.request("DELETE", "/connections/own").status == 200
    marked = {"payload": {"parameters": PARAMETER["parameters"], "secret": PARAMETER["secret"]}}
    answer = people.ada.request("PATCH", f"/jobs/{made.json()['job_id']}", marked)
    assert pointers(answer) == ["/payload/connection"], "there is nothing that they could be bound to"


def test_jobs_of_a_batch_are_bound_like_others(people: People) -> None:
    register(people, own="127.0.0.1:1/app")
    job = {"name": "a job", "type": "sql_query", "schedule": "on_demand", "payload": PARAMETER}
    (job_id,) = people.ada.post("/jobs:batch", [job]).json()["created"]
    register(people, own="127.0.0.1:1/other")
    assert finished(people, job_id)["error_type"] == "blocked_target"


def finished(people: People, job_id: str) -> dict[str, Any]:
    """Returns the execution that the block starts, when it has ended."""
    execution_id = people.ada.post(f"/jobs/{job_id}/run").json()["execution_id"]

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = people.ada.get(f"/executions/{execution_id}").json()["execution"]
        return found if found["state"] in ("FAILED", "COMPLETED", "TIMEOUT") else None

    return wait_until(over, 15, f"the execution {execution_id} has ended")
