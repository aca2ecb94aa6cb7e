"""Executions: lists across jobs, one with its attempts, logs, cancel and retry; dead letters and their redrive."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import urlencode

import pytest

from api.person import FAR, Person, refused
from cluster.processes import Client

NOBODY = "0198c0de-1234-7abc-8def-0123456789ab"


class TestHistory:
    def test_a_job_lists_its_executions_latest_first(self, person: Person) -> None:
        job_id = person.create(FAR)
        runs = []
        for number in range(3):
            runs.append(person.client.post(f"/jobs/{job_id}/run").json()["execution_id"])
            person.wait_for_end(job_id, number + 1)
        page = person.client.get(f"/jobs/{job_id}/executions?limit=2").json()
        assert [row["execution_id"] for row in page["executions"]] == runs[:0:-1]
        assert (page["total"], page["has_more"]) == (3, True)
        rest = person.client.get(f"/jobs/{job_id}/executions?limit=2&cursor={page['next_cursor']}").json()
        assert [row["execution_id"] for row in rest["executions"]] == runs[:1]
        assert rest["next_cursor"] is None

    def test_an_execution_shows_its_result(self, person: Person) -> None:
        (row,) = person.wait_for_end(person.create("immediate", "/slow/0.05"))
        assert row.keys() >= {
            "execution_id", "state", "scheduled_at", "start_time", "end_time", "duration_ms", "lateness_ms", "attempt",
            "http_status", "exit_code", "error_type", "error_message", "worker_id",
        }  # fmt: skip
        scheduled_at, started_at, ended_at = (
            datetime.fromisoformat(row[name]) for name in ("scheduled_at", "start_time", "end_time")
        )
        assert row["duration_ms"] >= 50
        assert row["duration_ms"] == (ended_at - started_at) / timedelta(milliseconds=1)
        assert row["lateness_ms"] == (started_at - scheduled_at) / timedelta(milliseconds=1) >= 0
        assert row["worker_id"]

    def test_executions_of_a_job_are_filtered_by_state(self, person: Person) -> None:
        job_id, failed = person.fail()
        found = person.client.get(f"/jobs/{job_id}/executions?state=FAILED").json()
        assert [row["execution_id"] for row in found["executions"]] == [failed]
        assert person.client.get(f"/jobs/{job_id}/executions?state=COMPLETED").json()["total"] == 0


class TestAcrossJobs:
    def test_executions_are_filtered_by_job_state_and_time(self, person: Person) -> None:
        job_id, failed = person.fail()
        (row,) = person.executions(job_id)
        at = row["scheduled_at"]
        later = at[:-4] + f"{int(at[-4:-1]) + 1:03d}Z" if at[-4:-1] != "999" else FAR
        for query, found in (
            ("", [failed]),
            ("&state=FAILED", [failed]),
            ("&state=COMPLETED", []),
            (f"&from={at}", [failed]),
            (f"&from={later}", []),
            (f"&to={at}", []),
            (f"&to={later}", [failed]),
            (f"&from={at}&to={later}&state=FAILED", [failed]),
        ):
            page = person.client.get(f"/executions?job_id={job_id}{query}").json()
            assert ([item["execution_id"] for item in page["executions"]], page["total"]) == (found, len(found)), query

    def test_an_unescaped_plus_sign_of_an_offset_is_accepted(self, client: Client) -> None:
        assert client.get("/executions?from=2026-01-01T00:00:00+02:00").status == 200

    @pytest.mark.parametrize(
        "value", ["", "x", "2026-13-01T00:00:00Z", "9999-01-01T00:00:00Z", "%00", "1e9", "0" * 500]
    )
    @pytest.mark.parametrize("name", ["from", "to"])
    def test_the_error_for_a_bad_instant_names_the_parameter(self, client: Client, name: str, value: str) -> None:
        refused(client.get(f"/executions?{name}={value}"), 400, "INVALID_REQUEST", f"/{name}")

    def test_the_error_for_a_bad_state_names_the_parameter(self, client: Client) -> None:
        refused(client.get("/executions?state=DONE"), 400, "INVALID_REQUEST", "/state")

    @pytest.mark.parametrize("state", ["null", "NULL", ""])
    def test_an_empty_or_null_state_is_refused(self, person: Person, state: str) -> None:
        for path in ("/executions", f"/jobs/{person.create()}/executions"):
            refused(person.client.get(f"{path}?state={state}"), 400, "INVALID_REQUEST", "/state")

    def test_an_invalid_job_id_is_not_found(self, client: Client) -> None:
        refused(client.get("/executions?job_id=x"), 404, "NOT_FOUND")
        assert client.get(f"/executions?job_id={NOBODY}").json()["total"] == 0


class TestOne:
    def test_shows_every_attempt(self, person: Person) -> None:
        job_id = person.create("immediate", "/fail-until/3", retry_policy={"delays": [0.01, 0.01]})
        (row,) = person.wait_for_end(job_id)
        found = person.client.get(f"/executions/{row['execution_id']}").json()
        assert (found["execution"]["state"], found["execution"]["attempt"]) == ("COMPLETED", 3)
        assert [(item["attempt"], item["http_status"]) for item in found["attempts"]] == [(1, 500), (2, 500), (3, 200)]

    def test_the_target_saw_one_id_and_ascending_tokens(self, person: Person) -> None:
        job_id = person.create("immediate", "/fail-until/3", retry_policy={"delays": [0.01, 0.01]})
        (row,) = person.wait_for_end(job_id)
        lines = [line for line in person.receiver.lines() if line["job_id"] == job_id]
        assert {line["execution_id"] for line in lines} == {row["execution_id"]}
        assert {line["scheduled_at"] for line in lines} == {row["scheduled_at"]}
        assert [(line["attempt"], line["token"]) for line in lines] == [("1", "1"), ("2", "2"), ("3", "3")]

    def test_logs_have_the_result_of_each_attempt(self, person: Person) -> None:
        _, execution_id = person.fail()
        found = person.client.get(f"/executions/{execution_id}/logs").json()
        assert "attempt 1: 127.0.0.1 answered 500." in found["logs"]
        assert found["size_bytes"] == len(found["logs"].encode())

    @pytest.mark.parametrize("path", ["", "/logs"])
    def test_an_unknown_execution_is_not_found(self, client: Client, path: str) -> None:
        for execution_id in (NOBODY, "x", "%00"):
            refused(client.get(f"/executions/{execution_id}{path}"), 404, "NOT_FOUND")

    @pytest.mark.parametrize("action", ["cancel", "retry"])
    def test_actions_on_an_unknown_execution_are_not_found(self, client: Client, action: str) -> None:
        refused(client.post(f"/executions/{NOBODY}/{action}"), 404, "NOT_FOUND")

    def test_cancel_reaches_a_running_request(self, person: Person) -> None:
        job_id = person.create("immediate", "/hang")
        row = person.wait_for_state(job_id, "RUNNING")
        assert person.client.post(f"/executions/{row['execution_id']}/cancel").status == 202
        assert [item["state"] for item in person.wait_for_end(job_id)] == ["CANCELLED"]

    def test_cancel_reaches_a_waiting_execution(self, person: Person) -> None:
        job_id = person.create("immediate", "/status/503", retry_policy={"delays": [3600]})
        row = person.wait_for_state(job_id, "RETRYING")
        answer = person.client.post(f"/executions/{row['execution_id']}/cancel")
        assert (answer.status, answer.json()["state"]) == (202, "CANCELLED")
        assert person.job(job_id)["status"] == "COMPLETED"

    def test_an_ended_execution_can_not_be_cancelled(self, person: Person) -> None:
        (row,) = person.wait_for_end(person.create("immediate"))
        refused(person.client.post(f"/executions/{row['execution_id']}/cancel"), 409, "CONFLICT")

    def test_retry_runs_the_job_again(self, person: Person) -> None:
        job_id = person.create("immediate")
        (row,) = person.wait_for_end(job_id)
        again = person.client.post(f"/executions/{row['execution_id']}/retry")
        assert again.status == 202
        latest, _ = person.wait_for_end(job_id, 2)
        assert (latest["execution_id"], latest["trigger"]) == (again.json()["execution_id"], "retry")

    def test_an_open_execution_can_not_be_retried(self, person: Person) -> None:
        job_id = person.create("immediate", "/hang")
        row = person.wait_for_state(job_id, "RUNNING")
        refused(person.client.post(f"/executions/{row['execution_id']}/retry"), 409, "CONFLICT")
        person.client.delete(f"/jobs/{job_id}")


class TestDeadLetters:
    def test_hold_executions_that_used_up_their_attempts(self, person: Person) -> None:
        job_id, failed = person.fail()
        page = person.client.get(f"/dead-letters?job_id={job_id}").json()
        assert [row["execution_id"] for row in page["executions"]] == [failed]
        assert page["total"] == 1
        assert page["executions"][0]["dead"] is True

    def test_redriven_by_id_they_run_again_and_leave_the_list(self, person: Person) -> None:
        job_id, failed = person.fail()
        answer = person.client.post("/dead-letters/redrive", {"ids": [failed]})
        assert (answer.status, answer.json()["redriven"]) == (202, 1)
        latest, first = person.wait_for_end(job_id, 2)
        assert answer.json()["executions"] == [latest["execution_id"]]
        assert (first["execution_id"], first["dead"], latest["dead"]) == (failed, False, True)

    def test_an_id_that_is_named_twice_is_redriven_once(self, person: Person) -> None:
        job_id, failed = person.fail()
        answer = person.client.post("/dead-letters/redrive", {"ids": [failed, failed]}).json()
        assert (answer["redriven"], len(answer["executions"])) == (1, 1)
        assert len(person.wait_for_end(job_id, 2)) == 2

    def test_redriven_by_filter(self, person: Person) -> None:
        job_id, _ = person.fail()
        assert person.client.post("/dead-letters/redrive", {"job_id": job_id}).json()["redriven"] == 1
        assert person.client.post("/dead-letters/redrive", {"job_id": NOBODY}).json()["redriven"] == 0

    def test_retrying_a_dead_letter_redrives_it(self, person: Person) -> None:
        job_id, failed = person.fail()
        person.client.post(f"/executions/{failed}/retry")
        _, first = person.wait_for_end(job_id, 2)
        assert first["dead"] is False

    def test_executions_that_are_not_dead_letters_are_not_redriven(self, person: Person) -> None:
        (row,) = person.wait_for_end(person.create("immediate"))
        answer = person.client.post("/dead-letters/redrive", {"ids": [row["execution_id"], NOBODY]})
        assert answer.json() == {"redriven": 0, "executions": [], "last_at": None}

    def test_the_list_and_the_redrive_have_the_same_filters(self, person: Person) -> None:
        job_id, failed = person.fail()
        at = person.executions(job_id)[0]["scheduled_at"]
        fitting = [
            {"error_type": "http_error"}, {"http_status": "500"}, {"http_status": "5xx"}, {"http_status": "5XX"},
            {"from": at}, {"to": FAR}, {"from": at, "to": FAR, "error_type": "http_error", "http_status": "500"},
        ]  # fmt: skip
        others = [
            {"error_type": "timeout"}, {"http_status": "503"}, {"http_status": "4xx"}, {"to": at}, {"from": FAR}
        ]  # fmt: skip
        for words in [{}, *fitting, *others]:
            found = person.client.get(f"/dead-letters?{urlencode({'job_id': job_id} | words)}").json()
            assert [row["execution_id"] for row in found["executions"]] == ([] if words in others else [failed]), words
            assert found["total"] == len(found["executions"])
        for words in others:
            assert person.client.post("/dead-letters/redrive", {"job_id": job_id} | words).json()["redriven"] == 0, (
                words
            )
        for number, words in enumerate(fitting, start=1):
            wanted = {"job_id": job_id} | words | {"http_status": 500 if "http_status" in words else None}
            assert person.client.post("/dead-letters/redrive", wanted).json()["redriven"] == 1, words
            person.wait_for_end(job_id, number + 1)

    def test_executions_redriven_at_a_pace_start_one_after_the_other(self, person: Person) -> None:
        job_id, _ = person.fail()
        for number in (2, 3):
            person.client.post(f"/jobs/{job_id}/run")
            person.wait_for_end(job_id, number)
        failed = [
            row["execution_id"] for row in person.client.get(f"/dead-letters?job_id={job_id}").json()["executions"]
        ]
        answer = person.client.post("/dead-letters/redrive", {"job_id": job_id, "per_second": 0.01}).json()
        assert answer["redriven"] == len(failed) == 3
        rows = {row["execution_id"]: row for row in person.executions(job_id)}
        begun, *waiting = (rows[execution_id] for execution_id in answer["executions"])
        scheduled = datetime.fromisoformat(begun["scheduled_at"])
        turns = [datetime.fromisoformat(row["next_attempt_at"]) - scheduled for row in waiting]
        assert turns == [timedelta(seconds=100), timedelta(seconds=200)]
        assert answer["last_at"] == waiting[1]["next_attempt_at"]
        assert not any(rows[execution_id]["dead"] for execution_id in failed)
        person.wait_for_execution(begun["execution_id"], "FAILED")
        holds = person.client.get(f"/jobs/{job_id}/why").json()["holds"]
        assert f"the next one that waits is due at {waiting[0]['next_attempt_at']}, in " in " ".join(holds)
        assert "overlap" not in " ".join(holds)
        cancelled = person.client.post(f"/executions/{waiting[0]['execution_id']}/cancel")
        assert (cancelled.status, cancelled.json()["state"]) == (202, "CANCELLED")
        person.client.delete(f"/jobs/{job_id}")

    def test_the_oldest_runs_first(self, person: Person) -> None:
        job_id, first = person.fail()
        person.client.post(f"/jobs/{job_id}/run")
        second = person.wait_for_end(job_id, 2)[0]["execution_id"]
        answer = person.client.post("/dead-letters/redrive", {"job_id": job_id, "per_second": 0.01}).json()
        (entry,) = [
            entry for entry in person.client.get("/audit?action=dead_letters.redrive&limit=100").json()["entries"]
            if first in str(entry["after"])
        ]  # fmt: skip
        assert entry["after"]["executions"] == [
            {"dead": dead, "new": new} for dead, new in zip((first, second), answer["executions"], strict=True)
        ]
        person.client.delete(f"/jobs/{job_id}")

    def test_dead_letters_of_cancelled_jobs_do_not_count_towards_the_limit(self, person: Person) -> None:
        job_id, _ = person.fail()
        cancelled, _ = person.fail()
        person.client.delete(f"/jobs/{cancelled}")
        at = person.executions(job_id)[0]["scheduled_at"]
        answer = person.client.post("/dead-letters/redrive", {"from": at, "limit": 1}).json()
        assert answer["executions"] == [person.wait_for_end(job_id, 2)[0]["execution_id"]]

    def test_a_pace_of_more_than_a_day_is_refused(self, person: Person) -> None:
        job_id, failed = person.fail()
        for wanted in ({"ids": [failed]}, {"job_id": job_id}):
            answer = person.client.post("/dead-letters/redrive", wanted | {"per_second": 1e-6})
            assert "more than a day" in refused(answer, 400, "INVALID_REQUEST", "/per_second")
        assert person.executions(job_id)[0]["dead"] is True

    @pytest.mark.parametrize(
        ("wanted", "status", "pointer"),
        [
            ({"ids": [1]}, 400, "/ids/0"),
            ({"ids": "x"}, 400, "/ids"),
            ({"limit": 0}, 400, "/limit"),
            ({"limit": 10_001}, 400, "/limit"),
            ({"per_second": 0}, 400, "/per_second"),
            ({"per_second": 1001}, 400, "/per_second"),
            ({"error_type": "bad_luck"}, 400, "/error_type"),
            *(({"http_status": status}, 400, "/http_status") for status in (0, 99, 1000, "5x", "0xx", "", True)),
            ({"from": "yesterday"}, 400, "/from"),
            ({"to": "1"}, 400, "/to"),
            *(
                ({"ids": [NOBODY], **words}, 400, "/ids")
                for words in (
                    {"job_id": NOBODY},
                    {"error_type": "timeout"},
                    {"http_status": 500},
                    {"from": FAR},
                    {"to": FAR},
                )
            ),
            ({"idz": []}, 400, "/idz"),
            ({"ids": [NOBODY] * 1001}, 400, "/ids"),
            ({"ids": ["x"]}, 404, None),
            ({"job_id": "x"}, 404, None),
        ],
    )
    def test_the_error_for_a_bad_request_names_the_field(
        self, client: Client, wanted: dict[str, object], status: int, pointer: str | None
    ) -> None:
        error = "INVALID_REQUEST" if status == 400 else "NOT_FOUND"
        refused(client.post("/dead-letters/redrive", wanted), status, error, pointer)
