"""Warnings in the response to a create: reasons why the job could not run as intended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from api.people import SETTINGS, People
from api.person import Person, refused
from cluster.processes import Receiver, Server

UNKNOWN = "01234567-0123-7123-8123-0123456789ab"


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with authentication whose jobs may call this machine, but no private network."""
    server = Server(tmp_path_factory.mktemp("careful"), **SETTINGS, ALLOW_PRIVATE_TARGETS="127.0.0.0/8").start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@pytest.fixture
def people(careful: Server, receiver: Receiver) -> People:
    return People(careful, receiver)


@pytest.fixture
def person(people: People, receiver: Receiver) -> Person:
    return Person(people.ada, receiver)


def warnings_of(person: Person, **fields: Any) -> list[str]:
    answer = person.client.post("/jobs", person.body(**fields))
    assert answer.status == 201, answer
    found: list[str] = answer.json()["warnings"]
    return found


def to(url: str, **fields: Any) -> dict[str, Any]:
    return {"payload": {"url": url}, **fields}


class TestTarget:
    def test_an_allowed_target_has_no_warning(self, person: Person) -> None:
        assert warnings_of(person) == []
        assert warnings_of(person, **to("https://example.com/")) == []

    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("http://10.0.0.7:8080/hook", "10.0.0.7"),
            ("http://169.254.169.254/latest", "169.254.169.254"),
            ("http://0xa000007/", "10.0.0.7"),
            ("http://[fd00::1]/", "fd00::1"),
        ],
    )
    def test_the_warning_for_a_blocked_target_names_the_setting_that_allows_it(
        self, person: Person, url: str, address: str
    ) -> None:
        (warning,) = warnings_of(person, **to(url))
        assert warning.startswith(f"payload.url can't be called: {address} is not a public address")
        assert f"ALLOW_PRIVATE_TARGETS={address}/{128 if ':' in address else 32}." in warning

    def test_the_warning_for_a_blocked_port_names_no_setting(self, person: Person) -> None:
        assert warnings_of(person, **to("http://example.com:22/")) == [
            "payload.url can't be called: Port 22 is not one that jobs may call."
        ]

    def test_the_urls_of_webhooks_are_checked(self, person: Person) -> None:
        (warning,) = warnings_of(person, webhooks={"on_failure": "http://192.168.1.1/told"})
        assert warning.startswith("webhooks.on_failure can't be called: 192.168.1.1 ")

    def test_put_by_key_and_why_show_the_warnings(self, person: Person) -> None:
        job = person.body(**to("http://10.0.0.7/"))
        answer = person.client.put(f"/jobs/by-key/{uuid.uuid4().hex}", job)
        (warning,) = answer.json()["warnings"]
        assert warning in person.client.get(f"/jobs/{answer.json()['job_id']}/why").json()["holds"]

    def test_a_repeat_of_a_create_gets_the_same_warnings(self, person: Person) -> None:
        job, key = person.body(**to("http://10.0.0.7/")), uuid.uuid4().hex
        first, second = [person.client.post("/jobs", job, idempotency_key=key).json() for _ in range(2)]
        assert first == second
        assert first["warnings"]


class TestAfter:
    def test_an_unknown_key_has_a_warning(self, person: Person) -> None:
        there, missing = uuid.uuid4().hex, uuid.uuid4().hex
        person.create(key=there)
        (warning,) = warnings_of(person, schedule="on_demand", after=[there, missing])
        assert f"there is no job with the key '{missing}' that you can see" in warning

    def test_a_job_can_be_named_by_its_id(self, person: Person) -> None:
        first = person.create("on_demand")
        answer = person.client.post("/jobs", person.body("on_demand", after=[first])).json()
        assert answer["warnings"] == []
        assert person.job(answer["job_id"])["after"] == [first]
        assert person.client.post(f"/jobs/{first}/run").status == 202
        (execution,) = person.wait_for_end(answer["job_id"])
        assert (execution["state"], execution["trigger"]) == ("COMPLETED", "after")

    def test_an_unknown_id_is_refused_alone_and_in_a_batch(self, person: Person) -> None:
        job = person.body("on_demand", after=[UNKNOWN])
        assert UNKNOWN in refused(person.client.post("/jobs", job), 400, "INVALID_REQUEST", "/after")
        answer = person.client.post("/jobs:batch", [job, person.body()]).json()
        assert answer["created_count"] == 1
        (line,) = answer["refused"]
        assert (line["index"], line["errors"][0]["pointer"]) == (0, "/after")

    def test_a_key_of_another_users_job_has_the_warning_of_an_unknown_key(self, people: People) -> None:
        key = uuid.uuid4().hex
        theirs = people.ann.create(key=key)
        job = {"name": "x", "schedule": "on_demand", "payload": {"url": "https://example.com/"}, "after": [key]}
        (warning,) = people.bob.post("/jobs", job).json()["warnings"]
        assert f"there is no job with the key '{key}' that you can see" in warning
        assert people.ada.post("/jobs", job).json()["warnings"] == []
        assert theirs

    def test_the_id_of_another_users_job_is_refused_like_an_unknown_id(self, people: People) -> None:
        theirs, own = people.ann.create(), people.bob.create()
        job = {"name": "x", "schedule": "on_demand", "payload": {"url": "https://example.com/"}}

        def warnings_shown(answer: Any) -> str:
            return refused(answer, 400, "INVALID_REQUEST", "/after").replace(theirs, UNKNOWN)

        missing = warnings_shown(people.bob.post("/jobs", {**job, "after": [UNKNOWN]}))
        named = {**job, "after": [theirs]}
        assert warnings_shown(people.bob.post("/jobs", named)) == missing
        assert warnings_shown(people.bob.post("/jobs", named, idempotency_key=uuid.uuid4().hex)) == missing
        assert warnings_shown(people.bob.put(f"/jobs/by-key/{uuid.uuid4().hex}", named)) == missing
        mine = people.bob.post("/jobs", {**job, "after": [own]}).json()["job_id"]
        assert warnings_shown(people.bob.patch(f"/jobs/{mine}", {"after": [own, theirs]})) == missing
        answer = people.bob.post("/jobs:batch", [named, {**job, "after": [own]}]).json()
        assert (answer["created_count"], [line["index"] for line in answer["refused"]]) == (1, [0])
        assert people.ada.patch(f"/jobs/{mine}", {"after": [own, theirs]}).status == 200, "an admin sees both"
        assert people.bob.patch(f"/jobs/{mine}", {"name": "y"}).status == 200, "what is so already stays"


def test_a_subscription_with_a_blocked_url_has_a_warning(people: People) -> None:
    made = people.ada.post("/subscriptions", {"url": "http://10.0.0.7/hook"}).json()
    (warning,) = made["warnings"]
    assert warning.startswith("url can't be called: 10.0.0.7 is not a public address")
    assert people.ada.get("/subscriptions").json()["subscriptions"] == [made]
    assert people.ada.post("/subscriptions", {"url": "https://example.com/"}).json()["warnings"] == []
