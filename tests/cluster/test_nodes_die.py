"""Nodes of a cluster are killed, stopped and replaced: the others continue, and every instant has one execution."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.checker import Objectives
from cluster.cluster import Cluster
from cluster.processes import now_ms, wait_until
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow

# The long runs measure on an otherwise idle machine.
MEASURING = 1.0  # seconds: the error of a measurement from outside
UNRECORDED_MS = 500
FAR = "2099-01-01T00:00:00Z"


def kill_again_and_again(
    cluster: Cluster,
    jobs: int,
    seconds: float,
    every: float,
    objectives: Objectives = Objectives(),  # noqa: B008
) -> None:
    cluster.start("a", "b")
    every = cluster.lasting(every * 1000) / 1000
    begin = cluster.soon(2500 + jobs // 4)
    end = begin + cluster.lasting(seconds * 1000)
    cluster.create_spread(jobs, begin, end, "/slow/0.2")  # so that a kill interrupts some
    create_recurring(cluster, end)
    wait_until(lambda: now_ms() > begin, 60, "the first is due", 0.005)
    kills = 0
    while (kill_at := begin + (kills + 0.5) * every * 1000) < end - every * 500:
        wait_until(lambda: now_ms() > kill_at, 60, "the next kill", 0.005)
        victim, survivor = ("b", "a") if kills % 2 == 0 else ("a", "b")
        cluster.kill_node(victim)
        kills += 1
        cluster.wait_for_shares(survivor)
        cluster.start(victim)
    assert kills >= 2
    cluster.wait_for_quiet(60)
    report = cluster.assert_green(objectives)
    print(report)  # noqa: T201 (shown when it fails, or with -s)
    assert report.counts["repeated executions"] > 0, "no kill found a run under way: it proves less than it should"


def create_recurring(cluster: Cluster, end: int) -> None:
    for number in range(20):
        cluster.create(cluster.body(("every 1s", "* * * * * *")[number % 2], end_at=cluster.at(end)["schedule"]))


def test_two_nodes_with_one_killed_repeatedly_miss_and_double_nothing(cluster: Cluster) -> None:
    cluster.start("a", "b")
    create_recurring(cluster, cluster.soon(6000))
    with cluster.steady_load("/slow/0.4"):  # so that a kill interrupts some
        for victim, survivor in (("b", "a"), ("a", "b")):
            cluster.wait_for_requests(40)
            cluster.kill_node(victim)
            cluster.wait_for_shares(survivor)
            cluster.start(victim)
        cluster.wait_for_requests(40)
    cluster.wait_for_quiet(60)
    report = cluster.assert_green()
    assert report.counts["repeated executions"] > 0, "no kill found a run under way: it proves less than it should"


@pytest.mark.soak
def test_two_nodes_and_a_thousand_jobs_with_a_kill_every_seven_seconds(cluster: Cluster) -> None:
    kill_again_and_again(cluster, jobs=1000, seconds=17, every=7)


@pytest.mark.soak
def test_ten_thousand_jobs_over_a_minute_with_a_kill_every_ten_seconds(soak_cluster: Cluster) -> None:
    most = round((soak_cluster.lease + MEASURING) * 1000)
    objectives = Objectives(unrecorded_ms=UNRECORDED_MS, lateness_most_ms=most)
    kill_again_and_again(soak_cluster, jobs=10_000, seconds=60, every=10, objectives=objectives)


# With half of the shards it reads the cluster once an hour: anything earlier is the effect of a hint.
LOOKS_SELDOM = """
from duetime.engine import membership
whole = membership.next_look_in
membership.next_look_in = lambda view, node, beat: whole(view, node, beat if len(view.held_by(node)) != 32 else 3600000)
"""


def test_after_a_graceful_stop_the_other_node_owns_all_shards_before_its_next_heartbeat(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.add(name, NODE_LEASE_SECONDS="1h")  # nothing expires: an expiry would wake it, too
    cluster.nodes["a"].start(faulty(cluster.nodes["a"], LOOKS_SELDOM))
    cluster.start("b")
    begin = now_ms() + 1000
    cluster.create_spread(300, begin, begin + 2500, "/slow/0.3")
    wait_until(lambda: cluster.receiver.count() > 50, 20, "the load has begun", 0.005)
    cluster.terminate("b")
    cluster.wait_for_shares("a", seconds=60)
    assert cluster.nodes["b"].wait(60) == 0, cluster.errors()
    cluster.wait_for_quiet(60)
    report = cluster.assert_green(Objectives(most_repeated=0))
    assert report.counts["requests"] == 300


def restart_in_turn(cluster: Cluster, objectives: Objectives) -> None:
    # The interval passes many times: the node without the housekeeping must ignore it.
    cluster.start("a", "b", RECONCILE_INTERVAL="1s")
    begin = cluster.soon(2000)
    end = begin + cluster.lasting(13_000)
    cluster.create_spread(1000, begin, end, "/slow/0.1")
    for _ in range(20):
        cluster.create(cluster.body("every 1s", end_at=cluster.at(end)["schedule"]))
    wait_until(lambda: now_ms() > begin + 500, 10, "the load has begun", 0.005)
    for name in ("a", "b"):
        cluster.terminate(name)
        assert cluster.nodes[name].wait(20) == 0, cluster.errors()
        cluster.start(name, RECONCILE_INTERVAL="1s")
    assert now_ms() < end, "the load was over before the restarts were"
    cluster.wait_for_quiet()
    cluster.assert_green(objectives)


def test_a_rolling_restart_under_steady_load_misses_and_doubles_nothing(cluster: Cluster) -> None:
    # The interval passes many times: the node without the housekeeping must ignore it.
    cluster.start("a", "b", RECONCILE_INTERVAL="1s")
    create_recurring(cluster, cluster.soon(5000))
    with cluster.steady_load("/slow/0.1"):
        for name in ("a", "b"):
            cluster.wait_for_requests(40)
            cluster.terminate(name)
            assert cluster.nodes[name].wait(20) == 0, cluster.errors()
            cluster.start(name, RECONCILE_INTERVAL="1s")
        cluster.wait_for_requests(40)
    cluster.wait_for_quiet()
    cluster.assert_green(Objectives(most_repeated=0))


@pytest.mark.soak
def test_a_rolling_restart_under_steady_load_delays_nothing(cluster: Cluster) -> None:
    restart_in_turn(cluster, Objectives(most_repeated=0, lateness_most_ms=1500))


def test_creates_with_a_key_while_nodes_are_killed_create_one_job_per_key(cluster: Cluster) -> None:
    cluster.start("a", "b")
    clients, each = 6, 45
    answers: dict[str, str] = {}

    def create(client: int) -> None:
        for number in range(each):
            key = f"{client}-{number}"
            answer = cluster.insist("/jobs", cluster.body(FAR, name=key), key)
            assert answer.status == 201, answer
            answers[key] = answer.json()["job_id"]

    with ThreadPoolExecutor(clients) as pool:
        under_way = [pool.submit(create, client) for client in range(clients)]
        for reached, victim in ((40, "a"), (110, "b"), (180, "a")):
            wait_until(lambda reached=reached: len(answers) >= reached, 60, f"{reached} creates", 0.001)
            cluster.kill_node(victim)
            cluster.nodes[victim].start()
        for client in under_way:
            client.result(60)
    stored = [(job["name"], job["job_id"]) for job in cluster.server.client.pages("/jobs", "jobs")]
    assert len(answers) == clients * each
    assert sorted(stored) == sorted(answers.items())
