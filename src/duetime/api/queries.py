"""Reads and checks query parameters before they reach a store."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from litestar import Request

from duetime.domain.errors import InvalidRequest

AnyRequest = Request[Any, Any, Any]  # of the framework, with any user, auth and state

E = TypeVar("E", bound=StrEnum)


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
