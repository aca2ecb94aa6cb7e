"""The rules of /health: which component makes a node degraded or unhealthy, and when it should get no requests."""

from __future__ import annotations

import pytest

from duetime.domain import health
from duetime.domain.lease import Standing
from duetime.domain.node_report import NodeFacts
from duetime.domain.statistics import Tally


@pytest.mark.parametrize(
    ("components", "status", "takes_traffic"),
    [
        ({"database": "healthy", "clock": "healthy"}, "ok", True),
        ({"capacity": "degraded: 95 %"}, "degraded", True),
        ({"executions": "degraded: 50 % failed"}, "degraded", True),
        ({"retention": "degraded: it failed"}, "degraded", True),
        ({"clock": "degraded: 1.5 s behind"}, "degraded", True),
        ({"lease": "degraded: in doubt"}, "degraded", False),
        ({"stopping": "degraded: stopping"}, "degraded", False),
        ({"database": "unhealthy: away"}, "unhealthy", False),
        ({"clock": "unhealthy: an hour ahead", "stopping": "degraded: stopping"}, "unhealthy", False),
    ],
)
def test_the_status_follows_from_the_components(components: dict[str, str], status: str, takes_traffic: bool):
    verdict = health.judge(components)
    assert (verdict.status, verdict.takes_traffic) == (status, takes_traffic)
    assert (verdict.reason is None) == takes_traffic


def test_failing_executions_degrade_from_the_threshold_on_if_there_are_some():
    assert health.executions(Tally(completed=90, failed=10), 0.1) == "healthy"
    assert health.executions(Tally(completed=8, failed=1), 0.1) == "healthy", "too few say little"
    found = health.executions(Tally(completed=88, failed=10, timeout=2), 0.1)
    assert found.startswith("degraded: 12.0 % of 100 executions")


def test_a_slow_event_loop_and_a_slow_writer_degrade():
    assert health.event_loop(NodeFacts(loop_lag_ms=2999)) == health.writer(NodeFacts(unwritten=19_999)) == "healthy"
    assert health.event_loop(NodeFacts(loop_lag_ms=3500)).startswith("degraded: this process was 3.5 s late")
    assert health.writer(NodeFacts(unwritten=20_000)).startswith("degraded: 20,000 results wait")


@pytest.mark.parametrize("standing", Standing)
def test_only_a_trusted_lease_is_healthy(standing: Standing):
    assert (health.lease(standing) == "healthy") == (standing is Standing.TRUSTED)
