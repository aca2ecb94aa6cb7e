"""LOG_LEVEL=debug logs the work of the engine's loops; any other level logs nothing of it, and costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from duetime.telemetry.debugging import debug, turn_debugging


@pytest.fixture
def debugging() -> Iterator[None]:
    before = structlog.get_config()
    structlog.reset_defaults()  # an earlier test may have configured a level
    turn_debugging(True)
    yield
    turn_debugging(False)
    structlog.configure(**before)


def test_a_debug_line_is_written_only_at_the_level_debug():
    with capture_logs() as logs:
        debug("a page was fired", jobs=3)
    assert logs == []


def test_a_debug_line_has_its_values(debugging: None):
    with capture_logs() as logs:
        debug("a page was fired", jobs=3)
    assert logs == [{"event": "a page was fired", "jobs": 3, "log_level": "debug"}]
