"""Keeps secrets with the target they were given for: a change of the target requires sending them again. Pure.

Secrets are written and never read back. A user who may change a job could still read one, by sending it somewhere else:
to another origin, statement, program or function. So a change that sends secrets elsewhere must include them.

A SQL job names its connection, and a user who may register connections could point that name elsewhere. So the secret
parameters of a job are bound to the server and database of its connection when they were sent: no other database gets
them, however the connection is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from duetime.domain.errors import FieldError, InvalidRequest
from duetime.domain.job import JobSpec
from duetime.domain.payloads import HttpRequest, Payload, PythonCall, Script, SqlQuery
from duetime.domain.pointers import Steps, escape
from duetime.domain.secrets import encrypted_values, is_encrypted, list_marked

_PORTS = {"http": "80", "https": "443"}


def origin_of(url: str) -> tuple[str, str, str]:
    """Returns (scheme, host, port) of a job's URL, which must be valid."""
    scheme, _, rest = url.partition("://")
    authority = rest
    for end in "/?#":
        authority = authority.partition(end)[0]
    host_end = authority.rfind("]") + 1 or authority.find(":")
    host, port = (authority, "") if host_end < 0 else (authority[:host_end], authority[host_end:].removeprefix(":"))
    scheme = scheme.lower()
    return scheme, host.lower(), port.lstrip("0") or _PORTS.get(scheme, "")


def redirection_problems(old: JobSpec, new: JobSpec, sent: Mapping[str, Any] | None = None) -> Iterator[FieldError]:
    """Yields an error for each secret of `old` that `new` sends to another target without including it again.

    `sent`: the change as it was sent (a JSON Merge Patch). It shows whether an unencrypted secret, which only versions
    without keys have stored, was included again. Users can't send encrypted ones.
    """
    was, now = old.payload, new.payload
    if type(was) is not type(now) or (moved := _moved(was, now)) is None:
        return
    patch = {} if sent is None else sent.get("payload")
    why = (
        f"was given for another {moved}, and secrets are only sent where they were given for: send its value again, or "
        "remove it"
    )
    kept = encrypted_values(was)
    for name, value in encrypted_values(now).items():
        if kept.get(name) == value and (is_encrypted(value) or not _is_sent(patch, (now.encrypted_field, name), sent)):
            yield FieldError(f"/payload/{now.encrypted_field}/{escape(name)}", why)
    before = dict(list_marked(was))
    for path, value in list_marked(now):
        is_kept = path in before and before[path] == value
        if is_kept and (is_encrypted(value) or not _is_sent(patch, (now.marked_field, *path), sent)):
            steps = "".join(f"/{escape(step)}" for step in path)
            yield FieldError(f"/payload/{now.marked_field}{steps}", why)


def bind_secrets(spec: JobSpec, shown: str | None, old: JobSpec | None = None) -> JobSpec:
    """Returns the job; a SQL job with its secret parameters bound to `shown`, the database of its connection.

    `shown` None: the connection does not exist. Then it raises InvalidRequest, unless `old` named the connection
    already: that job may stay as it was, with the secrets that it had.
    """
    payload = spec.payload
    if not isinstance(payload, SqlQuery):
        return spec
    if shown is None and not _has_named(old, payload):
        why = ", for secret parameters are bound to the database that it leads to" if payload.secret else ""
        message = f"there is no connection '{payload.connection}': register it first{why} (`duetime connection put`)"
        raise InvalidRequest.at("/payload/connection", message)
    bound_to = "" if not payload.secret else shown
    if bound_to is None and old is not None and isinstance(old.payload, SqlQuery):
        bound_to = old.payload.bound_to
    return msgspec.structs.replace(spec, payload=msgspec.structs.replace(payload, bound_to=bound_to))


def _has_named(old: JobSpec | None, payload: SqlQuery) -> bool:
    """Returns whether `old` named the connection; with secret parameters, if the payload has some."""
    was = None if old is None else old.payload
    return isinstance(was, SqlQuery) and was.connection == payload.connection and bool(was.secret or not payload.secret)


def binding_problem(query: SqlQuery, shown: str) -> str | None:
    """Returns why a job's secret parameters may not be sent to its connection's database; None if they may."""
    if not query.secret or query.bound_to == shown:
        return None
    return (
        f"The job's secret parameters were given for {query.bound_to or 'no database'}, and its connection "
        f"'{query.connection}' leads to {shown} now. Send them again with a change of the job, or register the "
        "connection as it was."
    )


def _moved(was: Payload, now: Payload) -> str | None:
    """Returns the part of a job's target that this change replaces; None if its secrets go where they went before."""
    match was, now:
        case HttpRequest(), HttpRequest():
            return "origin (scheme, host and port)" if origin_of(was.url) != origin_of(now.url) else None
        case Script(), Script():
            runs = [(one.argv, one.script, one.interpreter, one.cwd) for one in (was, now)]
            return "program" if runs[0] != runs[1] else None
        case SqlQuery(), SqlQuery():
            if was.connection != now.connection:
                return "connection"
            if was.bound_to and was.bound_to != now.bound_to:
                return "server or database than its connection leads to"
            return "statement" if was.statement != now.statement else None
        case PythonCall(), PythonCall():
            return "function" if was.function != now.function else None
        case _:
            return None


def _is_sent(patch: Any, path: Steps, sent: Mapping[str, Any] | None) -> bool:
    """Returns whether a merge patch contains a value at the path. Without a patch (`sent` None) all was sent."""
    if sent is None:
        return True
    for step in path:
        if not isinstance(patch, Mapping):
            return patch is not None  # an array or a plain value replaces all values below
        if step not in patch:
            return False
        patch = patch[step]
    return True
