"""Turns the end of a script into an outcome with a message. Does no I/O."""

from __future__ import annotations

import os
import signal

from duetime.domain.execution import ErrorType, Outcome
from duetime.executors.script.request import ScriptLimits
from duetime.executors.script.wire import Ended, Refused

_SHELL_SIGNAL = 128  # a shell whose last command was killed by signal n exits with this + n


def outcome_of(end: Ended | Refused, limits: ScriptLimits, response: str | None) -> Outcome:
    if isinstance(end, Refused):
        return Outcome(ErrorType.EXIT_CODE, end.message, exit_code=end.exit_code, response=response)
    code = os.waitstatus_to_exitcode(end.status)
    if limit := _limit(end, code, limits):
        return Outcome(ErrorType.LIMIT_EXCEEDED, limit, exit_code=code, response=response)
    if code == 0:
        return Outcome(exit_code=0, response=response)
    return Outcome(ErrorType.EXIT_CODE, f"The script {_how(code)}.", exit_code=code, response=response)


def timeout_of(end: Ended | Refused | None, seconds: float, response: str | None) -> Outcome:
    """Returns the outcome of a script that reached its timeout. `end` is None if the script was not started."""
    if end is None:
        return Outcome(ErrorType.TIMEOUT, f"The script could not be started within {seconds:g} s; nothing ran.")
    code = os.waitstatus_to_exitcode(end.status) if isinstance(end, Ended) else end.exit_code
    message = (
        f"The script took longer than {seconds:g} s (timeout_seconds) and was ended, with all that it had started."
    )
    return Outcome(ErrorType.TIMEOUT, message, exit_code=code, response=response)


def _limit(end: Ended, code: int, limits: ScriptLimits) -> str:
    """Returns a sentence about the limit that ended the script; empty if no limit is known to have ended it."""
    if end.limit == "memory":
        return f"The script was ended: its processes held more than {_megabytes(limits.memory_bytes)} of memory."
    if end.limit == "processes":
        return f"The script was ended: it had more than {limits.processes} processes."
    by_signal = -code if code < 0 else code - _SHELL_SIGNAL
    # A process that ignores SIGXCPU is killed one second later.
    overdue = code == -signal.SIGKILL and 0 < limits.cpu_seconds <= end.cpu_seconds
    if limits.cpu_seconds and (by_signal == signal.SIGXCPU or overdue):
        return f"The script was ended: it used more than {limits.cpu_seconds} s of processor time."
    if by_signal == signal.SIGXFSZ:
        return f"The script was ended: it wrote a file of more than {_megabytes(limits.file_bytes)}."
    return ""


def _how(code: int) -> str:
    if code > 0:
        return f"exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"was ended by signal {name}"


def _megabytes(size: int) -> str:
    return f"{size / 1024 / 1024:g} MiB"
