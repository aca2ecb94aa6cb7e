"""The node's own log: one line per event on stderr, readable text on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from duetime.telemetry.debugging import turn_debugging


class _BestEffort:
    """Ignores write errors: a log that can't be written (disk full, pipe closed) must not stop any work."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


def log_as_programs_do() -> None:
    """Logs through the standard `logging`, for a node embedded in a program: under the names of Duetime's modules, at
    the levels that the program has set. Does nothing if the program has configured structlog."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            _as_text,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _as_text(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    text, exception = str(event.pop("event", "")), event.pop("exception", None)
    facts = " ".join(f"{name}={value!r}" for name, value in event.items())
    text = f"{text} ({facts})" if facts else text
    return f"{text}\n{exception}" if exception else text


def configure_logs(level: str) -> None:
    turn_debugging(level == "debug")
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    for_people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if for_people else [structlog.processors.format_exc_info]),
            # Not rich's traceback: it shows the local variables of each frame, and so secrets.
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if for_people
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _BestEffort(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
