"""The bounds of a job that no type can say. Collects everything that is wrong, so that a person is told once."""

from __future__ import annotations

from collections.abc import Iterator

from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.http_rules import header_problem, url_problem
from duetime.domain.job import JobSpec, JobType
from duetime.domain.pointers import escape
from duetime.domain.secrets import SEALED, header_value_problem, secret_problems

MOST_HEADERS = 50


def check_spec(spec: JobSpec, old: JobSpec | None = None) -> None:
    """Raises InvalidRequest with all that is wrong with a spec, but for its schedule, which `schedule` checks.

    `old` is the one in whose place it comes: what is sealed there may stand here, too.
    """
    if errors := tuple(_problems(spec, old)):
        raise InvalidRequest("; ".join(f"{error.pointer}: {error.message}" for error in errors), errors)


def _problems(spec: JobSpec, old: JobSpec | None) -> Iterator[FieldError]:
    if spec.type is not JobType.HTTP_REQUEST:
        yield FieldError("/type", f"'{spec.type}' jobs can't run on this node; use 'http_request'")
    if problem := url_problem(spec.payload.url):
        yield FieldError("/payload/url", problem)
    headers, before = spec.payload.headers, None if old is None else old.payload
    if headers:
        if len(headers) > MOST_HEADERS:
            yield FieldError("/payload/headers", f"has {len(headers)} headers; {MOST_HEADERS} at most")
        for name, value in headers.items():
            is_sealed = value.startswith(SEALED)
            if problem := header_value_problem(name, value, before) if is_sealed else header_problem(name, value):
                yield FieldError(f"/payload/headers/{escape(name)}", problem)
    if spec.payload.secret or (before is not None and before.secret):
        yield from secret_problems(spec.payload, before)
