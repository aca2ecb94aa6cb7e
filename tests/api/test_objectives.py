"""`slo` and `expect_every` of a job, and what GET /jobs/{id} tells of its objectives."""

from __future__ import annotations

from typing import Any

import pytest

from api.people import People
from api.person import Person
from cluster.processes import Client, wait_until

PROMISES = {"slo": {"lateness_seconds": 5, "on_time": 99, "success": 99.5, "window": "30d"}, "expect_every": "25h"}
NO_RETRIES = {"max_retries": 0}


def objectives(person: Person, job_id: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in person.job(job_id)["objectives"]}


def run(person: Person, job_id: str) -> None:
    before = len(person.executions(job_id))
    assert person.client.post(f"/jobs/{job_id}/run").status == 202
    person.wait_for_end(job_id, before + 1)


def test_a_job_shows_its_promises_as_they_were_sent(person: Person) -> None:
    job_id = person.create(**PROMISES)
    job = person.job(job_id)
    assert job["slo"] == PROMISES["slo"]
    assert job["expect_every"] == "25h"
    (listed,) = [one for one in person.client.pages("/jobs", "jobs") if one["job_id"] == job_id]
    assert (listed["slo"], listed["objectives"]) == (job["slo"], None)


def test_a_job_without_objectives_has_none(person: Person) -> None:
    job = person.job(person.create())
    assert (job["slo"], job["expect_every"], job["objectives"]) == (None, None, None)


def test_a_patch_changes_one_part_and_null_removes_it(person: Person) -> None:
    job_id = person.create(**PROMISES)
    changed = person.client.patch(f"/jobs/{job_id}", {"slo": {"success": 90}}).json()
    assert changed["slo"] == {"lateness_seconds": 5, "on_time": 99, "success": 90, "window": "30d"}
    changed = person.client.patch(f"/jobs/{job_id}", {"slo": {"lateness_seconds": None}, "expect_every": None}).json()
    assert (changed["slo"], changed["expect_every"]) == (
        {"lateness_seconds": None, "on_time": 99, "success": 90, "window": "30d"},
        None,
    )
    assert person.client.patch(f"/jobs/{job_id}", {"slo": None}).json()["slo"] is None


def test_an_objective_that_nothing_ran_for_has_its_whole_budget(person: Person) -> None:
    job_id = person.create(slo={"success": 99, "window": "12h"})
    assert person.job(job_id)["objectives"] == [
        {
            "kind": "success", "target": 99, "window": "12h", "lateness_seconds": None, "good": 0, "total": 0,
            "compliance": None, "error_budget_left": 1, "errors_left": 0,
            "burn_rate": {"5m": 0, "30m": 0, "1h": 0, "6h": 0, "3d": 0},
        }
    ]  # fmt: skip


def test_failing_and_late_executions_burn_the_budget(person: Person) -> None:
    job_id = person.create(
        path="/status/500", slo={"lateness_seconds": 0.001, "on_time": 50, "success": 75, "window": "1h"},
        retry_policy=NO_RETRIES, overlap="queue_all",
    )  # fmt: skip

    def is_counted() -> bool:
        run(person, job_id)
        return objectives(person, job_id)["success"]["total"] > 0

    wait_until(is_counted, 30, "the job is watched")
    good = person.receiver.url("/slow/0.3")
    assert person.client.patch(f"/jobs/{job_id}", {"payload": {"url": good}}).status == 200
    ran = len(person.executions(job_id))
    for _ in range(3):  # the second waits for the first, and the third for the second: these are late
        assert person.client.post(f"/jobs/{job_id}/run").status == 202
    person.wait_for_end(job_id, ran + 3)
    failed = sum(row["state"] == "FAILED" for row in person.executions(job_id))

    def found() -> dict[str, dict[str, Any]]:
        told = objectives(person, job_id)
        return told if told["success"]["good"] == 3 else {}

    told = wait_until(found, 10, "the ends are counted")
    success, lateness = told["success"], told["lateness"]
    bad = success["total"] - success["good"]
    assert 1 <= bad <= failed
    assert success["compliance"] == pytest.approx(300 / success["total"], abs=0.001)
    assert success["error_budget_left"] == pytest.approx(1 - bad / (0.25 * success["total"]), abs=0.001)
    assert success["burn_rate"]["1h"] == pytest.approx(bad / success["total"] / 0.25, abs=0.001)
    assert lateness["total"] == success["total"]
    assert lateness["total"] - lateness["good"] >= 2


def test_the_objectives_of_another_are_not_shown(people: People) -> None:
    job_id = people.ann.create(slo={"success": 99})
    assert people.ann.get(f"/jobs/{job_id}").json()["objectives"]
    assert people.bob.get(f"/jobs/{job_id}").status == 403
    assert people.eve.get(f"/jobs/{job_id}").status == 404


def test_the_worst_jobs_are_told_to_an_admin_of_their_tenant_only(people: People) -> None:
    job_id = people.ann.create("immediate", people.receiver.url("/status/500"), retry_policy=NO_RETRIES)
    people.ann.wait_for(job_id, "FAILED")

    def told(client: Client) -> list[dict[str, Any]]:
        answer = client.get("/observability/now")
        assert answer.status == 200, answer
        return [one for one in answer.json()["jobs"] if one["job_id"] == job_id]

    (job,) = wait_until(lambda: told(people.ada), 10, "the failure is told")
    assert (job["tenant"], job["failures"], job["last_error"]) == (people.acme, 1, "http_error")
    assert told(people.eve) == []
    assert people.ann.get("/observability/now").status == 403
