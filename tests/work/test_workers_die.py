"""Killed workers and nodes: a function runs again, or continues, and is never lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from cluster.processes import Server, wait_until
from work.conftest import StartWorker
from work.workers import Asker

pytestmark = pytest.mark.slow

AT_ONCE = {"delays": [0, 0, 0]}


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_another_worker_continues_from_the_progress_of_a_killed_one(
    server: Server, ask: Asker, start_worker: StartWorker, pool: str
) -> None:
    server.start()
    first = start_worker("--pool", pool, "--concurrency", "2")
    job_id = ask.call("hang_once", timeout_seconds=600, retry_policy=AT_ONCE)
    execution_id = ask.wait_for_run(job_id)
    wait_until(lambda: "saved" in ask.logs(execution_id), 20, "the first attempt has saved how far it came")
    second = start_worker("--pool", pool, "--concurrency", "2")
    ask.wait_for_workers(2)
    first.kill()
    ended = ask.wait_for_end(job_id)
    assert (ended["state"], ended["attempt"], ended["execution_id"]) == ("COMPLETED", 2, execution_id)
    assert [one["error_type"] for one in ask.attempts(execution_id)] == ["lease_lost", None]
    result = {"id": execution_id, "attempt": 2, "from": {"rows": 17}}
    assert json.loads(ended["response"]) == result
    log = ask.logs(execution_id)
    assert log.index("attempt 1 begins") < log.index("attempt 2 begins")
    wait_until(lambda: not first.processes(), 5, "nothing of the first worker is left")
    assert second.stop() == 0, second.errors()
    assert not second.processes()


def test_a_worker_outlives_its_node(server: Server, ask: Asker, start_worker: StartWorker, tmp_path: Path) -> None:
    """The node is killed and restarted on the same port. Ends are then reported to the new node."""
    server.start(WORKER_LEASE_SECONDS="30s")
    worker = start_worker()
    job_id = ask.call("last", str(tmp_path), timeout_seconds=600)
    wait_until((tmp_path / "begun").exists, 20, "it runs")
    server.kill()
    (tmp_path / "go").touch()
    server.port = server.client.port
    server.start(WORKER_LEASE_SECONDS="30s")
    ended = ask.wait_for_end(job_id)
    assert (ended["state"], ended["attempt"]) == ("COMPLETED", 1)
    assert worker.stop() == 0, worker.errors()


def test_two_thousand_functions_run_exactly_once(
    server: Server, ask: Asker, start_worker: StartWorker, tmp_path: Path
) -> None:
    total, tally = 2_000, tmp_path / "tally"
    server.start(WORKER_LEASE_SECONDS="60s")
    for _ in range(2):
        start_worker(TALLY=str(tally))
    ask.wait_for_workers(2)
    bodies = [
        {"name": "count", "type": "python", "schedule": "immediate", "payload": {"function": "count", "args": [number]}}
        for number in range(total)
    ]
    answer = server.client.post("/jobs:batch", bodies)
    assert (answer.status, answer.json()["created_count"]) == (200, total)
    path = "/executions?state=COMPLETED&limit=1"
    wait_until(lambda: server.client.get(path).json()["total"] == total, 60, "all have run", 0.05)
    ran = Counter(map(int, tally.read_text().split()))
    assert set(ran) == set(range(total))
    assert ran.most_common(1)[0][1] == 1
    attempts = Counter(row["attempt"] for row in server.client.pages("/executions", "executions"))
    assert attempts == {1: total}
