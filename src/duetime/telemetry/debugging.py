"""Lines for LOG_LEVEL=debug: what the engine's loops do, a line for each page of work and none for each execution.

Off unless `configure_logs` turns it on, so that an embedded program is told nothing that it did not ask for. While it
is off, a call costs a look at one variable.
"""

from __future__ import annotations

import structlog

_is_on = False


def turn_debugging(on: bool) -> None:
    global _is_on
    _is_on = on


def debug(event: str, **facts: object) -> None:
    if _is_on:
        structlog.get_logger().debug(event, **facts)
