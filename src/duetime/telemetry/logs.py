"""The node's own log: one line per event on stderr, readable text on a terminal, JSON elsewhere.

Lines of libraries (uvicorn, asyncio) go the same way. Each area of Duetime may have a level of its own: the area of a
line is the package of the module that writes it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from duetime.domain.log_levels import LEVELS, LIBRARIES, LogLevels
from duetime.telemetry.debugging import turn_debugging

# These modules write lines of other areas, and only if those are logged.
_ASKED_ALREADY = tuple(f"duetime.telemetry.{name}" for name in ("limited_lines", "logs", "request_log"))


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


def configure_logs(levels: LogLevels) -> None:
    turn_debugging(levels.lowest == "debug")
    number = logging.getLevelNamesMapping()[levels.lowest.upper()]
    for_people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            *([_ByArea(levels)] if levels.areas else []),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _without_controls if for_people else structlog.processors.format_exc_info,
            # Not rich's traceback: it shows the local variables of each frame, and so secrets.
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if for_people
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _BestEffort(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.getLevelNamesMapping()[levels.of(LIBRARIES).upper()], handlers=[_LinesOfLibraries()]
    )


# Text of users (names, tags, paths) must not write to the operator's terminal as it likes. JSON escapes it anyway.
_HIDDEN = (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {code: f"\\u{code:04x}" for code in _HIDDEN if chr(code) not in "\t\n"}


def _without_controls(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = value.translate(_CONTROLS)
    return event


class _ByArea:
    """Drops lines below the level of their area. Used only if an area has its own level: it looks at the stack."""

    def __init__(self, levels: LogLevels) -> None:
        self._levels = levels

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        module = _writing_module()
        if module.startswith(_ASKED_ALREADY) or not module.startswith("duetime."):
            return event
        if not self._levels.shows(module.split(".")[1], method if method in LEVELS else "error"):
            raise structlog.DropEvent
        return event


def _writing_module() -> str:
    frame = sys._getframe(2)
    name: str = frame.f_globals.get("__name__", "")
    while name.startswith(("structlog", "duetime.telemetry.debugging")) and frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_globals.get("__name__", "")
    return name


class _LinesOfLibraries(logging.Handler):
    """Passes the lines of the standard `logging` on, with the name of their logger."""

    def emit(self, record: logging.LogRecord) -> None:
        # OpenTelemetry's exporter names its endpoint, which may hold a token. `span_queue` logs what it fails to send.
        if record.name.startswith("opentelemetry."):
            return
        try:
            write = getattr(structlog.get_logger(), _method(record.levelno))
            write(record.getMessage(), logger=record.name, **({"exc_info": record.exc_info} if record.exc_info else {}))
        except Exception:  # noqa: BLE001 (as in the standard handlers: what can't be formatted must not stop any work)
            self.handleError(record)


def _method(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    return "warning" if number >= logging.WARNING else "info" if number >= logging.INFO else "debug"
