"""Pause, resume, cancel, run, retry, purge; status, next and why."""

from __future__ import annotations

import pytest

from api.person import FAR, Person, refused
from cluster.processes import wait_until

NOBODY = "0198c0de-1234-7abc-8def-0123456789ab"
ACTIONS = ["pause", "resume", "cancel", "run", "retry"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_unknown_job_is_not_found(person: Person, action: str) -> None:
    refused(person.client.post(f"/jobs/{NOBODY}/{action}"), 404, "NOT_FOUND")
    refused(person.client.post(f"/jobs/not-an-id/{action}"), 404, "NOT_FOUND")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_can_not_be_requested_with_get(person: Person, action: str) -> None:
    refused(person.client.get(f"/jobs/{person.create()}/{action}"), 405, "METHOD_NOT_ALLOWED")


class TestPauseAndResume:
    def test_a_paused_job_has_no_next_run_and_shows_the_user_that_paused_it(self, person: Person) -> None:
        job_id = person.create("every 1h")
        answer = person.client.post(f"/jobs/{job_id}/pause")
        assert (answer.status, answer.json()["status"]) == (200, "PAUSED")
        assert person.job(job_id)["next_run_time"] is None
        why = person.client.get(f"/jobs/{job_id}/why").json()
        assert why["summary"] == "It will not run until it is resumed."
        assert "paused by local at" in why["holds"][0]

    def test_pausing_twice_changes_nothing(self, person: Person) -> None:
        job_id = person.create("every 1h")
        person.client.post(f"/jobs/{job_id}/pause")
        version = person.job(job_id)["version"]
        assert person.client.post(f"/jobs/{job_id}/pause").json()["status"] == "PAUSED"
        assert person.job(job_id)["version"] == version

    def test_a_resumed_job_keeps_its_timetable(self, person: Person) -> None:
        job_id = person.create("every 1h")
        before = person.job(job_id)["next_run_time"]
        person.client.post(f"/jobs/{job_id}/pause")
        answer = person.client.post(f"/jobs/{job_id}/resume").json()
        assert (answer["status"], answer["next_run_time"]) == ("PENDING", before)

    def test_instants_that_pass_during_a_pause_are_in_the_ledger(self, person: Person) -> None:
        job_id = person.create("every 1s")
        person.client.post(f"/jobs/{job_id}/pause")
        due = person.client.get(f"/jobs/{job_id}/next?count=1").json()["next"][0]
        wait_until(lambda: person.client.post("/schedules/preview", {"schedule": due}).json()["warnings"], 5, "passed")
        person.client.post(f"/jobs/{job_id}/resume")
        skipped = person.client.get(f"/jobs/{job_id}/executions").json()["skipped"]
        person.client.delete(f"/jobs/{job_id}")
        assert [(span["first_at"], span["reason"]) for span in skipped] == [(due, "paused")]

    def test_only_a_paused_job_can_be_resumed(self, person: Person) -> None:
        refused(person.client.post(f"/jobs/{person.create()}/resume"), 409, "CONFLICT")

    def test_a_completed_job_can_not_be_paused(self, person: Person) -> None:
        job_id = person.create("immediate")
        person.wait_for_end(job_id)
        refused(person.client.post(f"/jobs/{job_id}/pause"), 409, "CONFLICT")


class TestCancel:
    @pytest.mark.parametrize("how", ["DELETE", "POST"])
    def test_a_cancelled_job_stays_with_its_history_and_never_runs_again(self, person: Person, how: str) -> None:
        job_id = person.create(FAR)
        path = f"/jobs/{job_id}" if how == "DELETE" else f"/jobs/{job_id}/cancel"
        for _ in range(2):  # the second time changes nothing
            answer = person.client.request(how, path)
            assert (answer.status, answer.json()["status"]) == (200, "CANCELLED")
        assert (person.job(job_id)["status"], person.job(job_id)["next_run_time"]) == ("CANCELLED", None)
        refused(person.client.post(f"/jobs/{job_id}/run"), 409, "CONFLICT")
        refused(person.client.post(f"/jobs/{job_id}/pause"), 409, "CONFLICT")
        why = person.client.get(f"/jobs/{job_id}/why").json()
        assert why["summary"] == "It is cancelled and will not run again."

    def test_reaches_a_running_request(self, person: Person) -> None:
        job_id = person.create("immediate", "/hang")
        person.wait_for_state(job_id, "RUNNING")
        person.client.post(f"/jobs/{job_id}/cancel")
        (execution,) = person.wait_for_end(job_id)
        assert (execution["state"], execution["error_type"]) == ("CANCELLED", "cancelled")

    def test_reaches_an_execution_that_waits_for_a_retry(self, person: Person) -> None:
        job_id = person.create("immediate", "/status/503", retry_policy={"delays": [3600]})
        person.wait_for_state(job_id, "RETRYING")
        person.client.delete(f"/jobs/{job_id}")
        (execution,) = person.wait_for_end(job_id)
        assert execution["state"] == "CANCELLED"


class TestPurge:
    def test_removes_the_job_and_its_history(self, person: Person) -> None:
        job_id = person.create("immediate")
        (execution,) = person.wait_for_end(job_id)
        assert person.client.delete(f"/jobs/{job_id}?purge=true").status == 200
        refused(person.client.get(f"/jobs/{job_id}"), 404, "NOT_FOUND")
        refused(person.client.get(f"/executions/{execution['execution_id']}"), 404, "NOT_FOUND")
        refused(person.client.delete(f"/jobs/{job_id}?purge=true"), 404, "NOT_FOUND")

    def test_is_refused_while_an_execution_runs(self, person: Person) -> None:
        job_id = person.create("immediate", "/hang")
        person.wait_for_state(job_id, "RUNNING")
        assert "cancel it first" in refused(person.client.delete(f"/jobs/{job_id}?purge=true"), 409, "CONFLICT")
        person.client.delete(f"/jobs/{job_id}")
        person.wait_for_end(job_id)
        assert person.client.delete(f"/jobs/{job_id}?purge=true").status == 200

    def test_an_invalid_flag_is_refused(self, person: Person) -> None:
        refused(person.client.delete(f"/jobs/{person.create()}?purge=perhaps"), 400, "INVALID_REQUEST", "/purge")


class TestRunAndRetry:
    def test_run_executes_once_and_does_not_change_the_timetable(self, person: Person) -> None:
        job_id = person.create(FAR)
        answer = person.client.post(f"/jobs/{job_id}/run")
        assert (answer.status, answer.json()["status"]) == (202, "QUEUED")
        (execution,) = person.wait_for_end(job_id)
        assert execution["execution_id"] == answer.json()["execution_id"]
        assert (execution["trigger"], execution["state"]) == ("manual", "COMPLETED")
        assert person.job(job_id)["next_run_time"] == "2099-01-01T00:00:00.000Z"

    def test_two_run_requests_in_one_millisecond_are_two_executions(self, person: Person) -> None:
        job_id = person.create(FAR, overlap="allow")
        ids = {person.client.post(f"/jobs/{job_id}/run").json()["execution_id"] for _ in range(5)}
        assert {row["execution_id"] for row in person.wait_for_end(job_id, 5)} == ids

    def test_retry_repeats_the_last_failed_execution(self, person: Person) -> None:
        job_id, failed = person.fail()
        answer = person.client.post(f"/jobs/{job_id}/retry")
        assert answer.status == 202
        latest, first = person.wait_for_end(job_id, 2)
        assert first["execution_id"] == failed
        assert (latest["execution_id"], latest["trigger"]) == (answer.json()["execution_id"], "retry")

    def test_retry_redrives_the_dead_letter(self, person: Person) -> None:
        job_id, _ = person.fail()
        person.client.post(f"/jobs/{job_id}/retry")
        person.wait_for_end(job_id, 2)
        dead = person.client.get(f"/dead-letters?job_id={job_id}").json()["executions"]
        assert [row["trigger"] for row in dead] == ["retry"]  # the retried one is not redriven again

    def test_retry_works_after_the_dead_letter_was_redriven(self, person: Person) -> None:
        job_id, failed = person.fail()
        assert person.client.post("/dead-letters/redrive", {"ids": [failed]}).json()["redriven"] == 1
        person.wait_for_end(job_id, 2)
        assert person.client.post(f"/jobs/{job_id}/retry").status == 202
        person.wait_for_end(job_id, 3)

    def test_retry_is_refused_if_the_last_execution_did_not_fail(self, person: Person) -> None:
        job_id = person.create("immediate")
        person.wait_for_end(job_id)
        assert "/run" in refused(person.client.post(f"/jobs/{job_id}/retry"), 409, "CONFLICT")

    def test_retry_of_a_cancelled_job_is_refused(self, person: Person) -> None:
        job_id, _ = person.fail()
        person.client.delete(f"/jobs/{job_id}")
        refused(person.client.post(f"/jobs/{job_id}/retry"), 409, "CONFLICT")


class TestQuestions:
    def test_status_shows_states_and_instants(self, person: Person) -> None:
        job_id = person.create("immediate", "/hang")
        person.wait_for_state(job_id, "RUNNING")
        glance = person.client.get(f"/jobs/{job_id}/status").json()
        assert (glance["status"], glance["running"], glance["waiting"]) == ("PENDING", 1, 0)
        why = person.client.get(f"/jobs/{job_id}/why").json()
        assert why["summary"] == "Its last run is under way; none follows."
        assert why["holds"] == ["1 execution is running"]
        person.client.delete(f"/jobs/{job_id}")

    def test_why_shows_the_next_instant(self, person: Person) -> None:
        why = person.client.get(f"/jobs/{person.create()}/why").json()
        assert why["summary"].startswith("It will run at 2099-01-01T00:00:00.000Z, in ")
        assert why["holds"] == []

    def test_why_shows_the_failure_of_the_last_execution(self, person: Person) -> None:
        job_id, execution_id = person.fail()
        why = person.client.get(f"/jobs/{job_id}/why").json()
        scheduled_at = person.client.get(f"/executions/{execution_id}").json()["execution"]["scheduled_at"]
        assert why["last_failure"] == f"Its last execution, of {scheduled_at}, failed: 127.0.0.1 answered 500."

    def test_why_shows_the_failure_of_an_execution_that_is_retried(self, person: Person) -> None:
        job_id = person.create("immediate", "/status/503", retry_policy={"delays": [3600]})
        person.wait_for_state(job_id, "RETRYING")
        why = person.client.get(f"/jobs/{job_id}/why").json()
        assert why["last_failure"] == "Attempt 1 of the execution that is tried again failed: 127.0.0.1 answered 503."
        person.client.delete(f"/jobs/{job_id}")

    def test_why_shows_no_failure_if_the_last_execution_succeeded(self, person: Person) -> None:
        job_id, _ = person.fail()
        person.client.put(f"/jobs/{job_id}", {"payload": {"url": person.receiver.url("/ok")}})
        person.client.post(f"/jobs/{job_id}/run")
        person.wait_for_end(job_id, 2)
        assert person.client.get(f"/jobs/{job_id}/why").json()["last_failure"] is None

    def test_next_lists_the_coming_instants(self, person: Person) -> None:
        job_id = person.create("0 9 * * *", start_at="2098-01-01T00:00:00Z", timezone="Europe/Berlin")
        coming = person.client.get(f"/jobs/{job_id}/next?count=2").json()["next"]
        assert coming == ["2098-01-01T08:00:00.000Z", "2098-01-02T08:00:00.000Z"]

    def test_next_ends_at_the_end_of_the_job(self, person: Person) -> None:
        job_id = person.create("every 1h", max_runs=3)
        assert len(person.client.get(f"/jobs/{job_id}/next?count=100").json()["next"]) == 3
        assert len(person.client.get(f"/jobs/{person.create()}/next").json()["next"]) == 1

    @pytest.mark.parametrize("count", ["0", "-1", "1001", "x", "", "9" * 40])
    def test_a_bad_count_is_refused(self, person: Person, count: str) -> None:
        answer = person.client.get(f"/jobs/{person.create()}/next?count={count}")
        refused(answer, 400, "INVALID_REQUEST", "/count")
