"""Debug lines of the engine's loops, for LOG_LEVEL=debug: one line per page of work, none per execution.

Off unless `configure_logs` turns it on, so that a program that embeds Duetime gets no lines that it did not ask for.
While it is off, a call costs one check of a variable.
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
