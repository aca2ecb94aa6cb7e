"""Two real nodes: failures on either open a circuit on both, one execution probes it, and no other job is late."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cluster.cluster import Cluster

pytestmark = pytest.mark.slow

COOLDOWN_MS = 1500


def requests_to(cluster: Cluster, word: str) -> list[dict[str, Any]]:
    return [line for line in cluster.receiver.lines() if word in line["path"]]


def test_both_nodes_stop_calling_a_target_and_one_execution_probes_it(cluster: Cluster) -> None:
    settings = {"CIRCUIT_BREAKER_THRESHOLD": "5", "CIRCUIT_BREAKER_COOLDOWN": f"{COOLDOWN_MS}ms"}
    cluster.start("a", "b", **settings)
    once = {"retry_policy": {"max_retries": 0}}
    begin, span = cluster.soon(1500), cluster.lasting(3 * COOLDOWN_MS)
    cluster.create_spread(300, begin, begin + span, "/status/500", **once)  # on both nodes
    cluster.create_spread(300, begin, begin + span, "/well", **once)
    cluster.wait_for_quiet(40)
    circuits = [node.client.get("/circuits").json()["circuits"] for node in cluster.nodes.values()]
    assert [[it["state"] for it in found] for found in circuits] in ([["OPEN"]] * 2, [["HALF_OPEN"]] * 2)
    sent = sorted(line["t_start"] for line in requests_to(cluster, "/status/500"))
    at_first = [at for at in sent if at < sent[4] + COOLDOWN_MS]
    assert 5 <= len(at_first) < 150, "from the fifth failure on, a moment for all to know"
    probes = sent[len(at_first) :]
    assert probes, "it was tried again while some were left"
    assert all(later - before >= COOLDOWN_MS for before, later in pairwise(probes)), [at - sent[4] for at in sent]
    down = cluster.server.client.pages("/executions?state=SKIPPED", "executions")
    assert len(down) == 300 - len(sent)
    assert {it["reason"] for it in down} == {"circuit_open"}
    well = requests_to(cluster, "/well")
    assert len(well) == 300
