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


_CONTROLS = r"""
import sys
sys.stderr.isatty = lambda: True
from duetime.domain.log_levels import LogLevels
from duetime.telemetry.logs import configure_logs
configure_logs(LogLevels())
import structlog
structlog.get_logger().warning("a job\x1b[2Jfailed", job="evil\x1b[31m\x9b2J\u202e", many="a b\x1b[2J\rfake")
"""


def test_text_of_users_does_not_control_the_terminal():
    done = subprocess.run([sys.executable, "-c", _CONTROLS], capture_output=True, check=True)
    line = done.stderr.decode()
    assert "failed" in line
    for control in ("\x1b[2J", "\x9b", "\u202e", "\r"):
        assert control not in line
    assert "evil\\u001b[31m" in line
