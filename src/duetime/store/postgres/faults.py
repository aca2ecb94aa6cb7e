"""Classifies database errors: the command is refused, can be retried, or the database is unavailable."""

from __future__ import annotations

import asyncpg

from duetime.domain.errors import DuetimeError, Overloaded, TimedOut

AWAY = (
    OSError,  # and TimeoutError
    EOFError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,  # the connection is closed
    asyncpg.InternalClientError,  # it was cut in the middle of a message
    asyncpg.OperatorInterventionError,  # shutdown, crash, starting up, a statement that ran out of time
    asyncpg.InsufficientResourcesError,  # too many connections, a full disk
    asyncpg.PostgresSystemError,  # an I/O error
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # it has become a standby
)
LOST = (OSError, EOFError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError,
        asyncpg.AdminShutdownError, asyncpg.CrashShutdownError,
        asyncpg.IdleInTransactionSessionTimeoutError,
        asyncpg.ReadOnlySQLTransactionError)  # fmt: skip
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
REFUSED = (
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,  # a text with NUL, a number that is too large
    ValueError,
    OverflowError,
)


def is_refusal(error: BaseException) -> bool:
    """The command is at fault, not the database. (For a value it can't send, asyncpg raises InterfaceError.)"""
    return isinstance(error, REFUSED)


def is_away(error: BaseException) -> bool:
    return isinstance(error, AWAY) and not is_refusal(error)


def is_lost(error: BaseException) -> bool:
    """The connection is unusable; a new one may work. (Its server may have been demoted from primary.)"""
    return isinstance(error, LOST) and not is_refusal(error) and not isinstance(error, TimeoutError)


def unavailable(error: BaseException, what: str) -> DuetimeError:
    """Returns the error for the caller. `what` says what has happened to the request."""
    if isinstance(error, DuetimeError):
        return error
    if isinstance(error, (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)):
        return TimedOut(f"the database did not respond in time, {what}; try again", retry_after=2)
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return Overloaded(f"the database has no connection left, {what}; try again", retry_after=2)
    if isinstance(error, asyncpg.DiskFullError):
        return Overloaded(f"the database's disk is full, {what}; free some space and try again", retry_after=10)
    if is_away(error):
        return Overloaded(f"the database can't be reached ({error or type(error).__name__}), {what}; try again", 5)
    return Overloaded(f"the database could not do this ({error}), {what}; try again", retry_after=5)
