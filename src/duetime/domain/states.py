"""The states of an execution, the errors of an attempt, and the triggers of an execution."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


OPEN = frozenset({State.QUEUED, State.RUNNING, State.RETRYING})
TERMINAL = frozenset(State) - OPEN


class ErrorType(StrEnum):
    """The error of an attempt; decides whether it is retried."""

    TIMEOUT = "timeout"
    CONNECTION_ERROR = "connection_error"
    DNS_ERROR = "dns_error"
    TLS_ERROR = "tls_error"
    HTTP_ERROR = "http_error"
    BLOCKED_TARGET = "blocked_target"
    CIRCUIT_OPEN = "circuit_open"
    EXIT_CODE = "exit_code"  # a script ended with another code than 0, or by a signal
    LIMIT_EXCEEDED = "limit_exceeded"  # a script or statement exceeded a limit
    SQL_ERROR = "sql_error"  # the database refused the statement
    DATABASE_BUSY = "database_busy"  # it could not run the statement now: a deadlock, a lock, too many connections
    FUNCTION_ERROR = "function_error"  # a Python function raised
    REJECTED = "rejected"  # a Python function reported that another attempt is useless
    LEASE_LOST = "lease_lost"
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"


class Trigger(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    RETRY = "retry"
    CATCH_UP = "catch_up"
    AFTER = "after"  # other jobs have ended
