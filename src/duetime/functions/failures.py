"""Logs failures of functions through the standard `logging`, with the logger `duetime.functions`.

The server stores them, too, but the author of a function watches the program that runs it. Secret arguments are
redacted in both: more people read a program's log than may see its secrets.
"""

from __future__ import annotations

import contextvars
import logging

from duetime.domain.payloads import PythonCall
from duetime.domain.redaction import Redactor, list_secrets
from duetime.domain.work import Assignment, Ended
from duetime.functions.calls import Call

log = logging.getLogger("duetime.functions")


def log_failure(call: Call, ended: Ended) -> None:
    """Logs at ERROR, or at INFO if the failure was intended: the function raised Retry, or was cancelled."""
    if ended.error_type is None:
        return
    level = logging.INFO if ended.error_type == "cancelled" else call.level
    if not log.isEnabledFor(level):
        return
    assignment = call.assignment
    trace = f"\n{call.trace.rstrip()}" if call.trace and call.verdict is None else ""
    message, trace = _hidden(assignment, str(ended.error_message), trace)
    # In an empty context: in the context of an async function's call, the record would go to the execution's log.
    contextvars.Context().run(
        log.log, level, "%s: attempt %d of execution %s ended with %s: %s%s", call.function.name, assignment.attempt,
        assignment.execution_id, ended.error_type, message, trace,
    )  # fmt: skip


def _hidden(assignment: Assignment, *texts: str) -> list[str]:
    if not assignment.secret:
        return list(texts)
    arguments = PythonCall(assignment.function, assignment.args, assignment.kwargs, assignment.secret)
    redactor = Redactor(list_secrets(arguments))
    return [redactor.redact(text) for text in texts]
