"""PostgreSQL's built-in types by their numbers (OIDs), which are the same on every server, and its arrays as text."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import msgspec

UNKNOWN = 705
MOST_DIMENSIONS = 6  # of an array: PostgreSQL's own limit
# For each of these types, the size of a value limits the time and memory that the driver needs to decode it. Values of
# other types are sent and received as text.
SIMPLE = frozenset({
    16, 17, 18, 19, 20, 21, 23, 25, 26, 28, 29, 114, 142, 700, 701, UNKNOWN, 1042, 1043, 1082, 1083, 1114, 1184, 1186,
    1266, 2278, 2950, 3802,
})  # fmt: skip
_NAMES = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
    114: "json", 142: "xml", 600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line",
    650: "cidr", 700: "float4", 701: "float8", 718: "circle", 790: "money", 829: "macaddr", 869: "inet",
    1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
    1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric", 2278: "void", 2950: "uuid",
    3802: "jsonb", 3904: "int4range", 3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange",
    3926: "int8range",
}  # fmt: skip
_ARRAYS = {
    143: 142, 199: 114, 651: 650, 1000: 16, 1001: 17, 1003: 19, 1005: 21, 1007: 23, 1009: 25, 1014: 1042, 1015: 1043,
    1016: 20, 1017: 600, 1021: 700, 1022: 701, 1028: 26, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184,
    1187: 1186, 1231: 1700, 1270: 1266, 1561: 1560, 1563: 1562, 2951: 2950, 3807: 3802,
}  # fmt: skip


def name_of(number: int) -> str:
    """Returns a type's name: for an array, its item type and []; for a user-defined or unlisted type, `unknown`."""
    if number in _ARRAYS:
        return f"{_NAMES[_ARRAYS[number]]}[]"
    return _NAMES.get(number, "unknown")


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
