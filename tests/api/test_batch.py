"""POST /jobs:batch creates many jobs at once. A bad line does not affect the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.person import Person, refused
from cluster.processes import Answer, wait_until
from patience import PATIENCE_SECONDS

NDJSON = "application/x-ndjson"


def lines(*items: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


def send(person: Person, *items: Any) -> Answer:
    return person.client.post("/jobs:batch", lines(*items), content_type=NDJSON)


class TestBothForms:
    def test_an_array_gets_ids_in_order(self, person: Person) -> None:
        bodies = [person.body(name=f"{person.name} {number}") for number in range(5)]
        answer = person.client.post("/jobs:batch", bodies)
        assert answer.status == 200
        made = answer.json()
        assert (made["created_count"], made["refused_count"], made["refused"]) == (5, 0, [])
        assert [person.job(job_id)["name"] for job_id in made["created"]] == [body["name"] for body in bodies]

    def test_lines_get_ids_in_order(self, person: Person) -> None:
        bodies = [person.body(name=f"{person.name} {number}") for number in range(5)]
        made = send(person, *bodies).json()
        assert [person.job(job_id)["name"] for job_id in made["created"]] == [body["name"] for body in bodies]

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n \n"])
    def test_blank_lines_and_a_missing_last_line_end_are_accepted(self, person: Person, end: bytes) -> None:
        one = json.dumps(person.body()).encode()
        answer = person.client.post("/jobs:batch", one + b"\r\n\n" + one + end, content_type=NDJSON)
        assert answer.json()["created_count"] == 2

    def test_an_empty_batch_creates_nothing(self, person: Person) -> None:
        assert person.client.post("/jobs:batch", []).json()["created_count"] == 0
        assert send(person).json()["created_count"] == 0

    def test_the_created_jobs_run(self, person: Person) -> None:
        (job_id,) = send(person, person.body("immediate")).json()["created"]
        assert [row["state"] for row in person.wait_for_end(job_id)] == ["COMPLETED"]

    def test_an_interval_starts_at_the_creation_that_is_shown(self, person: Person) -> None:
        """A job that is planned as its batch is read has the same first instant as one planned from the stored job."""
        bodies = [person.body("every 1h") for _ in range(2500)]
        created = send(person, *bodies).json()["created"]
        for job_id in (created[0], created[999], created[1000], created[-1]):
            job = person.job(job_id)
            assert job["next_run_time"][14:] == job["created_at"][14:]


class TestRefusals:
    def test_the_error_for_a_bad_line_has_its_index(self, person: Person) -> None:
        good = person.body()
        made = send(
            person, good, b"{", {**good, "schedul": 1}, good, {**good, "schedule": "* * 30 2 *"}, b"\xff", b"[]", good
        ).json()
        assert (made["created_count"], made["refused_count"]) == (3, 5)
        assert [item["index"] for item in made["refused"]] == [1, 2, 4, 5, 6]
        assert made["refused"][1]["errors"] == [
            {"pointer": "/schedul", "message": "unknown field; did you mean 'schedule'?"}
        ]
        assert made["refused"][2]["error"] == "INVALID_SCHEDULE"

    def test_two_jobs_on_one_line_are_one_bad_line(self, person: Person) -> None:
        one = json.dumps(person.body()).encode()
        made = send(person, one + b" " + one, one + b"," + one, one).json()
        assert (made["created_count"], [item["index"] for item in made["refused"]]) == (1, [0, 1])

    def test_only_the_lines_with_a_duplicate_key_are_refused(self, person: Person) -> None:
        key = person.name
        person.create(key=f"{key} taken")
        bodies = [
            person.body(key=f"{key} 1"), person.body(), person.body(key=f"{key} 1"), person.body(key=f"{key} taken"),
            person.body(key=f"{key} 2"),
        ]  # fmt: skip
        made = person.client.post("/jobs:batch", bodies).json()
        assert made["created_count"] == 3
        assert [(item["index"], item["error"]) for item in made["refused"]] == [(2, "CONFLICT"), (3, "CONFLICT")]

    def test_a_duplicate_at_the_end_of_a_page_is_not_slower_than_at_its_beginning(self, person: Person) -> None:
        bodies = [person.body(key=f"{person.name} {number}") for number in range(999)] + [
            person.body(key=f"{person.name} 0")
        ]
        made = person.client.post("/jobs:batch", bodies).json()
        assert (made["created_count"], [item["index"] for item in made["refused"]]) == (999, [999])

    @pytest.mark.parametrize("body", [b"", b"{}", b"1", b"null", b"[", b"[1,]", b"\xff", b"[" * 100_000])
    def test_a_body_that_is_not_an_array_is_refused(self, person: Person, body: bytes) -> None:
        message = refused(person.client.post("/jobs:batch", body), 400, "INVALID_REQUEST")
        assert "application/x-ndjson" in message

    def test_only_the_job_of_more_than_a_megabyte_is_refused(self, person: Person) -> None:
        giant = person.body(description="x" * 1_100_000)
        made = person.client.post("/jobs:batch", [person.body(), giant]).json()
        assert [(item["index"], item["error"]) for item in made["refused"]] == [(1, "PAYLOAD_TOO_LARGE")]

    def test_a_line_without_end_is_refused(self, person: Person) -> None:
        made = person.client.post("/jobs:batch", b"x" * 3_000_000, content_type=NDJSON).json()
        assert [(item["index"], item["error"]) for item in made["refused"]] == [(0, "PAYLOAD_TOO_LARGE")]

    def test_only_the_line_of_more_than_a_megabyte_is_refused(self, person: Person) -> None:
        giant = person.body(description="x" * 3_000_000)
        bodies = [person.body(name=f"{person.name} {number}") for number in range(3)]
        made = send(person, bodies[0], giant, bodies[1], giant, giant, bodies[2]).json()
        assert [(item["index"], item["error"]) for item in made["refused"]] == [
            (index, "PAYLOAD_TOO_LARGE") for index in (1, 3, 4)
        ]
        assert [person.job(job_id)["name"] for job_id in made["created"]] == [body["name"] for body in bodies]

    def test_more_than_100_000_in_an_array_create_none(self, person: Person) -> None:
        one = json.dumps(person.body()).encode()
        answer = person.client.post("/jobs:batch", b"[" + one + b",{}" * 100_000 + b"]")
        assert "100000" in refused(answer, 413, "PAYLOAD_TOO_LARGE")
        assert person.client.get(f"/jobs?name={person.name.replace(' ', '%20')}").json()["total"] == 0

    @pytest.mark.slow
    def test_lines_after_the_first_100_000_are_refused(self, person: Person) -> None:
        content = lines(person.body(), *[{"name": "x"}] * 99_999, person.body(), person.body())
        made = person.client.post("/jobs:batch", content, content_type=NDJSON).json()
        assert [person.job(job_id)["name"] for job_id in made["created"]] == [person.name]
        last = made["refused"][-1]
        assert (last["index"], last["error"]) == (100_000, "PAYLOAD_TOO_LARGE")
        assert "send them again" in last["message"]
        assert (made["refused_count"], len(made["refused"]), len(made["also_refused"]["INVALID_REQUEST"])) == (
            100_000, 1001, 98_999
        )  # fmt: skip


def test_lines_are_stored_as_they_arrive(person: Person) -> None:
    """The first page is stored while the client is still sending."""
    import http.client

    one = json.dumps(person.body()).encode() + b"\n"
    connection = http.client.HTTPConnection("127.0.0.1", person.client.port, timeout=PATIENCE_SECONDS)
    connection.putrequest("POST", "/api/v1/jobs:batch")
    connection.putheader("Content-Type", NDJSON)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()

    def chunk(data: bytes) -> None:
        connection.send(b"%x\r\n%b\r\n" % (len(data), data))

    chunk(one * 1500)
    listed = f"/jobs?name={person.name.replace(' ', '%20')}&limit=1"
    wait_until(lambda: person.client.get(listed).json()["total"] >= 1000, 10, "the first page is stored")
    chunk(one * 10)
    connection.send(b"0\r\n\r\n")
    assert json.loads(connection.getresponse().read())["created_count"] == 1510
    connection.close()
