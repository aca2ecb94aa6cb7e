"""The spans of an execution, made from what the parts of a node emit. Pure: ids and instants come from the arguments.

    request              the request that created a job; in a trace of its own, linked to the caller's span
    create               when the job was created; in traces of executions that are due within a minute of it
    └─ execution         from the scheduled instant until its end is written
       ├─ fire           the write that made it an execution
       ├─ queue          from the scheduled instant until its first attempt begins
       ├─ attempt        one for each; its id is that of the `traceparent` header that the target gets
       ├─ record         the write of the attempt's end
       └─ backoff        the wait before the next attempt

Attributes hold ids, names and the target's origin: no header, body, path, query, message or secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from duetime.domain.commands import NewJob
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.ids import instant_of
from duetime.domain.job import HttpJob, JobSpec, PythonJob, SqlJob
from duetime.domain.plan import NewExecution
from duetime.domain.sampling import Sampling, attempt_span_id, joins_creation, span_id, trace_id
from duetime.domain.states import OPEN, State
from duetime.telemetry.incoming import Incoming

Value = str | int | bool
Attributes = dict[str, Value]

# The attributes that each kind of span may have. docs/reference/traces-and-logs.md lists the same.
# The tenant, job and execution are in the outer span only: encoding attributes is most of what a span costs.
SPANS: dict[str, tuple[str, ...]] = {
    "request": (
        "duetime.tenant", "duetime.job.id", "duetime.job.type", "duetime.request.id", "http.request.method",
        "http.route",
    ),
    "create": ("duetime.job.id",),
    "execution": (
        "duetime.tenant", "duetime.job.id", "duetime.execution.id", "duetime.job.name", "duetime.job.type",
        "duetime.trigger", "duetime.state", "duetime.attempts", "duetime.dead", "error.type",
    ),
    "fire": ("duetime.trigger", "duetime.lateness_ms"),
    "queue": (),
    "attempt": (
        "duetime.attempt", "duetime.state", "error.type", "http.request.method",
        "http.response.status_code", "url.scheme", "server.address", "server.port", "duetime.connection",
        "duetime.function", "process.exit_code",
    ),
    "record": ("duetime.attempt",),
    "backoff": ("duetime.attempt",),
}  # fmt: skip


class Span(msgspec.Struct, frozen=True, gc=False):
    """Times are ms since 1970. `links`: pairs of trace id and span id."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_at: float
    ended_at: float
    attributes: Attributes
    kind: str = "internal"  # or client, server
    failed: bool = False
    links: tuple[tuple[str, str], ...] = ()


def span_of_request(job: NewJob, request: Incoming, ended_at: float) -> Span:
    """Returns the span of the request that created a job. It ends when the job is stored."""
    attributes: Attributes = {
        "duetime.tenant": job.tenant, "duetime.job.id": job.job_id, "duetime.job.type": job.type,
        "duetime.request.id": request.request_id, "http.request.method": request.method, "http.route": request.route,
    }  # fmt: skip
    links = ((request.parent.trace_id, request.parent.span_id),) if request.parent else ()
    return Span(
        "request", *_request_context(job.job_id), "", request.began_at, ended_at, attributes, "server", links=links
    )


def _request_context(job_id: str) -> tuple[str, str]:
    """Returns the ids of the trace and the span of the request that created the job."""
    return trace_id(job_id), span_id("request", job_id)


class _Trace(NamedTuple):
    """The trace of an execution."""

    id: str  # of the trace
    execution_id: str
    outer_id: str  # of the span `execution`

    def child(self, name: str, number: int, began_at: float, ended_at: float, attributes: Attributes) -> Span:
        return Span(
            name, self.id, span_id(name, self.execution_id, number), self.outer_id, began_at, ended_at, attributes
        )


def _trace_of(execution_id: str) -> _Trace:
    return _Trace(trace_id(execution_id), execution_id, span_id("execution", execution_id))


