"""Small requests about a large job: they need neither memory nor disk in proportion to the job's size."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import Known, token
from api.person import FAR
from cluster.processes import Server, wait_until
from patience import PATIENCE_SECONDS
from security.nodes import STORES, nodes
from security.raw import MEGABYTE, peak_memory

LISTS: list[Any] = [[]] * 9_000  # as many as two of them may be in a job; decoded, 0.6 MB
BODY: list[Any] = [[[]] * 19_000, "x" * 200_000]  # decoded, some 1.5 MB
RUNS, CHANGES, CALLS = 60, 10, 12


on_both_stores = pytest.mark.parametrize("store", [STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A shared node. Each test uses its own tenant."""
    with nodes(request.param, tmp_path_factory.mktemp("large")) as started:
        yield started[0]


@pytest.fixture
def silent_target() -> Iterator[str]:
    """A target that accepts connections and never reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def member(server: Server, tenant: str) -> Known:
    bearer = token(tenant, f"user-of-{tenant}", role="admin", tier="enterprise")
    return Known(server.client.port, {"Authorization": f"Bearer {bearer}"})


@on_both_stores
def test_runs_of_a_large_job_at_a_target_that_hangs_take_bounded_memory(
    store: str, silent_target: str, tmp_path: Path
) -> None:
    """Uses its own node, so that no other test affects its peak memory."""
    with nodes(store, tmp_path, DISPATCHER_WORKERS="64") as started:
        check_memory_of_executions(started[0], silent_target)


def check_memory_of_executions(server: Server, silent_target: str) -> None:
    hostile, victim = member(server, "hostile"), member(server, "victim")
    payload = {"url": silent_target, "body": BODY}
    job_id = hostile.create(payload=payload, overlap="allow", timeout_seconds=600)
    assert hostile.post(f"/jobs/{job_id}/run").status == 202
    assert server.process is not None
    before = peak_memory(server.process.pid)
    for _ in range(RUNS - 1):
        assert hostile.post(f"/jobs/{job_id}/run").status == 202

    def running() -> int:
        return int(hostile.get(f"/jobs/{job_id}/executions?state=RUNNING&limit=1").json()["total"])

    wait_until(lambda: running() == RUNS, PATIENCE_SECONDS, "all are under way")
    other = victim.create("immediate")
    victim.wait_for_ends([other], PATIENCE_SECONDS)
    assert peak_memory(server.process.pid) - before < RUNS * MEGABYTE + 40 * MEGABYTE


def test_changes_of_a_large_job_leave_small_entries_in_the_audit(server: Server) -> None:
    hostile = member(server, "changes")
    job_id = hostile.create(payload={"url": "http://127.0.0.1:9/", "body": "x" * 400_000})
    for number in range(CHANGES):
        assert hostile.request("PATCH", f"/jobs/{job_id}", {"name": f"number {number}"}).status == 200
    assert hostile.request("PATCH", f"/jobs/{job_id}", {"payload": {"body": "y" * 400_000}}).status == 200
    assert hostile.request("DELETE", f"/jobs/{job_id}?purge=true").status == 200
    many = {"name": "many", "tags": {f"{n:0255}": "v" * 255 for n in range(50)}, "description": "d" * 2000}
    other = hostile.create(**many)
    assert hostile.request("PATCH", f"/jobs/{other}", {"tags": {}, "description": ""}).status == 200
    entries = hostile.get("/audit?limit=100").json()["entries"]
    assert len(entries) >= CHANGES + 5
    assert max(len(json.dumps(entry)) for entry in entries) < 2000
    (second,) = [entry for entry in entries if (entry["after"] or {}).get("name") == "number 1"]
    assert (second["before"], second["after"]) == ({"name": "number 0"}, {"name": "number 1"})


def test_creating_and_purging_a_large_job_over_and_over_grows_the_data_by_little(server: Server) -> None:
    hostile = member(server, "purges")
    size = 0
    for _ in range(CHANGES):
        job_id = hostile.create(FAR, payload={"url": "http://127.0.0.1:9/", "body": "x" * 400_000})
        assert hostile.request("DELETE", f"/jobs/{job_id}?purge=true").status == 200
    for entry in hostile.get("/audit?limit=100").json()["entries"]:
        size += len(json.dumps(entry))
    assert size < CHANGES * 2 * 2000


def test_a_worker_gets_large_arguments_a_few_at_a_time(server: Server) -> None:
    hostile = member(server, "calls")
    args, kwargs = [LISTS, "x" * 400_000], {"a": LISTS}
    payload = {"function": "f", "args": args, "kwargs": kwargs}
    job_id = hostile.create(type="python", payload=payload, overlap="allow")
    for _ in range(CALLS):
        assert hostile.post(f"/jobs/{job_id}/run").status == 202
    joined = hostile.post("/workers/join", {"name": "w", "functions": ["f"], "slots": CALLS}).json()
    worker, got = joined["worker_id"], []
    while len(got) < CALLS:
        polled = hostile.post("/workers/poll", {"worker_id": worker, "free": CALLS, "wait_seconds": 5}).json()
        assert len(polled["assignments"]) in range(1, 10), "4 MB of arguments"
        assert all((one["args"], one["kwargs"]) == (args, kwargs) for one in polled["assignments"])
        got += polled["assignments"]
    claims = [{name: one[name] for name in ("execution_id", "attempt", "token")} for one in got]
    ended = [{**claim, "started_at": 1, "ended_at": 2, "result": "7"} for claim in claims]
    reported = hostile.post("/workers/report", {"worker_id": worker, "running": [], "ended": ended})
    assert (reported.status, reported.json()) == (200, {})
    assert [row["state"] for row in hostile.executions(job_id)] == ["COMPLETED"] * CALLS
    assert hostile.get(f"/jobs/{job_id}").json()["payload"]["args"] == args, "and it is shown as it was made"
