"""The context of a running function: facts about its call, its log and its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal

import msgspec

from duetime.domain.instants import to_datetime
from duetime.domain.retry import LONGEST_OWN_DELAY
from duetime.domain.states import Trigger
from duetime.domain.work import LONGEST_PROGRESS, Assignment
from duetime.functions.json_values import NOT_FINITE, is_finite

Stream = Literal["stdout", "stderr", "log"]


def checked_delay(after_seconds: Any) -> float:
    """Returns the delay as a float. Raises ValueError for text, nan, a negative delay, or more than a week."""
    try:
        seconds = float("nan") if isinstance(after_seconds, str) else float(after_seconds)
    except (TypeError, ValueError, OverflowError):
        seconds = float("nan")
    if not 0 <= seconds <= LONGEST_OWN_DELAY:
        raise ValueError(
            f"after_seconds is how long to wait, 0 to {LONGEST_OWN_DELAY:.0f} (a week); it is {after_seconds!r}"
        )
    return seconds


class Retry(Exception):
    """Raise it to retry: after exactly this many seconds, or by the job's retry policy. The policy limits the
    number of attempts in both cases."""

    def __init__(self, after_seconds: float | None = None, message: str = "") -> None:
        super().__init__(message)
        self.after_seconds = None if after_seconds is None else checked_delay(after_seconds)
        self.message = message


class Reject(Exception):
    """Raise it when another attempt is useless: the execution fails and is not retried."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class Context:
    """One attempt, as its function sees it. A function gets it as the parameter `context`, or from `current()`.

    `cancelled` becomes True when the attempt was cancelled or has timed out. A function in a thread can't be stopped
    from outside, and should check it now and then. (An async function gets CancelledError; a function in a child
    process gets SIGTERM.)
    """

    __slots__ = ("_assignment", "_note", "_progress", "_save", "cancelled")

    def __init__(
        self, assignment: Assignment, note: Callable[[Stream, str], None], save: Callable[[bytes], None]
    ) -> None:
        self._assignment = assignment
        self._note = note
        self._save = save
        self._progress = assignment.progress
        self.cancelled = False

    @property
    def job_id(self) -> str:
        return self._assignment.job_id

    @property
    def job_name(self) -> str:
        return self._assignment.job_name

    @property
    def execution_id(self) -> str:
        """The same for all attempts: use it as an idempotency key."""
        return self._assignment.execution_id

    @property
    def attempt(self) -> int:
        return self._assignment.attempt

    @property
    def token(self) -> int:
        """Grows with each attempt: use it as a fencing token against writes of an abandoned attempt."""
        return self._assignment.token

    @property
    def scheduled_at(self) -> datetime:
        return to_datetime(self._assignment.scheduled_at)

    @property
    def trigger(self) -> Trigger:
        return self._assignment.trigger

    @property
    def progress(self) -> Any:
        """The last saved value. An attempt begins with the value of the attempt before it. None if there is none."""
        return self._progress

    def save_progress(self, value: Any) -> None:
        """Stores a JSON value that people see while the function runs, and that the next attempt begins with."""
        try:
            raw = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"progress must be JSON: {error}") from None
        if b"null" in raw and not is_finite(msgspec.to_builtins(value, str_keys=True)):
            raise ValueError(f"progress must be JSON: it holds {NOT_FINITE}")
        size = len(raw.decode())
        if size > LONGEST_PROGRESS:
            raise ValueError(f"progress has {size} characters as JSON; the limit is {LONGEST_PROGRESS}")
        self._progress = msgspec.json.decode(raw)
        self._save(raw)

    def log(self, *values: object) -> None:
        """Writes a line to the execution's log, with several values joined as `print` does."""
        self._note("log", " ".join(map(str, values)) + "\n")


running_context: ContextVar[Context | None] = ContextVar("duetime_context", default=None)


def current() -> Context:
    """Returns the context of the call that this code runs in. Raises LookupError outside of a call."""
    context = running_context.get()
    if context is None:
        raise LookupError("this code does not run inside a function of a Duetime worker")
    return context


class CallLogHandler(logging.Handler):
    """Copies log records made inside a call to the execution's log. It does not change the program's log levels."""

    def emit(self, record: logging.LogRecord) -> None:
        context = running_context.get()
        if context is not None:
            try:
                context.log(self.format(record))
            except Exception:  # noqa: BLE001 (as in other handlers, a bad record stops nothing)
                self.handleError(record)
        elif len(logging.root.handlers) == 1 and logging.lastResort and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)  # as if this handler were not there


_handler = CallLogHandler()
_handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
_routes = 0
_has_raised_level = False


@contextmanager
def logging_routed() -> Iterator[None]:
    """Installs the log handler while a worker runs. Workers in one process share it: the contextvar finds the call.

    A program that has not configured logging gets the level INFO meanwhile, so that its functions' records reach the
    execution logs. Outside of calls it still prints warnings and errors only, as Python does for such a program.
    """
    global _routes, _has_raised_level
    _routes += 1
    if not logging.root.handlers and logging.root.level == logging.WARNING:
        logging.root.setLevel(logging.INFO)
        _has_raised_level = True
    logging.root.addHandler(_handler)
    try:
        yield
    finally:
        _routes -= 1
        if not _routes:
            logging.root.removeHandler(_handler)
            if _has_raised_level and logging.root.level == logging.INFO:
                logging.root.setLevel(logging.WARNING)
            _has_raised_level = False
