"""Daily quotas for new jobs, shared by two nodes, and the limits of the store, which apply to all users."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from api.people import SETTINGS, Known, database, on_postgresql, token
from api.person import FAR
from cluster.processes import Server
from patience import PATIENCE_SECONDS

JOB = {"name": "a job", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/nobody"}}
EMISSION = 864  # seconds a job, at a hundred a day


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    folder = tmp_path_factory.mktemp("quotas")
    with database() as url:
        servers = [on_postgresql(folder / name, url).start(FREE_REQUESTS_PER_HOUR="1000") for name in ("one", "two")]
        yield servers
        for server in servers:
            server.close()


def as_user(server: Server, user_id: str, tier: str) -> Known:
    return Known(server.client.port, {"Authorization": f"Bearer {token('acme', user_id, tier=tier)}"})


class TestNewJobsADay:
    def test_a_hundred_jobs_pass_and_the_next_gets_a_retry_after(self, nodes: list[Server]) -> None:
        people = [as_user(server, "fred", "free") for server in nodes]
        began = time.time()
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda number: people[number % 2].post("/jobs", JOB), range(160)))
        assert Counter(answer.status for answer in answers) == {201: 100, 429: 60}
        for person in people:
            refused = person.post("/jobs", JOB)
            problem = refused.json()
            assert (refused.status, problem["error"]) == (429, "QUOTA_EXCEEDED")
            assert EMISSION - (time.time() - began) - 1 <= problem["retry_after"] <= EMISSION
            assert refused.headers["retry-after"] == str(problem["retry_after"])
            assert "100 new jobs a day" in problem["message"]
        assert people[0].get("/jobs").json()["total"] == 100

    def test_every_way_to_create_counts_and_only_created_jobs_do(self, nodes: list[Server]) -> None:
        person, other = (as_user(server, "gus", "free") for server in nodes)
        bad = person.post("/jobs", {**JOB, "schedule": "never"})
        assert bad.status == 400
        batch = other.post("/jobs:batch", [JOB] * 150)
        assert (batch.json()["created_count"], batch.json()["refused_count"]) == (100, 50)
        assert {row["error"] for row in batch.json()["refused"]} == {"QUOTA_EXCEEDED"}
        assert person.request("PUT", "/jobs/by-key/mine", JOB).status == 429
        assert person.post("/jobs", JOB, Idempotency_Key="once").status == 429

    def test_each_user_has_a_quota_and_enterprise_has_none(self, nodes: list[Server]) -> None:
        assert as_user(nodes[0], "hal", "free").post("/jobs", JOB).status == 201
        boundless = as_user(nodes[1], "ida", "enterprise").post("/jobs:batch", [JOB] * 300)
        assert boundless.json()["created_count"] == 300
        assert boundless.headers["x-ratelimit-remaining"] == boundless.headers["x-ratelimit-limit"] == "2147483647"


class TestRoom:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[Server]:
        port = str(_free_port())
        server = Server(
            tmp_path, **SETTINGS, QUEUE_JOB_LIMIT="20", TENANT_CAPACITY_PERCENT="100", METRICS_PORT=port
        ).start()
        server.metrics_port = port  # type: ignore[attr-defined]
        yield server
        server.close()

    def test_a_full_store_refuses_jobs_until_one_is_removed(self, server: Server) -> None:
        person = as_user(server, "ann", "enterprise")
        ids = [person.create() for _ in range(17)]
        assert server.client.get("/health").status == 200
        ids += [person.create() for _ in range(3)]
        refused = person.post("/jobs", JOB)
        problem = refused.json()
        assert (refused.status, problem["error"], problem["type"]) == (507, "INSUFFICIENT_STORAGE", "job_count")
        assert (problem["current"], problem["limit"], problem["requested"]) == (20, 20, 1)
        health = server.client.get("/health?verbose=true")
        assert (health.status, health.json()["status"]) == (200, "degraded")
        assert health.json()["components"]["capacity"].startswith("degraded: 100.0 %")
        jobs = health.json()["jobs"]
        assert (jobs["current_count"], jobs["limit"], jobs["available"]) == (20, 20, 0)
        assert sum(jobs["by_status"].values()) == 20
        figures = metrics(server.metrics_port)  # type: ignore[attr-defined]
        assert (figures["duetime_queue_job_count"], figures["duetime_queue_job_limit"]) == (20, 20)
        assert figures['duetime_job_rejections_total{reason="job_count"}'] == 1
        assert figures["duetime_queue_memory_usage_bytes"] == health.json()["memory"]["current_bytes"] > 20 * 512
        assert person.delete(f"/jobs/{ids[0]}?purge=true").status == 200
        assert person.post("/jobs", JOB).status == 201
        assert person.post("/jobs", JOB).status == 507

    def test_the_memory_limit_refuses_jobs(self, tmp_path: Path) -> None:
        server = Server(tmp_path, **SETTINGS, QUEUE_MEMORY_LIMIT="7KB", TENANT_CAPACITY_PERCENT="100").start()
        person = as_user(server, "ann", "enterprise")
        job_id = person.create()
        wide: dict[str, Any] = {**JOB, "description": "x" * 1900}
        statuses = [person.post("/jobs", wide).status for _ in range(5)]
        assert statuses == [201, 201, 507, 507, 507]
        problem = person.post("/jobs", wide).json()
        assert (problem["type"], problem["limit"]) == ("memory", 7168)
        assert problem["current"] + problem["requested"] > 7168
        assert person.patch(f"/jobs/{job_id}", {"description": "y" * 2000, "tags": {"a": "b" * 255}}).status == 507
        assert person.patch(f"/jobs/{job_id}", {"description": "short"}).status == 200
        server.close()


def metrics(port: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in re.findall(r"^([^# ]+) ([0-9.e+]+)$", "\n".join(lines), re.MULTILINE)}


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
