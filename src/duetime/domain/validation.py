"""The bounds of a job that no type can say. Collects everything that is wrong, so that a person is told once."""

from __future__ import annotations

from collections.abc import Iterator

from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.http_rules import header_problem, url_problem
from duetime.domain.job import JobSpec, JobType

MOST_HEADERS = 50


def check_spec(spec: JobSpec) -> None:
    """Raises InvalidRequest with all that is wrong with a spec, but for its schedule, which `schedule` checks."""
    if errors := tuple(_problems(spec)):
        raise InvalidRequest("; ".join(f"{error.pointer}: {error.message}" for error in errors), errors)


def _problems(spec: JobSpec) -> Iterator[FieldError]:
    if spec.type is not JobType.HTTP_REQUEST:
        yield FieldError("/type", f"'{spec.type}' jobs can't run on this node; use 'http_request'")
    if problem := url_problem(spec.payload.url):
        yield FieldError("/payload/url", problem)
    headers = spec.payload.headers
    if headers:
        if len(headers) > MOST_HEADERS:
            yield FieldError("/payload/headers", f"has {len(headers)} headers; {MOST_HEADERS} at most")
        for name, value in headers.items():
            if problem := header_problem(name, value):
                yield FieldError(f"/payload/headers/{_escape(name)}", problem)


def _escape(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
