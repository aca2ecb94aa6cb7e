"""Errors as RFC 9457 problem+json: what happened, to what, and what to do. Every error is sent in this form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from litestar import Response
from litestar.exceptions import HTTPException
from litestar.types import Send

from duetime.api.queries import AnyRequest
from duetime.domain.errors import ComeBack, DuetimeError, InsufficientStorage, InvalidRequest
from duetime.wire.problems import Problem, ProblemField

MEDIA_TYPE = "application/problem+json"

LONGEST_PATH = 200  # characters of a request's path in logs and responses

log = structlog.get_logger()


_TITLES = {
    "INVALID_REQUEST": "The request is not valid",
    "INVALID_SCHEDULE": "The schedule is not valid",
    "UNAUTHORIZED": "Authentication is required",
    "FORBIDDEN": "You may not do this",
    "NOT_FOUND": "Not found",
    "CONFLICT": "Not possible in this state",
    "PRECONDITION_FAILED": "It has changed meanwhile",
    "PAYLOAD_TOO_LARGE": "The body is too large",
    "IDEMPOTENCY_KEY_REUSED": "The idempotency key was used before",
    "METHOD_NOT_ALLOWED": "The method is not allowed here",
    "RATE_LIMIT_EXCEEDED": "Too many requests",
    "QUOTA_EXCEEDED": "Too many new jobs",
    "OVERLOADED": "Try again in a moment",
    "INSUFFICIENT_STORAGE": "The store is full",
    "STALE_WRITE": "This node's lease has ended",
    "INTERNAL": "Something went wrong in Duetime",
}
_CODES = {400: "INVALID_REQUEST", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "PAYLOAD_TOO_LARGE"}


def shown_path(path: str) -> str:
    """Returns the path of a request, cut if it is long: a client can send 8 kB."""
    return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…"


def _type_of(code: str) -> str:
    return f"urn:duetime:problem:{code.lower().replace('_', '-')}"


def problem_of(error: DuetimeError, instance: str = "") -> Problem:
    instance = shown_path(instance)
    if isinstance(error, InsufficientStorage):
        return Problem(
            error.kind, _TITLES[error.code], error.status, error.code, error.message, instance,
            current=error.current, limit=error.limit, requested=error.requested,
        )  # fmt: skip
    errors = [ProblemField(it.pointer, it.message) for it in error.errors] if isinstance(error, InvalidRequest) else []
    return Problem(
        _type_of(error.code), _TITLES.get(error.code, error.code), error.status, error.code, error.message, instance,
        errors, retry_after=error.retry_after if isinstance(error, ComeBack) else None,
    )  # fmt: skip


def _headers(problem: Problem) -> dict[str, str]:
    headers = {"retry-after": str(problem.retry_after)} if problem.retry_after is not None else {}
    return headers | ({"www-authenticate": 'Bearer realm="duetime"'} if problem.status == 401 else {})


def _respond(problem: Problem, headers: Mapping[str, str] = {}) -> Response[Any]:
    body = msgspec.json.encode(problem)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers={**headers, **_headers(problem)})


def handle_duetime_error(request: AnyRequest, error: DuetimeError) -> Response[Any]:
    return _respond(problem_of(error, request.url.path))


def handle_http_exception(request: AnyRequest, error: HTTPException) -> Response[Any]:
    """Handles errors that the framework raises: unknown paths, methods that are not allowed, invalid parameters."""
    path = shown_path(request.url.path)
    status = error.status_code
    fields: tuple[ProblemField, ...] = ()
    message = error.detail
    if status == 404:
        message = f"there is no path {path}; /openapi.json lists all paths"
    elif status == 405:
        message = f"{request.method} is not allowed on {path}; /openapi.json lists the methods"
    elif isinstance(error.extra, list):
        fields = tuple(ProblemField(f"/{_name(item)}", str(item.get("message", ""))) for item in error.extra)
        message = "; ".join(f"{field.pointer[1:]}: {field.message}" for field in fields) or message
    code = _CODES.get(status, "INVALID_REQUEST" if status < 500 else "INTERNAL")
    problem = Problem(_type_of(code), _TITLES[code], status, code, message, path, list(fields))
    return _respond(problem, error.headers or {})  # a 405 lists the allowed methods there


def _name(item: dict[str, Any]) -> str:
    """Returns a parameter's name in the URL. (A handler calls `state` `wanted`: the framework reserves `state`.)"""
    name = str(item.get("key", ""))
    return {"wanted": "state"}.get(name, name)


def handle_anything(request: AnyRequest, error: Exception) -> Response[Any]:
    return _respond(problem_of_defect(error, request.url.path))


def problem_of_defect(error: Exception, path: str) -> Problem:
    path = shown_path(path)
    log.error("a request failed", path=path, exc_info=error)
    message = "the request could not be carried out because of a defect in Duetime; the server's log has the details"
    return Problem("urn:duetime:problem:internal", _TITLES["INTERNAL"], 500, "INTERNAL", message, path)


async def send_problem(send: Send, problem: Problem) -> None:
    """Sends a problem from code outside the framework."""
    body = msgspec.json.encode(problem)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.encode(), value.encode()) for name, value in _headers(problem).items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
