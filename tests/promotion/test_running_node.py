"""Promotion of running nodes, in real processes: the node is stopped first, and no instant is missed or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import Receiver, Server, now_ms, wait_until
from cluster.scenario import Scenario
from node_forks import fork_server
from promotion.source import rows_of
from promotion.typed import environment, promote, serve

pytestmark = pytest.mark.slow


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path)
    yield receiver
    receiver.close()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "old")
    yield server
    server.close()


@pytest.fixture
def new(tmp_path: Path, target: str) -> Iterator[Server]:
    server = Server(tmp_path / "new", DATABASE_URL=target)
    yield server
    server.close()


def test_a_promotion_of_a_running_node_misses_and_doubles_nothing(
    old: Server, new: Server, receiver: Receiver, target: str
) -> None:
    scenario = Scenario(old.start(), receiver)
    end_at = scenario.at(end := scenario.soon(9000))["schedule"]
    bodies = [scenario.body("every 1s", end_at=end_at, overlap=overlap) for overlap in ("skip", "allow") * 10]
    bodies += [
        scenario.body("* * * * * *", path, end_at=end_at, overlap="queue_all") for path in ("/ok", "/slow/0.4") * 5
    ]
    bodies += [scenario.at(scenario.soon(3000 + 50 * n), retry_policy={"max_retries": 0}) for n in range(80)]
    bodies += [scenario.at(scenario.soon(1000), "/fail-until/3", retry_policy={"delays": [2, 2]}) for _ in range(5)]
    for body in bodies:
        scenario.create(body)
    wait_until(lambda: receiver.count() > 60, 15, "60 requests")

    done = promote(old.data, "--to", target, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert f"process {old.process.pid} was asked to stop" in done.stderr  # type: ignore[union-attr]
    assert old.wait(1) == 0, old.errors()
    facts = {check["what"]: check["source"] for check in json.loads(done.stdout)["checks"]}
    assert facts["executions"] > 60

    scenario.server = new.start()
    assert "was promoted to" in serve(old.data).stderr
    wait_until(lambda: now_ms() > end + 1000, 15, "the jobs are over")
    scenario.wait_for_quiet()
    report = scenario.assert_green()
    assert report.counts["executions"] > facts["executions"]


def test_a_node_that_waits_on_the_target_takes_over_by_itself(
    old: Server, new: Server, receiver: Receiver, target: str
) -> None:
    new.start()
    scenario = Scenario(old.start(), receiver)
    end_at = scenario.at(end := scenario.soon(8000))["schedule"]
    for _ in range(20):
        scenario.create(scenario.body("every 1s", end_at=end_at, overlap="allow"))
    wait_until(lambda: receiver.count() > 20, 15, "20 requests")
    done = promote(old.data, "--to", target, "--yes")
    assert done.returncode == 0, done.stderr
    scenario.server = new
    wait_until(lambda: now_ms() > end + 1000, 15, "the jobs are over")
    scenario.wait_for_quiet()
    assert scenario.assert_green().counts["requests"] > 40


def test_executions_of_a_killed_node_run_again_on_the_target(
    old: Server, new: Server, receiver: Receiver, target: str
) -> None:
    scenario = Scenario(old.start(), receiver)
    at = scenario.soon(500)
    for _ in range(10):
        scenario.create(scenario.at(at, "/slow/2"))
    wait_until(lambda: ("RUNNING", 10) in states(old.data), 15, "ten are running")
    scenario.kill()
    done = promote(old.data, "--to", target)
    assert done.returncode == 0, done.stderr
    scenario.server = new.start()
    scenario.wait_for_quiet()
    scenario.assert_green()
    executions = scenario.server.client.pages("/executions", "executions")
    assert [(each["state"], each["attempt"]) for each in executions] == [("COMPLETED", 2)] * 10


def states(folder: Path) -> list[tuple[str, int]]:
    return rows_of(folder, "SELECT state, count(*) FROM executions GROUP BY state")


def test_without_a_confirmation_the_node_is_not_stopped(old: Server, target: str) -> None:
    old.start()
    asked = promote(old.data, "--to", target)
    assert asked.returncode == 1
    assert "A node runs on" in asked.stderr
    assert "use --yes" in asked.stderr
    assert old.client.get("/health").status == 200
    assert rows_of(old.data, "SELECT * FROM promotion") == []


def test_a_node_is_not_stopped_for_a_refused_target(old: Server) -> None:
    old.start()
    assert promote(old.data, "--to", "postgresql://127.0.0.1:9/duetime", "--yes").returncode == 1
    assert old.returncode() is None


def test_the_promotion_waits_for_a_draining_node_which_cannot_be_restarted(
    old: Server, receiver: Receiver, target: str
) -> None:
    """The mark is set before the signal: a restart by a supervisor is refused."""
    scenario = Scenario(old.start(), receiver)
    scenario.create(scenario.at(now_ms(), "/slow/3"))
    wait_until(lambda: ("RUNNING", 1) in states(old.data), 10, "it runs")
    command = [*fork_server.command(), "promote", "--data", str(old.data), "--to", target, "--yes"]
    with subprocess.Popen(command, env=environment(), cwd=old.folder, stderr=subprocess.PIPE, text=True) as promoting:
        try:
            wait_until(lambda: rows_of(old.data, "SELECT * FROM promotion"), 10, "it is marked")
            assert serve(old.data).returncode == 1
            assert promoting.wait(30) == 0
        finally:
            promoting.kill()
    assert states(old.data) == [("COMPLETED", 1)], "it was waited for"


def test_a_promotion_killed_before_the_stop_can_be_undone_while_the_node_runs(old: Server, target: str) -> None:
    old.start()
    killed = promote(old.data, "--to", target, "--yes", CRASH_AT="promote_stopping")
    assert killed.returncode == -signal.SIGKILL
    assert old.client.get("/health").status == 200
    undone = promote(old.data, "--undo", "--to", target)
    assert undone.returncode == 0, undone.stderr
    old.signal(signal.SIGTERM)
    assert old.wait(20) == 0
    old.start()


def test_ctrl_c_while_the_node_drains_leaves_no_mark(old: Server, receiver: Receiver, target: str) -> None:
    scenario = Scenario(old.start(), receiver)
    scenario.create(scenario.at(now_ms(), "/slow/3"))
    wait_until(lambda: ("RUNNING", 1) in states(old.data), 10, "it runs")
    command = [*fork_server.command(), "promote", "--data", str(old.data), "--to", target, "--yes"]
    with subprocess.Popen(command, env=environment(), cwd=old.folder, stderr=subprocess.PIPE, text=True) as promoting:
        try:
            assert promoting.stderr is not None
            assert "was asked to stop" in promoting.stderr.readline()
            promoting.send_signal(signal.SIGINT)
            assert promoting.wait(10) == 130
            assert "interrupted; run it again" in promoting.stderr.read()
        finally:
            promoting.kill()
    assert rows_of(old.data, "SELECT * FROM promotion") == []
    assert old.wait(20) == 0
    old.start()
