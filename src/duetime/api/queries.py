"""Reads and checks query parameters before they reach a store: filters, limits, offsets and cursors.

A cursor names the last row of the previous page.
"""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from litestar import Request

from duetime.domain.errors import InvalidRequest, NotFound
from duetime.domain.ids import is_id
from duetime.domain.instants import parse_instant

AnyRequest = Request[Any, Any, Any]  # of the framework, with any user, auth and state

E = TypeVar("E", bound=StrEnum)
DEFAULT_LIMIT = 20
MAX_LIMIT = 100
MAX_OFFSET = 1_000_000
NO_ROW = "00000000-0000-7000-8000-000000000000"  # in cursors of lists whose rows have a number only


async def refuse_nul(request: AnyRequest) -> None:
    """Raises InvalidRequest for a NUL, before any handler runs: PostgreSQL does not accept one in a query."""
    if b"%00" in request.scope["query_string"]:
        for name, value in request.query_params.multi_items():
            if "\0" in value:
                raise InvalidRequest.at(f"/{name}", "holds a NUL character; remove it")


def read_filter(word: str | None, kind: type[E], name: str) -> E | None:
    """Returns the filter as a member of `kind`. (The framework would read the text `null` as no filter.)"""
    if word is None:
        return None
    try:
        return kind(word)
    except ValueError:
        raise InvalidRequest.at(f"/{name}", f"must be one of {', '.join(kind)}") from None


def check_page(limit: int, offset: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest.at("/limit", f"must lie between 1 and {MAX_LIMIT}")
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidRequest.at("/offset", f"must lie between 0 and {MAX_OFFSET}; use cursor to go further")


def read_instant(value: str | None, name: str) -> int | None:
    """Returns the instant in the parameter `name`; None if it is not given. Raises InvalidRequest."""
    if value is None:
        return None
    try:
        return parse_instant(value.replace(" ", "+"))  # form encoding turns a plus sign into a space
    except ValueError as error:
        raise InvalidRequest.at(f"/{name}", str(error)) from None


def write_cursor(value: int | str | None, row_id: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([value, row_id])).decode().rstrip("=")


def read_cursor(cursor: str, kind: type[int] | type[str]) -> tuple[Any, str]:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        value, row_id = msgspec.json.decode(raw, type=tuple[int | str | None, str])
        if is_id(row_id) and (value is None or isinstance(value, kind)) and not _is_absurd(value):
            return value, row_id
    except (ValueError, binascii.Error, msgspec.DecodeError):
        pass  # every invalid cursor gets the same error, below
    raise InvalidRequest.at("/cursor", "is not a cursor of this list; leave it out to start at the beginning")


def _is_absurd(value: int | str | None) -> bool:
    """Returns whether no row can have this value: an instant that is too large, or a name with a NUL."""
    return "\0" in value if isinstance(value, str) else value is not None and abs(value) >= 2**63


def check_id(row_id: str, what: str) -> str:
    if not is_id(row_id):
        raise NotFound(f"there is no {what} '{row_id[:64]}'; ids look like 0198c0de-1234-7abc-8def-0123456789ab")
    return row_id
