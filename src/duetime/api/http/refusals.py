"""Complete responses, as bytes, to requests that never reach the application. Each closes its connection."""

from __future__ import annotations

import os
from http import HTTPStatus

import msgspec

from duetime.api.gate import ALWAYS
from duetime.api.limiter import NO_LIMIT_HEADERS
from duetime.api.problems import MEDIA_TYPE, problem_of
from duetime.domain.errors import DuetimeError, InvalidRequest, Overloaded
from duetime.domain.http_bounds import LEAST_BYTES_PER_SECOND, MAX_FRAMING_BYTES, MAX_HEADERS, MAX_REQUEST_TARGET_BYTES


class Refusal:
    """A response, complete except for its request id. `message` is its error message."""

    def __init__(self, error: DuetimeError, status: int | None = None) -> None:
        self.message = error.message
        problem = problem_of(error)
        if status is not None:
            problem = msgspec.structs.replace(problem, status=status)
        body = msgspec.json.encode(problem)
        head = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n"
        head += f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        if problem.retry_after is not None:
            head += f"retry-after: {problem.retry_after}\r\n"
        self._head = head.encode() + b"".join(b"%b: %b\r\n" % header for header in (*ALWAYS, *NO_LIMIT_HEADERS))
        self._body = body

    def response(self) -> bytes:
        request_id = os.urandom(16).hex().encode()
        return b"%bx-request-id: %b\r\nconnection: close\r\n\r\n%b" % (self._head, request_id, self._body)


NO_HTTP = Refusal(InvalidRequest("this is not a valid HTTP/1.1 request; check its method, headers and framing"))
GIANT_HEAD = Refusal(InvalidRequest(f"the request's headers have more than {MAX_FRAMING_BYTES} bytes; send less"), 431)
LONG_TARGET = Refusal(
    InvalidRequest(
        f"the request's target, its path and query, has more than {MAX_REQUEST_TARGET_BYTES} bytes; send less of it"
    ),
    414,
)
MANY_HEADERS = Refusal(InvalidRequest(f"the request has more than {MAX_HEADERS} headers; send fewer"), 431)
TRAILERS = Refusal(
    InvalidRequest("the request has trailers, headers after its body, which are refused; send them before the body")
)
MUCH_FRAMING = Refusal(
    InvalidRequest(
        f"chunk sizes and chunk extensions of the request exceed its body by {MAX_FRAMING_BYTES} bytes; "
        "send larger chunks, or a Content-Length"
    )
)
SLOW_BODY = Refusal(
    InvalidRequest(
        f"the request's body stopped, or arrives slower than {LEAST_BYTES_PER_SECOND} bytes a second on average; "
        "send it in one go, or in smaller requests"
    ),
    408,
)
MANY_AT_ONCE = Refusal(InvalidRequest("too many requests were sent ahead on one connection; wait for responses"))
FULL = Refusal(
    Overloaded(
        "this server has reached its limit of connections, in total or from your address; close idle ones and retry",
        retry_after=1,
    )
)
