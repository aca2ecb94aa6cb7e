"""What people write into a query string, read and checked before a store sees it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from litestar import Request

from duetime.domain.errors import InvalidRequest

E = TypeVar("E", bound=StrEnum)


async def refuse_nul(request: Request[Any, Any, Any]) -> None:
    """Before any handler: no text that is stored has a NUL, and PostgreSQL does not even take one to look for."""
    if b"%00" in request.scope["query_string"]:
        for name, value in request.query_params.multi_items():
            if "\0" in value:
                raise InvalidRequest.at(f"/{name}", "holds a NUL character; remove it")


def read_filter(word: str | None, kind: type[E], name: str) -> E | None:
    """One of the words of `kind`. Not left to the framework: it takes the text `null` for a filter left out."""
    if word is None:
        return None
    try:
        return kind(word)
    except ValueError:
        raise InvalidRequest.at(f"/{name}", f"must be one of {', '.join(kind)}") from None
