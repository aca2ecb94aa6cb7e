"""Makes definitions of jobs from calls and decorators. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duetime.api.bodies import convert
from duetime.domain.errors import DuetimeError
from duetime.domain.ids import make_id
from duetime.domain.job import PythonJob
from duetime.domain.pointers import escape, get, path_in
from duetime.domain.schedule import timetable
from duetime.domain.validation import check_spec
from duetime.functions.arguments import ArgumentError, Binder, to_json
from duetime.functions.registry import Function

At = datetime | timedelta | str | None
Secret = str | Iterable[str]

MARKED = "kwargs"  # pointers to secrets begin with it


class JobError(ValueError):
    """A decorator declares an invalid job. The message names the job and each wrong field."""


def definition(
    name: str, binder: Binder | None, args: Sequence[Any], kwargs: Mapping[str, Any], fields: Mapping[str, Any],
    secret: Secret = (),
) -> dict[str, Any]:  # fmt: skip
    """Returns a definition. With a `binder`, the arguments are checked. Raises ArgumentError or ValueError."""
    fields = dict(fields)
    marks = [*_marks_in(fields.pop("payload", None)), *_pointers(secret)]
    paths = {mark: path_in(MARKED, mark) for mark in marks}
    if binder is not None:
        args, kwargs = binder.by_name(args, kwargs, [path[0] for path in paths.values() if path])
        args, kwargs = binder.plain(args, kwargs)
    else:
        args = [to_json(f"#{place}", name, value) for place, value in enumerate(args, 1)]
        kwargs = {word: to_json(word, name, value) for word, value in kwargs.items()}
    for mark, path in paths.items():
        try:
            if not path:
                raise LookupError
            get(kwargs, path)
        except LookupError:
            raise ArgumentError(
                f"secret '{mark.removeprefix(f'/{MARKED}/')}' names no argument of {name} that is passed by name; "
                "pass it as name=value, or name a place in one as /kwargs/name/place"
            ) from None
    payload: dict[str, Any] = {"function": name, "args": list(args), "kwargs": dict(kwargs)}
    if marks:
        payload["secret"] = marks
    return {"type": "python", "name": name, **fields, "payload": payload}


def _marks_in(payload: Any) -> list[str]:
    """Returns the secrets of job={"payload": {"secret": […]}}. Other fields of the payload come from the call."""
    if payload is None:
        return []
    if not isinstance(payload, Mapping) or payload.keys() - {"secret"}:
        raise ValueError(
            "the payload of a call may only have `secret`; the function and its arguments come from the call"
        )
    return list(_pointers(payload.get("secret", ())))


def _pointers(secret: Secret) -> Iterator[str]:
    for mark in (secret,) if isinstance(secret, str) else secret:
        yield mark if mark.startswith("/") else f"/{MARKED}/{escape(mark)}"


def check_words(function: Function | None, given: Mapping[str, Any]) -> None:
    """Raises ArgumentError for an argument that could be enqueue()'s or the function's, because both have its name."""
    if function is None:
        return
    for word, value in given.items():
        if value not in (None, ()) and word in function.signature.parameters:
            raise ArgumentError(
                f"{function.name} has a parameter '{word}', and so has enqueue(): pass it by position, or use "
                f"enqueue_call({function.name}, args, kwargs)"
            )


def check_job(key: str, definition: Mapping[str, Any]) -> None:
    """Raises JobError for an unknown field or an invalid schedule, which every server would refuse.

    An instant in the past is valid: the job may have run already.
    """
    try:
        spec = convert({**msgspec.to_builtins(dict(definition)), "key": key}, PythonJob)
        check_spec(spec)
        timetable(spec, make_id(0, bytes(10)), 0)
    except DuetimeError as error:
        raise JobError(f"job '{key}': {error.message}") from None


def to_schedule(at: At) -> str:
    match at:
        case None:
            return "immediate"
        case timedelta():
            return (datetime.now(UTC) + at).isoformat(timespec="milliseconds")
        case datetime():
            if at.tzinfo is None:
                raise ValueError(f"at={at} has no timezone; add one")
            return at.astimezone(UTC).isoformat(timespec="milliseconds")
        case _:
            return at
