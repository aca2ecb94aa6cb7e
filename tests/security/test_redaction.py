"""A tenant marks far too much as secret: the node refuses it, and an older such job delays no other job.

The attacker determines the work of redaction: the secrets, and the text in which they are searched.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.person import FAR, OPEN, refused
from cluster.processes import Client, Server, now_ms, wait_until
from duetime.domain import commands as c
from duetime.domain.http_rules import HIDDEN
from duetime.domain.job import JobSpec, PythonJob, ScriptJob
from duetime.domain.payloads import PythonCall, Script
from duetime.domain.secrets import MOST_LEAVES, MOST_MARKED_CHARACTERS, encrypt_job
from duetime.store.sqlite.store import SqliteStore
from duetime.vault.aes import AesVault
from duetime.vault.key_file import KeyFile
from samples import new_job

LEAVES = 130_000
MANY = [f"{number:05x}"[::-1][:4] + "ghijklm"[number >> 16] for number in range(LEAVES)]  # as many as fit into one job
HEAVY = MANY[:90_000]  # nearly as many as a request may have values
FUNCTION = "steal.time"
ANSWERED_MEANWHILE = 3  # one that had started before the work, and more


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("redaction"), ALLOW_SCRIPTS="true", WORKER_LEASE_SECONDS="1h").start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def call(value: Any) -> dict[str, Any]:
    payload = {"function": FUNCTION, "kwargs": {"many": value}, "secret": ["/kwargs/many"]}
    return {"name": "many", "schedule": FAR, "type": "python", "payload": payload}


def request(value: Any) -> dict[str, Any]:
    return {
        "name": "many",
        "schedule": FAR,
        "payload": {"url": "http://127.0.0.1:9/", "body": value, "secret": ["/body"]},
    }


@pytest.mark.parametrize("body", [call, request])
def test_a_job_with_too_many_secret_values_is_refused_and_nothing_of_it_is_kept(server: Server, body: Any) -> None:
    before = job_ids(server)
    said = refused(server.client.post("/jobs", compact(body(HEAVY))), 400, "INVALID_REQUEST", "/payload/secret")
    assert f"{MOST_LEAVES:,}" in said
    assert job_ids(server) == before


def job_ids(server: Server) -> list[str]:
    return [job["job_id"] for job in server.client.pages("/jobs", "jobs")]


def compact(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def test_secret_values_are_counted_however_deep_they_are(server: Server) -> None:
    deep: Any = [str(number) for number in range(MOST_LEAVES + 1)]
    for _ in range(10):
        deep = {"deeper": [deep]}
    refused(server.client.post("/jobs", call(deep)), 400, "INVALID_REQUEST", "/payload/secret")


def test_too_long_a_secret_is_refused(server: Server) -> None:
    said = refused(
        server.client.post("/jobs", request("x" * (MOST_MARKED_CHARACTERS + 1))), 400, "INVALID_REQUEST",
        "/payload/secret",
    )  # fmt: skip
    assert f"{MOST_MARKED_CHARACTERS:,}" in said


def test_the_most_allowed_secrets_are_accepted_and_a_change_can_not_add_one(server: Server) -> None:
    made = server.client.post("/jobs", call(MANY[:MOST_LEAVES]))
    assert made.status == 201, made
    path = f"/jobs/{made.json()['job_id']}"
    assert server.client.patch(path, {"name": "still the same"}).status == 200
    refused(
        server.client.patch(path, compact({"payload": call(HEAVY)["payload"]})),
        400,
        "INVALID_REQUEST",
        "/payload/secret",
    )


# Jobs that were stored before the limit existed


def store_old(data: Path, *jobs: JobSpec) -> list[str]:
    """Puts jobs into the database of a node that does not run yet, past the API and its limits. Returns their ids."""

    async def put() -> list[str]:
        vault = AesVault((), KeyFile(data))
        vault.start()  # creates the key, as a node's first start does
        store = SqliteStore(data)
        await store.start()
        try:
            now = now_ms()
            made = tuple(encrypt_job(new_job(job, now=now, tenant="default"), vault) for job in jobs)
            (refused_because,) = await store.apply([c.CreateJobs(now, made)])
            assert refused_because is None
            return [job.job_id for job in made]
        finally:
            await store.stop()

    return asyncio.run(put())


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str, str]]:
    """A node with a call that has too many secrets, and a script with large ones. Yields their ids."""
    server = Server(tmp_path_factory.mktemp("old"), ALLOW_SCRIPTS="true", WORKER_LEASE_SECONDS="1h")
    server.data.mkdir(mode=0o700)
    large = {f"V{number}": f"{number:04}" + "v" * 4000 + f"-{number:04}" for number in range(100)}
    old_call, old_script = store_old(
        server.data,
        PythonJob(
            name="old", schedule="immediate", payload=PythonCall(FUNCTION, [], {"many": MANY}, ("/kwargs/many",))
        ),
        ScriptJob(
            name="old", schedule="immediate", payload=Script(script='echo "$V7"; echo "${V8}${V9} there"', env=large)
        ),
    )
    yield server.start(), old_call, old_script
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


@contextmanager
def watched_health(client: Client) -> Iterator[list[int]]:
    """Requests /health again and again while the block runs. Each response adds its status to the list."""
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.01):
            answers.append(client.get("/health").status)

    watch = threading.Thread(target=ask)
    watch.start()
    try:
        wait_until(lambda: answers, 10, "/health answers before anything happens")
        yield answers
    finally:
        over.set()
        watch.join()


@pytest.mark.slow
def test_health_responds_while_a_worker_reports_on_an_old_job_with_too_many_secrets(
    old: tuple[Server, str, str],
) -> None:
    server, job_id, _ = old
    client = server.client
    worker = client.post("/workers/join", {"name": "w", "functions": [FUNCTION], "slots": 1}).json()["worker_id"]

    def assigned() -> list[dict[str, Any]]:
        asked = {"worker_id": worker, "free": 1, "wait_seconds": 1}
        found: list[dict[str, Any]] = client.post("/workers/poll", asked).json().get("assignments", [])
        return found

    (one,) = wait_until(assigned, 10, "the old job is handed out")
    assert one["kwargs"] == {"many": MANY}
    claim = {name: one[name] for name in ("execution_id", "attempt", "token")}
    said = f"it was {MANY[4711]}, or {MANY[-1]}"
    report = {
        "worker_id": worker, "running": [], "notes": [{**claim, "text": f"{said}\n", "progress": {"at": MANY[1]}}],
        "ended": [{**claim, "started_at": 1, "ended_at": 2, "result": json.dumps(said)}],
    }  # fmt: skip
    with watched_health(client) as answers:
        before = len(answers)
        answer = client.post("/workers/report", report)
        meanwhile = answers[before:]
    assert answer.json() == {}
    assert len(meanwhile) >= ANSWERED_MEANWHILE, "the event loop did nothing else while it redacted"
    assert set(meanwhile) == {200}
    (execution,) = client.get(f"/jobs/{job_id}/executions").json()["executions"]
    hidden = f"it was {HIDDEN}, or {HIDDEN}"
    assert json.loads(execution["response"]) == hidden
    assert hidden in log_of(client, execution["execution_id"])


@pytest.mark.slow
def test_health_responds_while_a_script_floods_its_log_with_text_like_its_secrets(server: Server) -> None:
    nested = {f"S{length}": "a" * length for length in range(4, 100)}  # each is the beginning of the next
    script = "head -c 1000000 /dev/zero | tr '\\0' a; echo; echo the end"
    body = {
        "name": "flood", "schedule": "immediate", "type": "script", "payload": {"script": script, "env": nested},
    }  # fmt: skip
    client = server.client
    with watched_health(client) as answers:
        before = len(answers)
        job_id = client.post("/jobs", body).json()["job_id"]
        ended = wait_until(lambda: ended_of(client, job_id), 30, "the script has ended")
        meanwhile = answers[before:]
    assert ended["state"] == "COMPLETED"
    assert len(meanwhile) >= ANSWERED_MEANWHILE
    log = log_of(client, ended["execution_id"])
    assert f"{HIDDEN}\n" in log
    assert "the end" in log
    assert "aaaa" not in log


def test_an_old_script_with_large_secrets_still_runs_and_is_still_redacted(
    old: tuple[Server, str, str],
) -> None:
    server, _, job_id = old
    ended = wait_until(lambda: ended_of(server.client, job_id), 30, "the script has ended")
    assert ended["state"] == "COMPLETED"
    assert f"{HIDDEN}\n{HIDDEN} there\n" in log_of(server.client, ended["execution_id"])


def ended_of(client: Client, job_id: str) -> dict[str, Any]:
    found = [row for row in client.get(f"/jobs/{job_id}/executions").json()["executions"] if row["state"] not in OPEN]
    return found[0] if found else {}


def log_of(client: Client, execution_id: str) -> str:
    return str(client.get(f"/executions/{execution_id}/logs").json()["logs"])
