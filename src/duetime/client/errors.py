"""The errors that the client raises. `error` of a Problem is the server's stable code.

DuetimeError
├── Problem                      the server refused the call
│   ├── InvalidRequest           400  `errors` names each field
│   │   └── InvalidSchedule      400
│   ├── Unauthorized             401
│   ├── Forbidden                403
│   ├── NotFound                 404
│   ├── MethodNotAllowed         405
│   ├── Conflict                 409
│   ├── PreconditionFailed       412  it was changed since: read it again
│   ├── PayloadTooLarge          413
│   ├── IdempotencyKeyReused     422
│   ├── ComeBack                      after `retry_after` seconds
│   │   ├── RateLimited          429
│   │   ├── QuotaExceeded        429
│   │   └── Overloaded           503
│   ├── ServerDefect             500
│   └── InsufficientStorage      507  `type`, `current`, `limit`, `requested`
├── ServerAway                   no response; `was_sent`: it may still have been carried out
├── BatchInterrupted             create_jobs was interrupted; `result` has the results so far
├── UnknownAnswer                a response that is not Duetime's: of a proxy, or another server
└── ClientClosed                 the client is closed

The names are those of the server's errors (`duetime.domain.errors`). The classes are different: these have the fields
of the response, such as the title, the path and the id of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duetime.wire import problems as wire

if TYPE_CHECKING:
    from duetime.client.models import BatchResult


class ProblemBody(wire.Problem, frozen=True, kw_only=True):
    """Differs from the wire's Problem on purpose: any response with a code and a message is a problem."""

    type: str = ""
    title: str = ""
    status: int = 0
    retry_after: float | None = None  # type: ignore[assignment]  # a newer server may send a float


class DuetimeError(Exception):
    """`message`: a sentence that includes what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Problem(DuetimeError):
    """The server refused the call. An unknown code is raised as this class itself."""

    def __init__(self, body: ProblemBody, status: int, request_id: str | None = None) -> None:
        super().__init__(body.message)
        self.error = body.error
        self.status = status
        self.type = body.type
        self.title = body.title
        self.instance = body.instance
        self.request_id = request_id  # as in the server's audit and log

    def __str__(self) -> str:
        return f"{self.status} {self.error}: {self.message}"


class InvalidRequest(Problem):
    def __init__(self, body: ProblemBody, status: int, request_id: str | None = None) -> None:
        super().__init__(body, status, request_id)
        self.errors = body.errors


class InvalidSchedule(InvalidRequest):
    pass


class Unauthorized(Problem):
    pass


class Forbidden(Problem):
    pass


class NotFound(Problem):
    pass


class MethodNotAllowed(Problem):
    pass


class Conflict(Problem):
    pass


class PreconditionFailed(Problem):
    pass


class PayloadTooLarge(Problem):
    pass


class IdempotencyKeyReused(Problem):
    pass


class ComeBack(Problem):
    """Try again after `retry_after` seconds. Raised if that is too long for the client, or its retries failed."""

    def __init__(self, body: ProblemBody, status: int, request_id: str | None = None) -> None:
        super().__init__(body, status, request_id)
        self.retry_after = body.retry_after


class RateLimited(ComeBack):
    pass


class QuotaExceeded(ComeBack):
    pass


class Overloaded(ComeBack):
    pass


class ServerDefect(Problem):
    pass


class InsufficientStorage(Problem):
    """`type`: memory (the numbers are bytes) or job_count."""

    def __init__(self, body: ProblemBody, status: int, request_id: str | None = None) -> None:
        super().__init__(body, status, request_id)
        self.current = body.current
        self.limit = body.limit
        self.requested = body.requested


class ServerAway(DuetimeError):
    """There was no response. `was_sent` is False if the request can't have reached the server."""

    def __init__(self, message: str, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class BatchInterrupted(DuetimeError):
    """`result`: the jobs that were created and refused before. `__cause__`: the error that interrupted the batch.

    The `unknown_count` jobs from index `unknown_from` on may have been created (0: none was). Later jobs were not sent.
    """

    def __init__(self, message: str, result: BatchResult, unknown_from: int, unknown_count: int) -> None:
        super().__init__(message)
        self.result = result
        self.unknown_from = unknown_from
        self.unknown_count = unknown_count


class UnknownAnswer(DuetimeError):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ClientClosed(DuetimeError):
    pass


BY_CODE: dict[str, type[Problem]] = {
    "INVALID_REQUEST": InvalidRequest,
    "INVALID_SCHEDULE": InvalidSchedule,
    "UNAUTHORIZED": Unauthorized,
    "FORBIDDEN": Forbidden,
    "NOT_FOUND": NotFound,
    "METHOD_NOT_ALLOWED": MethodNotAllowed,
    "CONFLICT": Conflict,
    "PRECONDITION_FAILED": PreconditionFailed,
    "PAYLOAD_TOO_LARGE": PayloadTooLarge,
    "IDEMPOTENCY_KEY_REUSED": IdempotencyKeyReused,
    "RATE_LIMIT_EXCEEDED": RateLimited,
    "QUOTA_EXCEEDED": QuotaExceeded,
    "OVERLOADED": Overloaded,
    "INTERNAL": ServerDefect,
    "INSUFFICIENT_STORAGE": InsufficientStorage,
}


def problem_of(body: ProblemBody, status: int, request_id: str | None = None) -> Problem:
    return BY_CODE.get(body.error, Problem)(body, status, request_id)
