"""Two real nodes on one PostgreSQL: the clock of one is wrong from its start."""

from __future__ import annotations

import urllib.request

import pytest

from cluster.cluster import Cluster
from cluster.database import _free_port as free_port
from cluster.processes import now_ms, wait_until
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow

DAY = 86_400_000
WRONG = """
import time
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + {seconds}
time.time_ns = lambda: real_ns() + {seconds} * 10**9
"""


@pytest.mark.parametrize("days", [40, -40])
def test_a_wrong_clock_causes_an_alarm_and_no_early_pruned_or_missed_execution(cluster: Cluster, days: int):
    cluster.start("a")
    for _ in range(5):
        cluster.create(cluster.body("immediate"))  # history that a clock 40 days ahead would prune
    cluster.wait_for_quiet()
    cluster.create_batch([cluster.at(now_ms() + DAY + number * DAY) for number in range(39)])
    wrong, port = cluster.add("b"), free_port()
    wrong.start(faulty(wrong, WRONG.format(seconds=days * 86_400)), METRICS_PORT=str(port))
    first_at = cluster.soon(1500)
    end = first_at + cluster.lasting(2500)
    cluster.create_spread(200, first_at, end)
    for schedule in ("every 1s", "* * * * * *"):
        cluster.create(cluster.body(schedule, end_at=cluster.at(end)["schedule"]))

    health = wrong.client.get("/health?verbose=true")
    way = "ahead of" if days > 0 else "behind"
    assert health.status == 503
    said = health.json()["components"]["clock"]
    assert said.startswith("unhealthy: this node's clock is 3,45")
    assert f"s {way} the database's" in said
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=15) as answer:
        figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    assert abs(float(figures["duetime_clock_offset_seconds"]) - days * 86_400) < 60

    refused = wrong.client.post("/jobs", cluster.body("immediate"))
    assert (refused.status, refused.json()["error"], refused.headers["retry-after"]) == (503, "OVERLOADED", "10")
    assert "so it accepts no changes; use another node" in refused.json()["message"]
    assert wrong.client.get("/jobs?limit=1").status == 200

    wait_until(lambda: now_ms() > first_at, 60, "the first is due", 0.005)
    cluster.wait_for_quiet(60)
    cluster.wait_for_shares("a")
    assert cluster.nodes["a"].client.get("/health").json() == {"status": "ok"}
    cluster.assert_green()
    assert "accepts no changes until the clock is right" in wrong.errors()
