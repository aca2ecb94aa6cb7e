"""Jobs that run after others, and webhooks about the end of an execution, over the API."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from api.people import People
from api.person import Person, refused
from cluster.processes import Answer, wait_until


@pytest.fixture
def keys() -> list[str]:
    """Returns job keys that no other test uses."""
    return [f"{letter}-{uuid.uuid4().hex[:8]}" for letter in "abc"]


def way_of(answer: Answer) -> str:
    return refused(answer, 400, "INVALID_REQUEST", "/after").split("itself: ")[1].split(";")[0]


def test_a_chain_runs_and_why_shows_its_state(person: Person, keys: list[str]) -> None:
    a, b, _ = keys
    first, then = person.create("on_demand", key=a), person.create("on_demand", after=[a, b])
    job = person.job(then)
    assert (job["status"], job["next_run_time"], job["after"], job["on"]) == ("PENDING", None, [a, b], "success")
    why = person.client.get(f"/jobs/{then}/why").json()
    assert why["summary"] == f"It will run when '{a}', '{b}' have ended (on: success)."
    assert why["holds"] == [
        f"waits for '{a}' to succeed",
        f"waits for '{b}' to succeed; there is no job with this key that you can see",
    ]
    assert person.client.get(f"/jobs/{then}/next").json()["next"] == []
    second = person.create("on_demand", key=b)
    assert person.client.post(f"/jobs/{first}/run").status == 202
    person.wait_for_end(first)
    assert person.client.get(f"/jobs/{then}/why").json()["holds"] == [f"waits for '{b}' to succeed"]
    assert person.client.post(f"/jobs/{second}/run").status == 202
    (execution,) = person.wait_for_end(then)
    assert (execution["state"], execution["trigger"]) == ("COMPLETED", "after")
    assert person.job(then)["status"] == "PENDING"


def test_a_loop_is_refused_when_it_is_created(person: Person, keys: list[str]) -> None:
    a, b, c = keys
    person.create("on_demand", key=a, after=[c])
    person.create("on_demand", key=b, after=[a])
    assert way_of(person.client.post("/jobs", person.body("on_demand", key=c, after=[b]))) == f"{c} → {a} → {b} → {c}"
    answer = person.client.put(f"/jobs/by-key/{c}", person.body("on_demand", after=[b]))
    assert way_of(answer) == f"{c} → {a} → {b} → {c}"
    own = person.client.post("/jobs", person.body("on_demand", key=c, after=[c]))
    assert "its own end" in refused(own, 400, "INVALID_REQUEST", "/after")


def test_a_loop_is_refused_when_a_job_is_changed(person: Person, keys: list[str]) -> None:
    a, b, _ = keys
    first = person.create("on_demand", key=a)
    person.create("on_demand", key=b, after=[a])
    assert way_of(person.client.patch(f"/jobs/{first}", {"after": [b]})) == f"{a} → {b} → {a}"
    assert person.job(first)["after"] == []
    assert person.job(first)["version"] == 1


def test_a_loop_in_a_batch_does_not_affect_other_lines(person: Person, keys: list[str]) -> None:
    a, b, c = keys
    jobs = [person.body("on_demand", key=key, after=[other]) for key, other in ((a, b), (b, a), (c, b))]
    answer = person.client.post("/jobs:batch", jobs).json()
    assert answer["created_count"] == 2
    (line,) = answer["refused"]
    assert (line["index"], line["errors"][0]["pointer"]) == (1, "/after")
    assert f"{b} → {a} → {b}" in line["message"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"schedule": "every 1m", "after": ["x"]}, "/schedule"),
        ({"schedule": "on_demand", "end_at": "2099-01-01T00:00:00Z"}, "/end_at"),
        ({"schedule": "on_demand", "jitter_seconds": 3}, "/jitter_seconds"),
        ({"schedule": "on_demand", "after": ["x"], "on": "sucess"}, "/on"),
        ({"schedule": "on_demand", "after": [""]}, "/after/0"),
        ({"webhooks": {"on_failure": "nowhere"}}, "/webhooks/on_failure"),
        ({"webhooks": {"on_error": "https://x.example"}}, "/webhooks/on_error"),
    ],
)
def test_an_invalid_chain_is_refused(person: Person, fields: dict[str, Any], pointer: str) -> None:
    refused(person.client.post("/jobs", {**person.body(), **fields}), 400, "INVALID_REQUEST", pointer)


def test_keys_of_another_tenant_are_not_found(people_anywhere: People, keys: list[str]) -> None:
    ada, eve = people_anywhere.ada, people_anywhere.eve
    a, b, _ = keys
    theirs = ada.create("on_demand", people_anywhere.receiver.url("/ok"), key=a)
    ours = eve.create("on_demand", people_anywhere.receiver.url("/ok"), key=b, after=[a])
    assert ada.post(f"/jobs/{theirs}/run").status == 202
    ada.wait_for(theirs, "COMPLETED")
    (hold,) = eve.get(f"/jobs/{ours}/why").json()["holds"]
    assert hold == f"waits for '{a}' to succeed; there is no job with this key that you can see"
    assert eve.executions(ours) == []
    ada.create("on_demand", key=b, after=[a])
    assert ada.patch(f"/jobs/{theirs}", {"description": "no loop"}).status == 200


def test_jobs_without_a_next_run_come_last_in_either_order(person: Person) -> None:
    asked, later = person.create("on_demand"), person.create()
    done = person.create("immediate")
    person.wait_for_end(done)
    for order in ("asc", "desc"):
        page = f"/jobs?sort=next_run_time&order={order}&name={person.name.replace(' ', '%20')}"
        found = [job["job_id"] for job in person.client.get(page).json()["jobs"]]
        assert found[0] == later
        assert set(found[1:]) == {asked, done}
        first = person.client.get(f"{page}&limit=2").json()
        second = person.client.get(f"{page}&limit=2&cursor={first['next_cursor']}").json()
        assert [job["job_id"] for job in first["jobs"] + second["jobs"]] == found


def test_a_webhook_reports_the_failure_of_a_job(person: Person) -> None:
    name = f"report {person.name}"
    job_id = person.create(
        "immediate", "/status/404", name=name, webhooks={"on_failure": person.receiver.url("/told")}
    )  # fmt: skip
    (execution,) = person.wait_for_end(job_id)
    tag = "duetime.event=execution.failed"

    def words() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = person.client.get(f"/jobs?tag={tag}&limit=100").json()["jobs"]
        return [job for job in found if job["name"] == f"on_failure of {name}"]

    (word,) = wait_until(words, 10, "word of the failure is sent")
    assert [row["state"] for row in person.wait_for_end(word["job_id"])] == ["COMPLETED"]
    assert word["created_by"] == "local"
    body = word["payload"]["body"]
    assert (body["type"], body["data"]["execution_id"]) == ("execution.failed", execution["execution_id"])
    assert (body["data"]["state"], body["data"]["http_status"]) == ("FAILED", 404)


def test_a_preview_of_a_chained_job_has_no_instants(person: Person) -> None:
    seen = person.client.post("/schedules/preview", {"schedule": "on_demand"}).json()
    assert (seen["description"], seen["next"]) == ("on demand only", [])
    assert "no times of its own" in seen["warnings"][0]
