"""LOG_LEVEL=debug says what the engine's loops do; any other level says nothing of it, and costs nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from duetime.telemetry.debugging import debug, turn_debugging


@pytest.fixture
def debugging() -> Iterator[None]:
    before = structlog.get_config()
    structlog.reset_defaults()  # a test before may have configured a level
    turn_debugging(True)
    yield
    turn_debugging(False)
    structlog.configure(**before)


def test_nothing_is_written_unless_it_is_turned_on():
    with capture_logs() as logs:
        debug("a page was fired", jobs=3)
    assert logs == []


def test_a_line_has_its_facts(debugging: None):
    with capture_logs() as logs:
        debug("a page was fired", jobs=3)
    assert logs == [{"event": "a page was fired", "jobs": 3, "log_level": "debug"}]
