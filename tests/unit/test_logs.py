"""A log line of an error: it shows the place of the error, and never the values of variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

from patience import PATIENCE_SECONDS

CODE = """
import sys
sys.stderr.isatty = lambda: {terminal}
import structlog
from duetime.domain.log_levels import LogLevels
from duetime.telemetry.logs import configure_logs
configure_logs(LogLevels())
token = "-".join(["s3cret", "of", "ann"])  # the text must not stand in the source
try:
    raise ValueError("went wrong")
except ValueError:
    structlog.get_logger().error("a step failed", exc_info=True)
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_local_variables_are_not_shown(terminal: bool):
    code = CODE.format(terminal=terminal)
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    ).stderr
    assert "a step failed" in shown
    assert "ValueError: went wrong" in shown
    assert "s3cret-of-ann" not in shown
