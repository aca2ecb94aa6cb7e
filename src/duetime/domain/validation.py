"""Checks the bounds of a job that types can't express. Collects all errors, so that a user gets them at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from duetime.domain.durations import parse_duration
from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.http_rules import HIDDEN, LONGEST_REQUEST_SECONDS, header_problem, url_problem
from duetime.domain.job import Delivery, HttpJob, JobSpec
from duetime.domain.objectives import EXPECTED, WINDOWS
from duetime.domain.payloads import HttpRequest, Payload, PythonCall, Script
from duetime.domain.pointers import escape
from duetime.domain.secrets import ENCRYPTED, encrypted_value_problem, encrypted_values, has_secrets, secret_problems

MOST_HEADERS = 50
LONGEST_ENV_VALUE = 8192

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "DUETIME_"  # names of the environment that every script gets


def check_spec(spec: JobSpec, old: JobSpec | None = None) -> None:
    """Raises InvalidRequest with all errors of a spec. Module `schedule` checks its schedule.

    `old`: the spec that it replaces. The new spec may contain encrypted values of the old one.
    """
    if old is None and _is_plain(spec):
        return
    if errors := tuple(_problems(spec, old)):
        raise InvalidRequest("; ".join(f"{error.pointer}: {error.message}" for error in errors), errors)


def _is_plain(spec: JobSpec) -> bool:
    """Returns True for nearly all specs that have no error, in half of the time of the checks below."""
    if type(spec) is not HttpJob or (spec.timeout_seconds or 0) > LONGEST_REQUEST_SECONDS:
        return False
    payload, webhooks = spec.payload, spec.webhooks
    return not (
        payload.headers or payload.secret or spec.after or webhooks.on_success or webhooks.on_failure
        or spec.start_at or spec.end_at or spec.jitter_seconds or spec.delivery is Delivery.AT_MOST_ONCE
        or spec.slo or spec.expect_every is not None or url_problem(payload.url)
    )  # fmt: skip


def _problems(spec: JobSpec, old: JobSpec | None) -> Iterator[FieldError]:
    payload, before = spec.payload, None if old is None else old.payload
    match payload:
        case HttpRequest():
            yield from _request_problems(payload, before)
            if (spec.timeout_seconds or 0) > LONGEST_REQUEST_SECONDS:
                yield FieldError("/timeout_seconds", f"must be at most {LONGEST_REQUEST_SECONDS} for a request")
        case Script():
            yield from _script_problems(payload, before)
        case PythonCall():
            yield from _call_problems(payload)
    if has_secrets(payload) or (before is not None and has_secrets(before)):
        yield from secret_problems(payload, before)
    if spec.delivery is Delivery.AT_MOST_ONCE and (spec.retry_policy.max_retries or spec.retry_policy.delays):
        yield FieldError("/retry_policy", "an at_most_once job is never tried again; leave the retries out")
    yield from _on_finish_problems(spec)
    yield from _promise_problems(spec)


def _request_problems(payload: HttpRequest, before: Payload | None) -> Iterator[FieldError]:
    if problem := url_problem(payload.url):
        yield FieldError("/payload/url", problem)
    headers = payload.headers
    if len(headers) > MOST_HEADERS:
        yield FieldError("/payload/headers", f"has {len(headers)} headers; {MOST_HEADERS} at most")
    for name, value in headers.items():
        is_encrypted = value.startswith(ENCRYPTED)
        if problem := encrypted_value_problem(name, value, before) if is_encrypted else header_problem(name, value):
            yield FieldError(f"/payload/headers/{escape(name)}", problem)


def _script_problems(payload: Script, before: Payload | None) -> Iterator[FieldError]:
    if bool(payload.argv) == bool(payload.script):
        yield FieldError("/payload", "needs either argv (a program and its arguments) or script (a text), not both")
    if payload.argv and not payload.argv[0]:
        yield FieldError("/payload/argv/0", "must name a program")
    if payload.argv and payload.interpreter:
        yield FieldError("/payload/interpreter", "is for a script; with argv, name the program there")
    if payload.cwd and not payload.cwd.startswith("/"):
        yield FieldError("/payload/cwd", "must be an absolute path; leave it out to run in an empty folder")
    for name, value in encrypted_values(payload).items():
        at = f"/payload/env/{escape(name)}"
        if not _NAME.fullmatch(name):
            yield FieldError(at, "is no name of a variable: letters, digits and underscores, no digit first")
        elif name.startswith(_OURS):
            yield FieldError(at, f"names that begin with {_OURS} are set by Duetime; use another")
        elif value == HIDDEN:
            yield FieldError(at, "is what responses show instead of the value; send the value, or leave it out")
        elif value.startswith(ENCRYPTED):
            if problem := encrypted_value_problem(name, value, before):
                yield FieldError(at, problem)
        elif len(value) > LONGEST_ENV_VALUE:
            yield FieldError(at, f"is longer than {LONGEST_ENV_VALUE} characters")


def _call_problems(payload: PythonCall) -> Iterator[FieldError]:
    for name in payload.kwargs:
        if not name.isidentifier():
            yield FieldError(f"/payload/kwargs/{escape(name)}", "can't be the name of an argument")


def _on_finish_problems(spec: JobSpec) -> Iterator[FieldError]:
    for name in ("on_success", "on_failure"):
        url = getattr(spec.webhooks, name)
        if url is not None and (problem := url_problem(url)):
            yield FieldError(f"/webhooks/{name}", problem)
    if spec.after and spec.key in spec.after:
        yield FieldError("/after", "names the job itself; a job can't wait for its own end")
    if len(set(spec.after)) < len(spec.after):
        yield FieldError("/after", "names a job twice")
    is_on_demand = spec.schedule.strip().lower() == "on_demand"
    if spec.after and not is_on_demand:
        yield FieldError("/schedule", "a job that runs after others has no times: write 'on_demand'")
    if is_on_demand:
        for name in ("start_at", "end_at", "jitter_seconds"):
            if getattr(spec, name):
                yield FieldError(f"/{name}", "is about times, and a job on demand has none; leave it out")


def _promise_problems(spec: JobSpec) -> Iterator[FieldError]:
    slo = spec.slo
    if slo is not None:
        yield from _duration_problems("/slo/window", slo.window, WINDOWS)
        if slo.lateness_seconds is None and slo.success is None:
            yield FieldError("/slo", "has no objective; add lateness_seconds, success, or both")
    if spec.expect_every is not None:
        yield from _duration_problems("/expect_every", spec.expect_every, EXPECTED)


def _duration_problems(pointer: str, text: str, bounds: tuple[int, int]) -> Iterator[FieldError]:
    try:
        parse_duration(text, *bounds)
    except ValueError as error:
        yield FieldError(pointer, str(error))
