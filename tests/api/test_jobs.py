"""Creating, reading and changing jobs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from api.person import FAR, Person, refused
from cluster.processes import Client, wait_until

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
NOBODY = "0198c0de-1234-7abc-8def-0123456789ab"


class TestCreate:
    def test_responds_201_with_the_created_job(self, client: Client, body: dict[str, Any]) -> None:
        answer = client.post("/jobs", body)
        assert answer.status == 201
        assert answer.headers["content-type"] == "application/json"
        made = answer.json()
        assert UUID7.fullmatch(made.pop("job_id"))
        assert INSTANT.fullmatch(made.pop("created_at"))
        assert made == {
            "name": body["name"],
            "status": "PENDING",
            "next_run_time": "2099-01-01T00:00:00.000Z",
            "created_by": "local",
            "warnings": [],
        }

    @pytest.mark.parametrize("path", ["/jobs", "/jobs/"])
    def test_a_prefer_header_is_ignored(self, client: Client, body: dict[str, Any], path: str) -> None:
        """The job is committed before the response; 202 would mean that it is not."""
        answer = client.post(path, body, prefer="respond-async")
        assert answer.status == 201
        assert "preference-applied" not in answer.headers
        assert client.get(f"/jobs/{answer.json()['job_id']}").status == 200

    def test_a_slash_at_the_end_of_the_path_is_no_defect(self, client: Client, body: dict[str, Any]) -> None:
        assert client.post("/jobs/", body).status in (201, 404)

    def test_a_key_may_be_used_once(self, person: Person) -> None:
        person.create(key=person.name)
        answer = person.client.post("/jobs", person.body(key=person.name))
        assert "by-key" in refused(answer, 409, "CONFLICT")

    @pytest.mark.parametrize(
        ("schedule", "next_run_time"),
        [
            ("2098-06-01T12:00:00+02:00", "2098-06-01T10:00:00.000Z"),
            ("2098-06-01T12:00", "2098-06-01T12:00:00.000Z"),
        ],
    )
    def test_an_instant_is_read_with_its_offset(self, person: Person, schedule: str, next_run_time: str) -> None:
        assert person.job(person.create(schedule))["next_run_time"] == next_run_time

    def test_a_local_time_is_read_in_the_zone_of_the_job(self, person: Person) -> None:
        job_id = person.create("2098-06-01T12:00", timezone="Asia/Kolkata")
        assert person.job(job_id)["next_run_time"] == "2098-06-01T06:30:00.000Z"

    def test_a_job_that_is_due_at_once_runs_and_is_completed(self, person: Person) -> None:
        job_id = person.create("immediate")
        (execution,) = person.wait_for_end(job_id)
        assert (execution["state"], execution["http_status"], execution["attempt"]) == ("COMPLETED", 200, 1)
        job = person.job(job_id)
        assert (job["status"], job["last_state"], job["next_run_time"]) == ("COMPLETED", "COMPLETED", None)
        assert (job["execution_count"], job["success_count"], job["failure_count"]) == (1, 1, 0)
        assert job["lateness_p50_ms"] == job["lateness_p99_ms"] == execution["lateness_ms"]


class TestRead:
    def test_shows_every_field_with_its_default(self, person: Person) -> None:
        job = person.job(person.create())
        assert job["retry_policy"] == {
            "max_retries": 3, "backoff": "exponential", "initial_delay_seconds": 10.0, "backoff_factor": 3.0,
            "max_delay_seconds": 3600.0, "delays": [],
        }  # fmt: skip
        assert job["catch_up"] == {"policy": "latest", "window_seconds": 3600, "max_runs": 100}
        assert (job["overlap"], job["priority"], job["timeout_seconds"]) == ("skip", 5, 30.0)
        assert job["dst"] == {"gap": "shift", "overlap": "first"}
        assert (job["type"], job["timezone"], job["tags"], job["version"]) == ("http_request", "UTC", {}, 1)

    def test_never_shows_the_value_of_a_header(self, person: Person) -> None:
        payload = {**person.body()["payload"], "headers": {"X-API-Key": "open sesame"}}
        job_id = person.create(payload=payload)
        answer = person.client.get(f"/jobs/{job_id}")
        assert list(answer.json()["payload"]["headers"]) == ["X-API-Key"]
        assert b"sesame" not in answer.body

    def test_an_unknown_id_is_not_found(self, client: Client) -> None:
        refused(client.get(f"/jobs/{NOBODY}"), 404, "NOT_FOUND")

    @pytest.mark.parametrize(
        "job_id", ["1", "abc", NOBODY.upper(), NOBODY + "0", "%00", "%ff%fe", "..%2f..", "💥", "'"]
    )
    def test_an_invalid_id_is_not_found(self, client: Client, job_id: str) -> None:
        from urllib.parse import quote

        for path in ("", "/status", "/executions", "/next", "/why"):
            refused(client.get(f"/jobs/{quote(job_id, safe='%')}{path}"), 404, "NOT_FOUND")


class TestChange:
    @pytest.mark.parametrize(
        ("change", "pointer", "meant"),
        [
            ({"descripton": None}, "/descripton", "description"),
            ({"payload": {"headrs": None}}, "/payload/headrs", "headers"),
            ({"retry_policy": {"max_retry": None}}, "/retry_policy/max_retry", "max_retries"),
            ({"": None}, "/", "known are"),
        ],
    )
    def test_an_unknown_field_can_not_be_reset(
        self, client: Client, person: Person, change: dict[str, Any], pointer: str, meant: str
    ) -> None:
        job_id = person.create(tags={"team": "sales"})
        for send in (client.patch, client.put):
            assert meant in refused(send(f"/jobs/{job_id}", change), 400, "INVALID_REQUEST", pointer)
        assert client.patch(f"/jobs/{job_id}", {"tags": {"nothing": None}, "key": None}).status == 200

    @pytest.mark.parametrize("method", ["PUT", "PATCH"])
    def test_changes_the_named_fields_only(self, person: Person, method: str) -> None:
        job_id = person.create(description="before", tags={"team": "a", "tier": "1"})
        changes = {"priority": 9, "tags": {"team": "b"}, "description": None}
        answer = person.client.request(method, f"/jobs/{job_id}", changes)
        assert answer.status == 200
        job = answer.json()
        assert (job["priority"], job["tags"], job["description"]) == (9, {"team": "b", "tier": "1"}, "")
        assert (job["name"], job["version"]) == (person.name, 2)
        assert job == {**person.job(job_id)}

    def test_a_new_schedule_is_planned_again(self, person: Person) -> None:
        job_id = person.create()
        changed = person.client.patch(f"/jobs/{job_id}", {"schedule": "2098-01-01T00:00:00Z"})
        assert changed.json()["next_run_time"] == "2098-01-01T00:00:00.000Z"

    def test_a_completed_job_with_a_new_instant_is_due_again(self, person: Person) -> None:
        job_id = person.create("immediate")
        person.wait_for_end(job_id)
        changed = person.client.patch(f"/jobs/{job_id}", {"schedule": FAR}).json()
        assert (changed["status"], changed["next_run_time"]) == ("PENDING", "2099-01-01T00:00:00.000Z")

    def test_an_end_in_the_past_is_refused_as_in_a_create(self, person: Person) -> None:
        job_id = person.create("0 0 1 1 *")
        answer = person.client.patch(f"/jobs/{job_id}", {"end_at": "2020-01-01T00:00:00Z"})
        refused(answer, 400, "INVALID_SCHEDULE", "/end_at")
        job = person.job(job_id)
        assert (job["status"], job["version"]) == ("PENDING", 1)

    def test_raising_max_runs_of_a_completed_job_continues_its_count(self, person: Person) -> None:
        job_id = person.create("every 1s", max_runs=1)
        person.wait_for_end(job_id)
        changed = person.client.patch(f"/jobs/{job_id}", {"max_runs": 2}).json()
        assert changed["status"] == "PENDING"
        assert len(person.wait_for_end(job_id, 2)) == 2
        job = person.job(job_id)
        assert (job["status"], job["execution_count"]) == ("COMPLETED", 2)

    @pytest.mark.parametrize("deed", ["change", "cancel"])
    def test_instants_that_pass_during_a_pause_are_in_the_ledger_however_it_ends(
        self, person: Person, deed: str
    ) -> None:
        job_id = person.create("every 1s", start_at="2020-01-01T00:00:00Z")
        person.client.post(f"/jobs/{job_id}/pause")
        due_at = datetime.fromisoformat(person.client.get(f"/jobs/{job_id}/next").json()["next"][0])
        wait_until(lambda: datetime.now(UTC) > due_at, 5, "an instant has passed")
        if deed == "change":
            assert person.client.patch(f"/jobs/{job_id}", {"schedule": "every 1h"}).status == 200
        else:
            assert person.client.delete(f"/jobs/{job_id}").status == 200
        (skipped,) = person.client.get(f"/jobs/{job_id}/executions").json()["skipped"]
        assert skipped["reason"] == "paused"

    def test_header_values_stay_as_they_were(self, person: Person) -> None:
        payload = {**person.body()["payload"], "headers": {"X-A": "1", "X-B": "2"}}
        job_id = person.create(payload=payload)
        changed = person.client.patch(f"/jobs/{job_id}", {"payload": {"headers": {"X-B": None, "X-C": "3"}}})
        assert sorted(changed.json()["payload"]["headers"]) == ["X-A", "X-C"]

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"schedul": "every 1m"}, "/schedul"),
            ({"priority": 10}, "/priority"),
            ({"name": None}, "/name"),
            ({"payload": {"url": 1}}, "/payload/url"),
            ({"payload": {"url": "ftp://x"}}, "/payload/url"),
            ({"retry_policy": {"delays": [-1]}}, "/retry_policy/delays/0"),
            ({"timezone": "Mars/Olympus"}, "/timezone"),
        ],
    )
    def test_the_error_for_a_bad_change_names_the_field_and_nothing_changes(
        self, person: Person, changes: dict[str, Any], pointer: str
    ) -> None:
        job_id = person.create()
        answer = person.client.patch(f"/jobs/{job_id}", changes)
        refused(answer, 400, answer.json()["error"], pointer)
        assert person.job(job_id)["version"] == 1

    @pytest.mark.parametrize("changes", [b"[]", b"1", b'"x"', b"null", b"{", b"\xff"])
    def test_a_change_that_is_not_an_object_is_refused(self, person: Person, changes: bytes) -> None:
        refused(person.client.patch(f"/jobs/{person.create()}", changes), 400, "INVALID_REQUEST")

    def test_a_cancelled_job_can_not_be_changed(self, person: Person) -> None:
        job_id = person.create()
        person.client.delete(f"/jobs/{job_id}")
        refused(person.client.patch(f"/jobs/{job_id}", {"priority": 1}), 409, "CONFLICT")


class TestVersions:
    def test_the_etag_is_the_version(self, person: Person) -> None:
        job_id = person.create()
        assert person.client.get(f"/jobs/{job_id}").headers["etag"] == '"1"'
        assert person.client.patch(f"/jobs/{job_id}", {"priority": 1}).headers["etag"] == '"2"'

    @pytest.mark.parametrize("wanted", ['"1"', "*", '"7", "1"'])
    def test_if_match_with_the_current_version_passes(self, person: Person, wanted: str) -> None:
        job_id = person.create()
        assert person.client.patch(f"/jobs/{job_id}", {"priority": 1}, if_match=wanted).status == 200

    @pytest.mark.parametrize("wanted", ['"2"', "1", "", "x" * 5000])
    def test_if_match_with_another_version_is_412(self, person: Person, wanted: str) -> None:
        job_id = person.create()
        answer = person.client.patch(f"/jobs/{job_id}", {"priority": 1}, if_match=wanted)
        refused(answer, 412, "PRECONDITION_FAILED")
        assert person.job(job_id)["priority"] == 5


class TestByKey:
    def path(self, person: Person) -> str:
        return f"/jobs/by-key/{person.name.replace(' ', '-')}"

    def test_creates_then_changes(self, person: Person) -> None:
        made = person.client.put(self.path(person), person.body(priority=1))
        assert made.status == 201
        again = person.client.put(self.path(person), person.body(tags={"a": "b"}))
        assert again.status == 200
        job = again.json()
        assert job["job_id"] == made.json()["job_id"]
        assert (job["priority"], job["tags"], job["version"]) == (5, {"a": "b"}, 2)  # exactly this, not a merge

    @pytest.mark.parametrize("body", [[[]] * 4000, "x" * 12_000, {"a": ["ü"] * 3000}])
    def test_a_large_job_is_changed_and_shown_like_others(self, person: Person, body: Any) -> None:
        wanted = person.body()
        wanted["payload"] |= {"body": body, "method": "POST"}
        job_id = person.client.put(self.path(person), wanted).json()["job_id"]
        assert person.client.put(self.path(person), {**wanted, "priority": 1}).json()["payload"]["body"] == body
        changed = person.client.patch(f"/jobs/{job_id}", {"payload": {"method": "PUT"}}).json()
        assert (changed["payload"]["body"], changed["payload"]["method"], changed["version"]) == (body, "PUT", 3)
        assert person.job(job_id)["payload"]["body"] == body
        assert person.client.patch(f"/jobs/{job_id}", {"payload": {"body": 7}}).json()["payload"]["body"] == 7

    def test_honours_if_match(self, person: Person) -> None:
        person.client.put(self.path(person), person.body())
        refused(person.client.put(self.path(person), person.body(), if_match='"9"'), 412, "PRECONDITION_FAILED")

    @pytest.mark.parametrize("wanted", ["*", '"1"'])
    def test_if_match_never_creates(self, person: Person, wanted: str) -> None:
        refused(person.client.put(self.path(person), person.body(), if_match=wanted), 412, "PRECONDITION_FAILED")
        assert person.client.put(self.path(person), person.body()).status == 201

    def test_another_key_in_the_body_is_refused(self, person: Person) -> None:
        refused(person.client.put(self.path(person), person.body(key="other")), 400, "INVALID_REQUEST", "/key")

    def test_the_key_of_a_cancelled_job_is_free_after_its_purge(self, person: Person) -> None:
        job_id = person.client.put(self.path(person), person.body()).json()["job_id"]
        person.client.delete(f"/jobs/{job_id}")
        assert "purge" in refused(person.client.put(self.path(person), person.body()), 409, "CONFLICT")
        person.client.delete(f"/jobs/{job_id}?purge=true")
        assert person.client.put(self.path(person), person.body()).status == 201

    @pytest.mark.parametrize("key", ["x" * 256, "%00", "a%00b"])
    def test_an_invalid_key_is_refused(self, person: Person, key: str) -> None:
        refused(person.client.put(f"/jobs/by-key/{key}", person.body()), 400, "INVALID_REQUEST", "/key")


class TestIdempotencyKey:
    def test_a_repeat_gets_the_same_response_and_creates_one_job(self, person: Person) -> None:
        first = person.client.post("/jobs", person.body(), idempotency_key=person.name.replace(" ", "-"))
        again = person.client.post("/jobs", person.body(), idempotency_key=person.name.replace(" ", "-"))
        assert (again.status, again.body) == (first.status, first.body) == (201, first.body)
        listed = person.client.get(f"/jobs?name={person.name.replace(' ', '+')}").json()
        assert listed["total"] == 1

    def test_another_body_is_422(self, person: Person) -> None:
        key = person.name.replace(" ", "-")
        person.client.post("/jobs", person.body(), idempotency_key=key)
        answer = person.client.post("/jobs", person.body(priority=1), idempotency_key=key)
        refused(answer, 422, "IDEMPOTENCY_KEY_REUSED")

    def test_a_refused_request_does_not_use_the_key(self, person: Person) -> None:
        key = person.name.replace(" ", "-")
        refused(person.client.post("/jobs", {}, idempotency_key=key), 400, "INVALID_REQUEST")
        assert person.client.post("/jobs", person.body(), idempotency_key=key).status == 201

    @pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\xe9"])
    def test_an_invalid_key_is_refused(self, person: Person, key: str) -> None:
        answer = person.client.post("/jobs", person.body(), idempotency_key=key)
        refused(answer, 400, "INVALID_REQUEST", "/Idempotency-Key")
