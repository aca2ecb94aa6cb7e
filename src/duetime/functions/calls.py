"""A call: one assignment in a worker, and how the function's result or error becomes the end of the attempt."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable
from time import time_ns
from typing import Any, Literal

import msgspec

from duetime.domain.work import LONGEST_NOTE, LONGEST_RESULT, Assignment, Ended, Note
from duetime.functions.context import Context, Reject, Retry, Stream, checked_delay, running_context
from duetime.functions.json_values import NOT_FINITE, is_finite
from duetime.functions.registry import Function

LONGEST_MESSAGE = 2000
LONGEST_LOG = 1_048_576  # characters of an attempt's log that are sent
CUT = "\n(the log of this attempt was cut here: it is longer than 1 MiB)\n"

Now = Callable[[], int]
ErrorKind = Literal["function_error", "rejected", "timeout", "cancelled"]


def wall_clock() -> int:
    return time_ns() // 1_000_000


class Call:
    """Used on the worker's event loop only, except for `note` and `save`, which any thread may call.

    `verdict`: the call must stop, and is reported with this verdict whatever the function does now. `is_over`: its end
    was reported, or it was abandoned; later notes and results are dropped. `level` and `trace`: how the worker's
    own log shows the failure.
    """

    __slots__ = (
        "_on_note", "_parts", "_progress", "_said", "assignment", "began_at", "context", "function", "give_up_at",
        "is_noisy", "is_over", "level", "offered_at", "started_at", "task", "trace", "verdict",
    )  # fmt: skip

    def __init__(self, assignment: Assignment, function: Function, on_note: Callable[[Call], None]) -> None:
        self.assignment = assignment
        self.function = function
        self.context = Context(assignment, self.note, self.save)
        self.offered_at = 0.0
        self.began_at = 0.0  # on the monotonic clock; 0: not yet
        self.started_at = 0  # ms since the epoch
        self.verdict: Literal["timeout", "cancelled"] | None = None
        self.give_up_at = 0.0  # after a verdict: when the worker stops waiting for the function
        self.is_over = False
        self.is_noisy = False
        self.level = logging.ERROR
        self.trace = ""
        self.task: asyncio.Task[None] | None = None
        self._on_note = on_note
        self._parts: deque[tuple[Stream, str]] | None = None
        self._said = 0
        self._progress: bytes | None = None

    def note(self, stream: Stream, text: str) -> None:
        """Adds text to the execution's log. Any thread may call it."""
        if self.is_over or self._said > LONGEST_LOG:
            return
        room = LONGEST_LOG - self._said
        self._said += len(text)
        if len(text) > room:
            text = text[:room] + CUT
        if self._parts is None:
            self._parts = deque()
        self._parts.append((stream, text))
        self._on_note(self)

    def save(self, raw: bytes) -> None:
        """Stores progress, as JSON. Only the last value counts."""
        if not self.is_over:
            self._progress = raw
            self._on_note(self)

    def take_notes(self) -> list[Note]:
        """Returns the notes since the last call, in order."""
        if not self._parts and self._progress is None:
            return []
        notes, parts = [], self._parts
        texts: list[str] = []
        stream: Stream = "log"
        while parts:
            next_stream, text = parts.popleft()
            if next_stream != stream:
                notes += self._to_notes(stream, texts)
                stream, texts = next_stream, []
            texts.append(text)
        notes += self._to_notes(stream, texts)
        progress, self._progress = self._progress, None
        if progress is not None:
            notes.append(self._to_note(progress=msgspec.Raw(progress)))
        return notes

    def _to_notes(self, stream: Stream, texts: list[str]) -> list[Note]:
        text = clean("".join(texts))
        return [
            self._to_note(text=text[at : at + LONGEST_NOTE], stream=stream) for at in range(0, len(text), LONGEST_NOTE)
        ]

    def _to_note(self, **said: Any) -> Note:
        assignment = self.assignment
        return Note(assignment.execution_id, assignment.attempt, assignment.token, **said)


