"""Converts PostgreSQL arrays as text, such as `{1,2,NULL}`, to lists and back. Does no I/O."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

MOST_DIMENSIONS = 6  # PostgreSQL's own limit
_TOKEN = re.compile(r'([{},])|"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BOUNDS = re.compile(r"(?:\[[+-]?\d+:[+-]?\d+\])+=")


def read_array(text: str, name: str) -> Any:
    """Returns the array as lists, or the text itself if it can't be parsed. `name`: the type of an item."""
    convert, bounds = _CONVERTERS.get(name, str), _BOUNDS.match(text)
    open_lists: list[list[Any]] = []
    found: list[Any] | None = None
    end = bounds.end() if bounds else 0
    for token in _TOKEN.finditer(text, end):
        sign, quoted, bare = token.groups()
        if token.start() != end or found is not None:
            return text
        end = token.end()
        if sign == "{":
            if len(open_lists) == MOST_DIMENSIONS:
                return text
            open_lists.append([])
        elif not open_lists:
            return text
        elif sign == "}":
            closed = open_lists.pop()
            if open_lists:
                open_lists[-1].append(closed)
            else:
                found = closed
        elif sign is None:
            open_lists[-1].append(_item(quoted, bare, convert))
    return text if found is None or end != len(text) else found


def _item(quoted: str | None, bare: str, convert: Callable[[str], Any]) -> Any:
    if quoted is None and bare == "NULL":
        return None
    value = bare if quoted is None else _ESCAPED.sub(r"\1", quoted)
    with suppress(ValueError, OverflowError, msgspec.DecodeError):
        return convert(value)
    return value


def write_array(values: list[Any]) -> str:
    """Returns the text of an array whose items are text, None, or lists of those."""
    return "{" + ",".join(_written(value) for value in values) + "}"


def _written(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return write_array(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _bytes(text: str) -> str:
    return b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()


_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "t", "int2": int, "int4": int, "int8": int, "oid": int, "float4": float,
    "float8": float, "json": msgspec.json.decode, "jsonb": msgspec.json.decode, "bytea": _bytes,
    "timestamptz": _instant, "timestamp": datetime.fromisoformat, "date": date.fromisoformat,
    "time": time.fromisoformat,
}  # fmt: skip
