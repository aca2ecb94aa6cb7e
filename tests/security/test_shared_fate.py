"""Attacks on what tenants share: room for jobs, and the ledger. A hostile tenant must not affect another one.

Each attack runs against a real node, on both stores.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from api.people import SETTINGS, Known, database, on_postgresql, token
from api.person import FAR, OPEN
from cluster.processes import Server, wait_until
from patience import PATIENCE_SECONDS
from served import target

VICTIM, HOSTILE, ALSO_HOSTILE = "victim", "hostile", "also-hostile"


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A node that is not started yet."""
    with database() if request.param == "postgres" else nullcontext() as url:
        made = Server(tmp_path, **SETTINGS) if url is None else on_postgresql(tmp_path, url)
        yield made
        made.close()


def member(server: Server, tenant: str) -> Known:
    bearer = token(tenant, f"user-of-{tenant}", role="admin", tier="enterprise")
    return Known(server.client.port, {"Authorization": f"Bearer {bearer}"})


def job(schedule: str = FAR, url: str = "http://127.0.0.1:9/nobody", **fields: Any) -> dict[str, Any]:
    return {"name": "a job", "schedule": schedule, "payload": {"url": url}, **fields}


def run_now(person: Known, number: int, **fields: Any) -> list[str]:
    """Creates jobs that run at once, and waits until each has ended. Returns their ids."""
    answer = person.post("/jobs:batch", [job("immediate", **fields)] * number)
    assert answer.json().get("created_count") == number, answer
    ids: list[str] = answer.json()["created"]

    def all_ended() -> bool:
        rows = executions_of(person, ids)
        return {row["job_id"] for row in rows} == set(ids) and not any(row["state"] in OPEN for row in rows)

    wait_until(all_ended, PATIENCE_SECONDS, "every job has run", 0.1)
    return ids


def executions_of(person: Known, job_ids: list[str]) -> list[dict[str, Any]]:
    """Reads them with all others of the tenant, a page at a time, and not job by job."""
    wanted = set(job_ids)
    return [row for row in person.pages("/executions", "executions") if row["job_id"] in wanted]


def unsent(person: Known, job_ids: list[str]) -> int:
    """Returns how many executions report that their notification could not be stored."""
    return sum(row["reason"] == "notification_refused" for row in executions_of(person, job_ids))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def metrics(port: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^([^# ]+) ([0-9.e+]+)$", text, re.MULTILINE)}


def test_notifications_of_one_tenant_do_not_fill_the_server_for_another(server: Server) -> None:
    port = str(free_port())
    server.start(QUEUE_JOB_LIMIT="80", METRICS_PORT=port)
    hostile, victim = member(server, HOSTILE), member(server, VICTIM)
    with target() as url:
        ids = run_now(hostile, 40, url=url, webhooks={"on_success": url})
    assert victim.post("/jobs", job()).status == 201
    assert hostile.get("/jobs").json()["total"] == 60, "three quarters of the limit"
    assert unsent(hostile, ids) == 20
    assert metrics(port)['duetime_notifications_refused_total{reason="job_count"}'] == 20


def test_a_tenant_has_a_bounded_number_of_notifications(server: Server) -> None:
    port = str(free_port())
    server.start(TENANT_NOTIFICATIONS_PER_HOUR="10", METRICS_PORT=port)
    hostile, victim = member(server, HOSTILE), member(server, VICTIM)
    with target() as url:
        ids = run_now(hostile, 30, url=url, webhooks={"on_success": url})
        others = run_now(victim, 5, url=url, webhooks={"on_success": url})
    assert hostile.get("/jobs").json()["total"] == 40
    assert unsent(hostile, ids) == 20
    assert metrics(port)['duetime_notifications_refused_total{reason="quota"}'] == 20
    assert (victim.get("/jobs").json()["total"], unsent(victim, others)) == (10, 0)


def test_two_tenants_that_create_as_much_as_they_can_leave_room_for_a_third(server: Server) -> None:
    server.start(QUEUE_JOB_LIMIT="100")
    victim = member(server, VICTIM)
    for tenant, most in ((HOSTILE, 75), (ALSO_HOSTILE, 12)):
        hostile = member(server, tenant)
        answer = hostile.post("/jobs:batch", [job()] * 120).json()
        assert (answer["created_count"], answer["refused_count"]) == (most, 120 - most)
        problem = hostile.post("/jobs", job()).json()
        assert (problem["error"], problem["type"]) == ("INSUFFICIENT_STORAGE", "job_count")
        assert (problem["current"], problem["limit"], problem["requested"]) == (most, 75, 1), "its own figures"
    assert [victim.post("/jobs", job()).status for _ in range(5)] == [201] * 5
    assert server.client.get("/health?verbose=true").json()["components"]["capacity"].startswith("degraded")


def test_executions_of_one_tenant_do_not_remove_the_dead_letters_of_another(server: Server) -> None:
    server.start(EXECUTION_HISTORY_LIMIT="50")
    hostile, victim = member(server, HOSTILE), member(server, VICTIM)
    with target() as url:
        run_now(victim, 3, url=f"{url}/missing")
        run_now(victim, 3, url=url)
        run_now(hostile, 70, url=url)  # more than the whole ledger has room for
    server.kill()
    server.start(EXECUTION_HISTORY_LIMIT="50")  # retention is the first that a node does
    hostile, victim = member(server, HOSTILE), member(server, VICTIM)

    def is_trimmed() -> bool:
        return sum(int(one.get("/executions").json()["total"]) for one in (hostile, victim)) <= 50

    wait_until(is_trimmed, PATIENCE_SECONDS, "the ledger is as small as it may be")
    assert hostile.get("/executions").json()["total"] == 44
    assert victim.get("/executions").json()["total"] == 6
    assert len(victim.get("/dead-letters").json()["executions"]) == 3