def spans_of_fire(row: NewExecution, now: int, seconds: float, sampling: Sampling) -> Iterator[Span]:
    """Yields the spans of an execution that was written at `now`, in `seconds`."""
    id = row.execution_id
    trace = _trace_of(id)
    if joins_creation(id, row.job_id):
        created_at = instant_of(row.job_id)
        yield Span(
            "create", trace.id, span_id("create", id), "", created_at, created_at, {"duetime.job.id": row.job_id},
            links=_link_to_request(row.job_id, sampling),
        )  # fmt: skip
    attributes: Attributes = {"duetime.trigger": str(row.trigger), "duetime.lateness_ms": now - row.scheduled_at}
    yield trace.child("fire", 0, now, now + 1000 * seconds, attributes)


def spans_of_end(claim: Claim, end: AttemptEnd, at: int, seconds: float, sampling: Sampling) -> Iterator[Span]:
    """Yields the spans that an attempt's end completes. The end was written from `at` on, in `seconds`."""
    trace, number = _trace_of(claim.execution_id), claim.attempt
    written_at = at + 1000 * seconds
    numbered: Attributes = {"duetime.attempt": number}
    if end.started_at is not None and number == 1:
        yield trace.child("queue", number, min(claim.scheduled_at, end.started_at), end.started_at, {})
    if end.state is not State.SKIPPED:
        yield _attempt(claim, end, trace)
    yield trace.child("record", number, end.ended_at, max(end.ended_at, written_at), numbered)
    if end.state is State.RETRYING:
        yield trace.child("backoff", number, end.ended_at, max(end.ended_at, end.due_at), numbered)
    if end.state not in OPEN:
        yield _execution(claim, end, written_at, trace, sampling)


def _execution(claim: Claim, end: AttemptEnd, ended_at: float, trace: _Trace, sampling: Sampling) -> Span:
    id = claim.execution_id
    attributes: Attributes = {
        "duetime.tenant": claim.tenant, "duetime.job.id": claim.job_id, "duetime.execution.id": id,
        "duetime.job.name": claim.spec.name, "duetime.job.type": str(claim.spec.type),
        "duetime.trigger": str(claim.trigger), "duetime.state": str(end.state),
        "duetime.attempts": 0 if end.state is State.SKIPPED else claim.attempt, "duetime.dead": end.dead,
    }  # fmt: skip
    if end.error_type is not None:
        attributes["error.type"] = str(end.error_type)
    parent = span_id("create", id) if joins_creation(id, claim.job_id) else ""
    return Span(
        "execution", trace.id, trace.outer_id, parent, min(claim.scheduled_at, ended_at), ended_at,
        attributes, failed=end.error_type is not None, links=_link_to_request(claim.job_id, sampling),
    )  # fmt: skip


def _attempt(claim: Claim, end: AttemptEnd, trace: _Trace) -> Span:
    attributes: Attributes = {"duetime.attempt": claim.attempt, "duetime.state": str(end.state), **_target(claim.spec)}
    if end.error_type is not None:
        attributes["error.type"] = str(end.error_type)
    if end.http_status is not None:
        attributes["http.response.status_code"] = end.http_status
    if end.exit_code is not None:
        attributes["process.exit_code"] = end.exit_code
    began_at = end.ended_at if end.started_at is None else end.started_at
    return Span(
        "attempt", trace.id, attempt_span_id(claim.token, claim.attempt), trace.outer_id, began_at, end.ended_at,
        attributes, "client", end.error_type is not None,
    )  # fmt: skip


def _target(spec: JobSpec) -> Attributes:
    match spec:
        case HttpJob():
            return {"http.request.method": spec.payload.method, **_origin(spec.payload.url)}
        case SqlJob():
            return {"duetime.connection": spec.payload.connection}
        case PythonJob():
            return {"duetime.function": spec.payload.function}
        case _:
            return {}


def _origin(url: str) -> Attributes:
    """Returns the scheme, host and port; nothing of the user, path or query, which may hold a secret."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return {}
    return {"url.scheme": parts.scheme, "server.address": parts.hostname or "", "server.port": port}


def _link_to_request(job_id: str, sampling: Sampling) -> tuple[tuple[str, str], ...]:
    """Returns the link to the request that created the job, if it was traced."""
    return (_request_context(job_id),) if sampling.has(job_id) else ()