def perform(call: Call, now: Now) -> Ended:
    """Runs a sync function in this thread. Never raises: every outcome of the function becomes an `Ended`."""
    running_context.set(call.context)
    assignment, function = call.assignment, call.function
    call.started_at = now()
    try:
        args, kwargs = function.binder.bind(assignment.args, assignment.kwargs, call.context)
        result = to_result(function.callable(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 (SystemExit and the like are the function's, not the worker's)
        return failed(call, error, now())
    return Ended(
        assignment.execution_id, assignment.attempt, assignment.token, call.started_at, now(), None, None, result
    )


async def perform_async(call: Call, now: Now) -> Ended:
    running_context.set(call.context)
    assignment, function = call.assignment, call.function
    call.started_at = now()
    try:
        args, kwargs = function.binder.bind(assignment.args, assignment.kwargs, call.context)
        result = to_result(await function.callable(*args, **kwargs))
    except GeneratorExit:  # the event loop was closed
        raise
    except BaseException as error:  # noqa: BLE001 (as above)
        return failed(call, error, now())
    return Ended(
        assignment.execution_id, assignment.attempt, assignment.token, call.started_at, now(), None, None, result
    )


class BadResult(TypeError):
    """A function returned a result that can't be stored. `kept`: the part of it that is stored."""

    def __init__(self, message: str, kept: str) -> None:
        super().__init__(message)
        self.kept = clean(kept[:LONGEST_RESULT])


def to_result(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value).decode()
    except Exception as error:  # noqa: BLE001 (an object's own way to become JSON may raise anything)
        message = f"its result can't be written as JSON: {say(error)}; return a JSON value, or None"
        raise BadResult(message, show(value)) from None
    if "null" in text and not is_finite(msgspec.to_builtins(value, str_keys=True)):
        raise BadResult(f"its result can't be written as JSON: it holds {NOT_FINITE}", show(value))
    if len(text) > LONGEST_RESULT:
        raise BadResult(
            f"its result has {len(text)} characters as JSON, and {LONGEST_RESULT} are the most: the first "
            f"{LONGEST_RESULT} are kept; store the result elsewhere, and return its location",
            text,
        )
    return text


def failed(call: Call, error: BaseException, ended_at: int) -> Ended:
    """Returns the end of a call that raised. Logs the traceback of an unexpected error, unless the call was stopped."""
    match error:
        case Retry():
            message = _message(error) or "the function raised Retry"
            call.level = logging.INFO
            return end_of(call, "function_error", message, ended_at, _delay(error))
        case Reject():
            return end_of(call, "rejected", _message(error) or "the function raised Reject", ended_at)
        case BadResult():  # the work is done: a retry would repeat it, and return the same
            return end_of(call, "rejected", str(error), ended_at, result=error.kept)
    if call.verdict is None:
        call.trace = clean(traceback_of(error)[:LONGEST_LOG])
        call.note("log", call.trace)
    text = say(error)
    return end_of(call, "function_error", f"{type(error).__name__}: {text}" if text else type(error).__name__, ended_at)


def _message(error: Retry | Reject) -> str:
    """Returns the message as text. Users also pass an exception, and a subclass may not have set any message."""
    return say(getattr(error, "message", ""))


def _delay(error: Retry) -> float | None:
    """Returns the delay, checked again: the attribute may have been changed since the error was created."""
    asked = getattr(error, "after_seconds", None)
    try:
        return None if asked is None else checked_delay(asked)
    except ValueError:
        return None


def end_of(
    call: Call, kind: ErrorKind, message: str, ended_at: int, retry_after_seconds: float | None = None,
    result: str | None = None,
) -> Ended:  # fmt: skip
    assignment, message = call.assignment, clean(message)
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - 1] + "…"
    return Ended(
        assignment.execution_id, assignment.attempt, assignment.token, call.started_at or ended_at, ended_at,
        kind, message, result, retry_after_seconds,
    )  # fmt: skip


def say(error: object) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 (str() of an error may raise anything)
        return "(its text is not available)"


def show(value: Any) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 (as above)
        return f"(a {type(value).__name__} that can't be shown)"


def traceback_of(error: BaseException) -> str:
    """Returns the traceback as Python prints it, without the worker's own frame."""
    try:
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        return "".join(traceback.format_exception(type(error), error, frames))
    except BaseException:  # noqa: BLE001 (as above)
        return f"{type(error).__name__}: {say(error)}\n"


def clean(text: str) -> str:
    """Returns text without lone surrogates and NUL, which not every part of the path to the store can carry."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text
