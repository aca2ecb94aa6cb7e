"""The state of a node's clock in /health and in the metrics."""

from __future__ import annotations

import msgspec
import pytest

from duetime.api.context import ClusterState
from duetime.api.routes.health import _clock
from duetime.domain.lease import ClockState, Standing
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.metrics import Metrics
from metrics.scene import READINGS


@pytest.mark.parametrize(
    ("state", "offset", "expected"),
    [
        (ClockState.RIGHT, None, "healthy"),
        (ClockState.RIGHT, 999, "healthy"),
        (ClockState.OFF, -1500, "degraded: this node's clock is 1.5 s behind the database's; let NTP keep both"),
        (
            ClockState.WRONG,
            3_456_000_000,
            "unhealthy: this node's clock is 3,456,000.0 s ahead of the database's; until it is right, nothing runs "
            "here and no changes are taken",
        ),
    ],
)
def test_health_shows_the_offset_of_the_clock(state: ClockState, offset: int | None, expected: str):
    assert _clock(ClusterState(1, "a", Standing.TRUSTED, (), None, state, offset)) == expected


@pytest.mark.parametrize(("offset", "expected"), [(None, b"NaN"), (-1500, b"-1.5"), (0, b"0.0")])
def test_the_metrics_have_the_offset_in_seconds(offset: int | None, expected: bytes):
    readings = msgspec.structs.replace(READINGS, clock_offset=offset)
    _, rendered = Metrics(Telemetry()).render(readings)
    assert b"\nduetime_clock_offset_seconds " + expected + b"\n" in rendered
