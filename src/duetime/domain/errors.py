"""All errors that Duetime responds with, as a tree. A message says what happened, to what, and what to do.

DuetimeError
├── InvalidRequest          400  a field is missing, unknown, of the wrong type or out of bounds
│   └── InvalidSchedule     400  the schedule, zone or DST choice cannot be understood or never fires
├── Unauthorized            401  the request has no valid credential
├── Forbidden               403  the caller lacks the right
├── NotFound                404  also for things of another tenant
├── Conflict                409  the state of the thing does not allow this
├── PreconditionFailed      412  If-Match names another version
├── PayloadTooLarge         413
├── IdempotencyKeyReused    422  the same key with another body
├── ComeBack                     after `retry_after` seconds
│   ├── RateLimited         429  too many requests
│   ├── QuotaExceeded       429  too many new jobs
│   └── Overloaded          503
│       └── TimedOut        503  the store did not respond in time: smaller writes may succeed
├── InsufficientStorage     507  the store is as full as it may be
└── StaleWrite              –    a write that carries an old token or comes from a fenced node: refused, logged
    └── StaleEpoch          –    a write for a shard that another owner has taken since
"""

from __future__ import annotations


class FieldError:
    """One invalid field: its place (a JSON pointer), and what to do."""

    __slots__ = ("message", "pointer")

    def __init__(self, pointer: str, message: str) -> None:
        self.pointer = pointer
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldError) and self.pointer == other.pointer and self.message == other.message

    def __hash__(self) -> int:
        return hash((self.pointer, self.message))

    def __repr__(self) -> str:
        return f"FieldError({self.pointer!r}, {self.message!r})"


class DuetimeError(Exception):
    """`code` is stable and for machines; the message is a sentence for people."""

    code = "INTERNAL"
    status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequest(DuetimeError):
    code = "INVALID_REQUEST"
    status = 400

    def __init__(self, message: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(message)
        self.errors = errors

    @classmethod
    def at(cls, pointer: str, message: str) -> InvalidRequest:
        """Returns the error for one invalid field."""
        return cls(f"{pointer}: {message}" if pointer else message, (FieldError(pointer, message),))


class InvalidSchedule(InvalidRequest):
    code = "INVALID_SCHEDULE"


class Unauthorized(DuetimeError):
    code = "UNAUTHORIZED"
    status = 401


class Forbidden(DuetimeError):
    code = "FORBIDDEN"
    status = 403


class NotFound(DuetimeError):
    code = "NOT_FOUND"
    status = 404


def no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


def no_execution(execution_id: str) -> NotFound:
    return NotFound(f"there is no execution {execution_id}")


def no_key(key_id: str) -> NotFound:
    return NotFound(f"there is no API key {key_id}")


def no_subscription(subscription_id: str) -> NotFound:
    return NotFound(f"there is no subscription {subscription_id}")


def no_circuit(circuit: int) -> NotFound:
    return NotFound(f"there is no circuit {circuit:016x}")


def no_connection(name: str) -> NotFound:
    return NotFound(f"there is no connection '{name}'; `duetime connection list` shows those that there are")


def no_alert_rule(name: str) -> NotFound:
    return NotFound(f"there is no alert rule '{name}'; `duetime alert rules` shows those that there are")


def no_silence(silence_id: str) -> NotFound:
    return NotFound(f"there is no silence {silence_id}")


def no_channel(name: str) -> NotFound:
    return NotFound(f"there is no alert channel '{name}'; `duetime alert channel list` shows those that there are")


class Conflict(DuetimeError):
    code = "CONFLICT"
    status = 409


def has_ended(execution_id: str, state: str) -> Conflict:
    return Conflict(f"execution {execution_id} is {state}; what has ended can't be cancelled")


def unwritable(error: Exception) -> Conflict:
    """Returns the error for a command that the database refuses: other commands of the same commit go on."""
    return Conflict(f"this can't be written as it is: {error}")


class PreconditionFailed(DuetimeError):
    code = "PRECONDITION_FAILED"
    status = 412


class PayloadTooLarge(DuetimeError):
    code = "PAYLOAD_TOO_LARGE"
    status = 413


class IdempotencyKeyReused(DuetimeError):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422


class ComeBack(DuetimeError):
    """The request may succeed after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(ComeBack):
    code = "RATE_LIMIT_EXCEEDED"
    status = 429


class QuotaExceeded(ComeBack):
    code = "QUOTA_EXCEEDED"
    status = 429


class Overloaded(ComeBack):
    code = "OVERLOADED"
    status = 503


class TimedOut(Overloaded):
    """The store did not respond in time. A writer of large pages writes smaller ones next (`domain.page_size`)."""


class InsufficientStorage(DuetimeError):
    """`kind` is memory or job_count. `current` is what the tenant holds, `limit` the most that one tenant may hold."""

    code = "INSUFFICIENT_STORAGE"
    status = 507

    def __init__(self, kind: str, current: int, limit: int, requested: int) -> None:
        what = "bytes of jobs" if kind == "memory" else "jobs"
        why = "" if current + requested > limit else ", and the server has no room left for as many"
        super().__init__(
            f"your tenant holds {current:,} of the {limit:,} {what} that it may hold at most{why}: {requested:,} more "
            "can't be stored; remove jobs that are done (DELETE /api/v1/jobs/{id}?purge=true), or ask the operator for "
            "more room"
        )
        self.kind = kind
        self.current = current
        self.limit = limit
        self.requested = requested


class StaleWrite(DuetimeError):
    code = "STALE_WRITE"
    status = 409


def fenced(node: int) -> StaleWrite:
    return StaleWrite(f"node {node} is fenced: another process has taken its place")


class StaleEpoch(StaleWrite):
    """`stored` is the epoch that holds; 0 if the shard has had no owner yet."""

    def __init__(self, shard: int, epoch: int, stored: int) -> None:
        super().__init__(f"shard {shard} is at epoch {stored}, not {epoch}: another node owns it, or none does yet")
        self.shard = shard
        self.epoch = epoch
        self.stored = stored
