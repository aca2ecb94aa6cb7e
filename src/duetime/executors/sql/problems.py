"""Builds the failures of SQL attempts. No message holds a password or a URL: messages are stored and shown."""

from __future__ import annotations

import os
import ssl
from typing import Any

import apsw
import asyncpg

from duetime.domain.execution import ErrorType
from duetime.executors.sql.received import Meter

LONGEST_MESSAGE = 1000
# Temporary errors, by SQLSTATE or its class: transaction rollback, out of resources, locked, shutting down.
_BUSY_STATES = ("40", "53", "55006", "55P03", "57P01", "57P02", "57P03")
_BUSY_RESULTS = (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED)
_UNFIT = {0: None}


class Failed(Exception):
    """An attempt has failed."""

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = clean(message)[:LONGEST_MESSAGE]


def clean(text: str) -> str:
    """Returns text that any store can hold: no NUL, valid UTF-8."""
    return text.translate(_UNFIT).encode("utf-8", "replace").decode("utf-8")


def blocked(message: str) -> Failed:
    """Returns the failure of an attempt that Duetime refused; it would refuse another attempt too."""
    return Failed(ErrorType.BLOCKED_TARGET, f"{message} Nothing was sent.")


def wrong(message: str, code: str) -> Failed:
    """Returns the failure for a wrong statement or wrong parameters that Duetime found itself."""
    return Failed(ErrorType.SQL_ERROR, f"{message} ({code})")


def timed_out(seconds: float, what: str) -> Failed:
    return Failed(ErrorType.TIMEOUT, f"{what} within {seconds:g} s.")


def unreachable(shown: str, problem: Exception) -> Failed:
    """Returns the failure for a connection that could not be opened, or that broke."""
    return Failed(ErrorType.CONNECTION_ERROR, f"No connection to {shown}: {_reason(problem)}.")


def lost(shown: str) -> Failed:
    return Failed(
        ErrorType.CONNECTION_ERROR,
        f"The connection to {shown} was lost while the statement ran. Whether it took effect is not known.",
    )


def flooded(shown: str, meter: Meter) -> Failed:
    """Returns the failure for a connection that was closed because of the data that the server sent."""
    return Failed(
        _error_type_of(meter),
        f"The connection to {shown} was cut: {meter.problem}. "
        "A statement that returns rows was rolled back; of any other it is not known whether it took effect.",
    )


def unfit(shown: str, meter: Meter) -> Failed:
    """Returns the failure for a connection that was closed before a statement was sent."""
    return Failed(_error_type_of(meter), f"The connection to {shown} was cut: {meter.problem}. No statement was sent.")


def _error_type_of(meter: Meter) -> ErrorType:
    return ErrorType.DATABASE_BUSY if meter.is_crowded else ErrorType.SQL_ERROR


def _reason(problem: Exception) -> str:
    match problem:
        case asyncpg.PostgresError():
            return _server_said(problem).rstrip(".")
        case ssl.SSLError():
            return (problem.reason or "the TLS handshake failed").replace("_", " ").lower()
        case OSError() if problem.errno:
            return os.strerror(problem.errno)
        case _:
            return "the server did not keep to the protocol, or closed the connection"


def server_refused(problem: asyncpg.PostgresError) -> Failed:
    is_busy = (problem.sqlstate or "").startswith(_BUSY_STATES)
    return Failed(ErrorType.DATABASE_BUSY if is_busy else ErrorType.SQL_ERROR, _server_said(problem))


def _server_said(problem: asyncpg.PostgresError) -> str:
    said = str(getattr(problem, "message", None) or problem.args[0]).rstrip(".")
    if position := getattr(problem, "position", None):
        said += f", at character {position}"
    for more in (getattr(problem, "detail", None), getattr(problem, "hint", None)):
        if more:
            said += f". {more.rstrip('.')}"
    return f"{said} (SQLSTATE {problem.sqlstate or '00000'})"


def sqlite_refused(problem: Any, statement: str) -> Failed:
    code = apsw.mapping_extended_result_codes.get(problem.extendedresult) or apsw.mapping_result_codes.get(
        problem.result, "SQLITE_ERROR"
    )
    said = str(problem).rstrip(".")
    if problem.error_offset >= 0:
        before = statement.encode("utf-8", "replace")[: problem.error_offset]
        said += f", at character {len(before.decode('utf-8', 'ignore')) + 1}"
    is_busy = problem.result in _BUSY_RESULTS
    return Failed(ErrorType.DATABASE_BUSY if is_busy else ErrorType.SQL_ERROR, f"{said} ({code})")
