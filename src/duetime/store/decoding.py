"""Decodes rows from JSON text to typed structs: a page at once, with unreadable rows separated from the others.

A job's definition may have been written by a newer version, or before a limit became stricter. Such a definition must
not make the other rows of its page unreadable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from duetime.domain.endpoints import NOTICES, SCRIPTS, endpoint_of_connection, endpoint_of_function, endpoint_of_url
from duetime.domain.execution import AttemptEnd, Claim, unreadable
from duetime.domain.held_specs import LargeDefinition, hold
from duetime.domain.job import HttpJob, JobSpec, JobType
from duetime.domain.payloads import HttpRequest
from duetime.domain.plan import DueTimer
from duetime.domain.weights import weigh
from duetime.ports.pages import (
    PAGE_BYTES,
    PAGE_WEIGHT,
    DueTimers,
    ExpiredClaims,
    Page,
    UnreadableClaim,
    UnreadableJob,
)
from duetime.ports.store import JobRecord


class _Target(msgspec.Struct):
    url: str = ""
    connection: str = ""
    function: str = ""


class _Runnable(msgspec.Struct):
    """The fields of a job's definition that an execution needs, even if the others can't be read."""

    payload: _Target
    type: str = JobType.HTTP_REQUEST
    priority: int = 5


_spec = attrgetter("spec")
_LARGE = '{"type":"large",'  # how the stores' SQL begins a LargeDefinition
_decode_target = msgspec.json.Decoder(_Runnable).decode


def read_target(spec: str, tenant: str) -> tuple[int, int]:
    """Returns the priority and the endpoint of a job's executions."""
    target = _decode_target(spec)
    match target.type:
        case JobType.HTTP_REQUEST:
            endpoint = endpoint_of_url(target.payload.url)
        case JobType.SQL_QUERY:
            endpoint = endpoint_of_connection(tenant, target.payload.connection)
        case JobType.PYTHON:
            endpoint = endpoint_of_function(tenant, target.payload.function)
        case JobType.NOTICE:
            endpoint = NOTICES
        case _:
            endpoint = SCRIPTS
    return target.priority, endpoint


NOT_READ = "its definition can't be read by this version"


class Unreadable(NamedTuple):
    fields: list[Any]  # in the order of the struct's fields; the definition is the last
    error: str


@cache
def _decoder(row: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[row])


def decode(row: Any, text: str | None) -> list[Any]:
    """Returns the rows. Raises msgspec.ValidationError if one of them can't be read."""
    found: list[Any] = [] if text is None else _decoder(row).decode(text)
    return found


def decode_apart(row: Any, text: str | None) -> tuple[list[Any], list[Unreadable]]:
    """Returns the rows that can be read, and those that can't."""
    try:
        return decode(row, text), []
    except msgspec.ValidationError:
        pass
    found, apart = [], []
    for raw in decode(msgspec.Raw, text):
        try:
            found.append(msgspec.json.decode(raw, type=row))
        except msgspec.ValidationError as error:
            apart.append(Unreadable(msgspec.json.decode(raw), f"{NOT_READ}: {error}"))
    return found, apart


def decode_held(row: Any, text: str | None) -> tuple[list[Any], list[Unreadable]]:
    """Like `decode_apart`, for rows with large definitions: these are held as `domain.held_specs` says."""
    found, apart = decode_apart(row, text)
    # A search of the text is faster than a check of each row. (In a string the quotes would be escaped.)
    if text is None or _LARGE not in text or LargeDefinition not in set(map(type, map(_spec, found))):
        return found, apart
    held: list[Any] = []
    for one in found:
        if type(one.spec) is not LargeDefinition:
            held.append(one)
            continue
        try:
            spec, places = hold(one.spec)
        except msgspec.ValidationError as error:
            fields = [getattr(one, name) for name in one.__struct_fields__]
            apart.append(Unreadable(fields, f"{NOT_READ}: {error}"))
        else:
            counted = {"places": places} if hasattr(one, "places") else {}  # a Claim or DueTimer
            held.append(msgspec.structs.replace(one, spec=spec, **counted))
    return held, apart


Rows = tuple[str | None, bool]  # as one JSON text, and whether there are more


def bounded(rows: Iterable[str]) -> Rows:
    """Returns the rows that fit into a page. Reads at most one row more than fits."""
    taken: list[str] = []
    size = weight = 0
    for row in rows:
        encoded = row.encode()
        size += len(encoded)
        weight += weigh(encoded)
        if taken and (size > PAGE_BYTES or weight > PAGE_WEIGHT):
            return f"[{','.join(taken)}]", True
        taken.append(row)
    return (f"[{','.join(taken)}]" if taken else None), False


def decode_page(kind: Any, rows: Rows) -> Page[Any]:
    """Returns a page of records. An unreadable job keeps its name, and has the error as its description."""
    text, is_cut = rows
    try:
        page = Page(decode(kind, text))
    except msgspec.ValidationError:
        if kind is not JobRecord:
            raise
        apart = [decode_apart(kind, f"[{bytes(raw).decode()}]") for raw in decode(msgspec.Raw, text)]
        page = Page(found[0] if found else stand_in(unreadable[0]) for found, unreadable in apart)
    page.is_cut = is_cut
    return page


SpecRow = tuple[str, str, int, JobSpec]  # job id, tenant, version, definition


async def read_specs(fetch: Callable[[str], Awaitable[str | None]], after: str) -> list[SpecRow]:
    """Returns a page of readable definitions after a job's id; empty only at the end."""
    found: list[SpecRow] = []
    while not found:
        found, apart = decode_apart(SpecRow, await fetch(after))
        if not apart:
            break
        after = apart[-1].fields[0]  # a page with only unreadable rows is not the end
    return found


def due_timers(rows: tuple[list[DueTimer], list[Unreadable]]) -> DueTimers:
    """Returns what `decode_held` found, as the port has it."""
    found, apart = rows
    timers = DueTimers(found)
    if apart:
        timers.unreadable = [UnreadableJob(row.fields[0], row.fields[1], row.error) for row in apart]
    return timers


def expired_claims(rows: tuple[list[Claim], list[Unreadable]]) -> ExpiredClaims:
    """Returns what `decode_held` found, as the port has it."""
    found, apart = rows
    claims = ExpiredClaims(found)
    if apart:
        claims.unreadable = list(map(unreadable_claim, apart))
    return claims


def unreadable_claim(row: Unreadable) -> UnreadableClaim:
    execution_id, job_id, tenant, _, _, _, _, attempt, token, *_ = row.fields
    return UnreadableClaim(execution_id, job_id, tenant, attempt, token, row.error)


def given_up(row: Unreadable, now: int) -> AttemptEnd:
    """Returns the end of an execution that can't be read."""
    return unreadable(*unreadable_claim(row), now)


def stand_in(row: Unreadable) -> JobRecord:
    """Returns the record that lists show for an unreadable job: everything but its definition."""
    *fields, definition = row.fields
    spec = HttpJob(
        name=str(definition.get("name"))[:255], schedule="unreadable", payload=HttpRequest("unreadable:"),
        description=row.error[:2000],
    )  # fmt: skip
    return msgspec.convert([*fields, msgspec.to_builtins(spec)], JobRecord)
