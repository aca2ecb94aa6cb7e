"""kill -9 at every stage: nothing is missing, each instant has one execution, and all of them end."""

from __future__ import annotations

import random
import signal
import socket
import threading
import time
from collections import Counter

import pytest

from cluster.checker import Objectives
from cluster.processes import Server, now_ms, wait_until
from cluster.scenario import LOST_ATTEMPTS, Scenario
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

BURST = 1000
MOST_IN_FLIGHT = 64  # against one endpoint
# Results are written as they arrive: a kill finds a part of the burst unwritten, and never most of it. The target
# is slow, so that a burst lasts much longer than results are gathered, on a fast machine too.
MOST_UNRECORDED = BURST // 2
SLOW = "/slow/0.15"
FAR = "2099-01-01T00:00:00Z"


def burst(scenario: Scenario, lead_ms: int, path: str = "/ok") -> int:
    """1,000 webhooks that are due at one instant, which is returned."""
    at = scenario.soon(lead_ms)
    scenario.create_batch([scenario.at(at, path) for _ in range(BURST)])
    return at


def requests_reach(scenario: Scenario, count: int) -> None:
    wait_until(lambda: scenario.receiver.count() >= count, 30, f"{count} requests", 0.002)


class TestKillDuringABurst:
    def test_before_it_is_due(self, scenario: Scenario) -> None:
        scenario.server.start()
        at = burst(scenario, 1500)
        scenario.kill()
        assert now_ms() < at, "the machine was too busy to create the burst before it was due"
        scenario.server.start()
        scenario.wait_for_quiet()
        report = scenario.assert_green(Objectives(most_repeated=0))
        assert report.counts["requests"] == BURST

    def test_in_the_middle_of_it(self, scenario: Scenario) -> None:
        scenario.server.start()
        burst(scenario, 1500, SLOW)
        requests_reach(scenario, BURST // 3)
        scenario.kill()
        assert scenario.receiver.count() < BURST
        scenario.server.start()
        scenario.wait_for_quiet()
        scenario.assert_green(Objectives(most_repeated=MOST_UNRECORDED))

    def test_after_the_last_request(self, scenario: Scenario) -> None:
        scenario.server.start()
        burst(scenario, 1500, SLOW)
        requests_reach(scenario, BURST)
        scenario.kill()
        scenario.server.start()
        scenario.wait_for_quiet()
        scenario.assert_green(Objectives(most_repeated=MOST_UNRECORDED))

    def test_three_times_in_the_middle_of_it(self, scenario: Scenario) -> None:
        scenario.server.start()
        burst(scenario, 1500, SLOW)
        for reached in (BURST // 4, BURST // 2, 3 * BURST // 4):
            requests_reach(scenario, reached)
            scenario.kill()
            scenario.server.start()
        scenario.wait_for_quiet()
        scenario.assert_green(Objectives(most_repeated=MOST_UNRECORDED))


# Creates come one after the other, with one commit each: commit 30 is a create, commit 86 a later fire or finish.
@pytest.mark.parametrize(
    "crash_at",
    [
        "before_commit:30", "before_commit:86", "after_commit:30", "after_commit:86",
        "after_plan:1", "after_plan:4", "after_fire:1", "after_fire:4",
        "before_attempt:1", "before_attempt:55", "after_attempt:1", "after_attempt:55",
        "before_finish:1", "before_finish:5", "after_finish:1", "after_finish:5",
    ],
)  # fmt: skip
def test_a_crash_at_a_named_point_loses_nothing(scenario: Scenario, crash_at: str) -> None:
    scenario.server.start(CRASH_AT=crash_at)
    at = scenario.soon(1500)
    for _ in range(40):
        scenario.create(scenario.at(at))
    for _ in range(20):
        scenario.create(scenario.at(at + 500, retry_policy={"max_retries": 0}))
    recurring = [("every 1s", "skip"), ("every 1s", "allow"), *[("* * * * * *", "queue_all")] * 2]
    for schedule, overlap in recurring * 5:
        scenario.create_for(1200, at, scenario.body(schedule, overlap=overlap))
    scenario.await_crash(15)
    scenario.wait_for_quiet()
    scenario.assert_green(Objectives(most_repeated=100))


def test_creates_that_a_kill_interrupts_are_repeated_with_their_key_and_stored_once(scenario: Scenario) -> None:
    server, clients, each = scenario.server.start(), 6, 80
    answers: dict[str, str] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS

    def create(client: int) -> None:
        for number in range(each):
            name = f"{client}-{number}"
            body = scenario.body(FAR, name=name)
            while time.monotonic() < deadline:
                try:
                    answer = server.client.post("/jobs", body, idempotency_key=name)
                except ConnectionError:
                    time.sleep(0.01)
                    continue
                if answer.status == 201:
                    answers[name] = answer.json()["job_id"]
                    break
                assert answer.status == 409, answer  # the first request is still running: repeat it later

    threads = [threading.Thread(target=create, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for reached in (60, 180, 320):
        wait_until(lambda reached=reached: len(answers) >= reached, 30, f"{reached} creates", 0.001)
        scenario.kill()
        server.start()
    for thread in threads:
        thread.join(60)
    stored = {job["job_id"]: job["name"] for job in server.client.pages("/jobs", "jobs")}
    assert len(answers) == clients * each
    assert {name: job_id for job_id, name in stored.items()} == answers
    assert not [name for name, count in Counter(stored.values()).items() if count > 1]


def test_random_kills_over_six_seconds_of_recurring_jobs_miss_no_instant(scenario: Scenario) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 (shown when it fails)
    rng = random.Random(seed)
    scenario.server.start()
    end = scenario.soon(6000)  # long after the last create
    end_at = scenario.at(end)["schedule"]
    for number in range(60):
        schedule = ("every 1s", "* * * * * *", "*/2 * * * * *", "every 2s")[number % 4]
        overlap = ("skip", "allow", "queue_one", "queue_all")[number // 4 % 4]
        scenario.create(scenario.body(schedule, end_at=end_at, overlap=overlap))
    while now_ms() < end:
        time.sleep(rng.uniform(0.3, 1.4))  # the fault: a random moment
        scenario.kill()
        scenario.server.start()
    scenario.wait_for_quiet()
    report = scenario.assert_green()
    assert report.counts["due instants"] >= 60 * 2


class TestSigterm:
    def test_a_node_in_a_burst_drains_and_exits_0_and_the_rest_runs_later(self, scenario: Scenario) -> None:
        server = scenario.server
        server.start(DISPATCHER_DRAIN_TIMEOUT="1s", HTTP_SHUTDOWN_TIMEOUT="1s")
        burst(scenario, 1500, "/slow/0.2")
        requests_reach(scenario, 200)
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 0, server.errors()
        assert scenario.receiver.count() < BURST, "it did not wait for all"
        server.start()
        scenario.wait_for_quiet()
        scenario.assert_green(Objectives(most_repeated=2 * MOST_IN_FLIGHT))

    def test_with_enough_time_all_claims_end_and_none_is_sent_twice(self, scenario: Scenario) -> None:
        server = scenario.server.start()
        burst(scenario, 1500, "/slow/0.05")
        requests_reach(scenario, 200)
        server.signal(signal.SIGTERM)
        assert server.wait(20) == 0, server.errors()
        server.start()
        scenario.wait_for_quiet()
        scenario.assert_green(Objectives(most_repeated=0))

    def test_a_follower_of_events_does_not_delay_the_stop(self, server: Server) -> None:
        server.start(HTTP_SHUTDOWN_TIMEOUT="1s")
        with socket.create_connection(("127.0.0.1", server.client.port), timeout=PATIENCE_SECONDS) as follower:
            follower.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b": following" not in answer:
                answer += follower.recv(4096)
            server.signal(signal.SIGTERM)
            assert server.wait(10) == 0, server.errors()


class TestRetries:
    def test_survive_a_restart_and_stay_within_their_limit(self, scenario: Scenario) -> None:
        server = scenario.server.start()
        at, policy = scenario.soon(500), {"delays": [scenario.lasting(2500) / 1000, 0.5]}
        paths = ["/fail-until/3", "/status/500"] * 25
        scenario.create_batch([scenario.at(at, path, retry_policy=policy) for path in paths])
        waiting = "/executions?state=RETRYING&limit=1"
        wait_until(lambda: server.client.get(waiting).json()["total"] == 50, 10, "all failed once")
        scenario.kill()
        server.start()
        scenario.wait_for_quiet()
        report = scenario.assert_green()
        assert report.counts["requests"] == 150  # three each: no attempt was lost, and none was repeated
        ended = Counter(row["state"] for row in server.client.pages("/executions", "executions"))
        assert ended == {"COMPLETED": 25, "FAILED": 25}
        assert server.client.get("/dead-letters").json()["total"] == 25


class TestPoison:
    def test_an_execution_that_kills_its_node_each_time_becomes_a_dead_letter(self, scenario: Scenario) -> None:
        server = scenario.server.start(CRASH_AT="before_attempt")
        job = scenario.create(scenario.body("immediate"))
        for _ in range(LOST_ATTEMPTS):
            assert server.wait(10) == -signal.SIGKILL, server.errors()
            start_to_crash(server)
        scenario.wait_for_quiet()
        (execution,) = server.client.get(f"/jobs/{job.job_id}/executions").json()["executions"]
        assert (execution["state"], execution["attempt"], execution["dead"]) == ("FAILED", LOST_ATTEMPTS, True)
        assert execution["error_type"] == "lease_lost"
        scenario.assert_green()


def start_to_crash(server: Server) -> None:
    """Starts the server with the crash configured again: it may die before it serves."""
    try:
        server.start(CRASH_AT="before_attempt")
    except AssertionError:
        assert server.returncode() == -signal.SIGKILL, server.errors()


class TestAnotherName:
    def test_a_machine_with_another_name_after_the_crash_takes_over_its_executions(self, scenario: Scenario) -> None:
        server = scenario.server.start(NODE_NAME="before")
        scenario.create_batch([scenario.at(scenario.soon(300), "/slow/2") for _ in range(20)])
        running = "/executions?state=RUNNING&limit=1"
        wait_until(lambda: server.client.get(running).json()["total"] == 20, 10, "all are running")
        scenario.kill()
        server.start(NODE_NAME="after")
        scenario.wait_for_quiet(10)
        scenario.assert_green()
