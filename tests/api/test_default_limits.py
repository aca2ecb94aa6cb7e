"""Default limits of attempts: by type, or set by the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.person import FAR
from cluster.processes import Client, Server

TYPES: dict[str, dict[str, Any]] = {
    "http_request": {"url": "https://hook.example/"},
    "script": {"argv": ["backup"]},
    "sql_query": {"connection": "main", "statement": "SELECT 1"},
    "python": {"function": "report"},
}


def body(kind: str, **fields: Any) -> dict[str, Any]:
    return {"name": kind, "type": kind, "schedule": FAR, "payload": TYPES[kind], **fields}


def limits(client: Client, job_id: str) -> tuple[float, int]:
    """Returns the timeout of an attempt and the number of retries."""
    job = client.get(f"/jobs/{job_id}").json()
    return job["timeout_seconds"], job["retry_policy"]["max_retries"]


def with_connection(client: Client) -> Client:
    """The connection that the SQL jobs name."""
    assert client.put("/connections/main", {"url": "postgresql://app@db.example/app"}).status == 200
    return client


@pytest.fixture(scope="module")
def plain(scripting: Client) -> Client:
    return with_connection(scripting)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server whose operator has set limits for jobs without their own."""
    server = Server(
        tmp_path_factory.mktemp("strict"), ALLOW_SQL="true", ALLOW_SCRIPTS="true", JOB_EXECUTION_TIMEOUT="2m",
        MAX_EXECUTION_ATTEMPTS="2",
    ).start()  # fmt: skip
    yield with_connection(server.client)
    server.close()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("http_request", (30, 3)), ("script", (3600, 0)), ("sql_query", (300, 3)), ("python", (3600, 3))],
)
def test_each_type_has_its_own_defaults_and_shows_them(plain: Client, kind: str, expected: tuple[float, int]) -> None:
    made = plain.post("/jobs", body(kind))
    assert made.status == 201, made
    job_id = made.json()["job_id"]
    assert limits(plain, job_id) == expected
    said = plain.post("/jobs", body(kind, timeout_seconds=7, retry_policy={"max_retries": 1})).json()["job_id"]
    assert limits(plain, said) == (7, 1)
    assert plain.patch(f"/jobs/{said}", {"timeout_seconds": None, "retry_policy": None}).status == 200
    assert limits(plain, said) == expected, "what is reset is the type's again"


def test_why_shows_the_limits_of_an_attempt(plain: Client) -> None:
    job_id = plain.post("/jobs", body("script")).json()["job_id"]
    assert plain.get(f"/jobs/{job_id}/why").json()["attempts"] == (
        "An attempt may take 1 h (timeout_seconds), and one that fails is not tried again (retry_policy)."
    )


@pytest.mark.parametrize("kind", TYPES)
def test_the_operators_defaults_apply_to_jobs_without_their_own(strict: Client, kind: str) -> None:
    made = strict.post("/jobs", body(kind)).json()["job_id"]
    (listed,) = strict.post("/jobs:batch", [body(kind)]).json()["created"]
    assert strict.put(f"/jobs/by-key/{kind}", body(kind)).status == 201
    assert strict.put(f"/jobs/by-key/{kind}", body(kind, description="again")).status == 200
    kept = next(job for job in strict.get("/jobs?limit=100").json()["jobs"] if job["key"] == kind)["job_id"]
    for job_id in (made, listed, kept):
        assert limits(strict, job_id) == (120, 1)
    said = strict.post("/jobs", body(kind, timeout_seconds=30, retry_policy={"max_retries": 3})).json()["job_id"]
    assert limits(strict, said) == (30, 3)


def test_a_job_that_was_read_can_be_sent_back_unchanged(strict: Client) -> None:
    job_id = strict.post("/jobs", body("http_request", delivery="at_most_once")).json()["job_id"]
    shown = strict.get(f"/jobs/{job_id}").json()
    change = {name: shown[name] for name in ("timeout_seconds", "retry_policy", "delivery")}
    assert strict.put(f"/jobs/{job_id}", change).status == 200
    assert limits(strict, job_id) == (120, 0)
