"""Converts JSON values to the objects that the PostgreSQL driver needs for a parameter's type.

Values that JSON can't express are passed as text: numerics that must be exact, uuids, dates and instants in ISO 8601,
bytes in base64. For json and jsonb, any value is passed as JSON. For types that are hidden from the driver, values are
sent as text, which the server parses: numbers and text as they are, lists as arrays.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from duetime.executors.sql.problems import Failed, wrong
from duetime.executors.sql.types import MOST_DIMENSIONS, SIMPLE, name_of, write_array

_ARGUMENT = re.compile(r"argument \$(\d+)")
_INVALID = "SQLSTATE 22023"


def bind(values: list[Any], types: tuple[int, ...]) -> list[Any]:
    """Returns the converted parameters. Raises Failed if one does not fit its type.

    The message holds the parameter's number and type, but not its value, which may be secret.
    """
    if len(values) != len(types):
        raise wrong(f"The statement has {len(types)} parameters, the job gives {len(values)}.", "SQLSTATE 08P01")
    return [_bound(number, value, type_) for number, (value, type_) in enumerate(zip(values, types, strict=True), 1)]


def _bound(number: int, value: Any, type_: int) -> Any:
    if value is None:
        return None
    name = name_of(type_)
    try:
        if type_ in SIMPLE:
            return _CONVERTERS[name](value) if name in _CONVERTERS else value
        if name.endswith("[]") or (name == "unknown" and isinstance(value, list)):
            return write_array(_items(value, name.removesuffix("[]")))
        return _item(value, name)
    except (ValueError, TypeError, InvalidOperation, OverflowError):
        raise misfit(number, type_) from None


def _items(value: Any, name: str, depth: int = 1) -> list[Any]:
    """Returns the items of an array as text, which the server parses."""
    if not isinstance(value, list) or depth > MOST_DIMENSIONS:
        raise TypeError
    return [
        _items(item, name, depth + 1) if isinstance(item, list) else None if item is None else _item(item, name)
        for item in value
    ]


def _item(value: Any, name: str) -> str:
    convert: Callable[[Any], Any] = _CONVERTERS.get(name, _text)
    converted = convert(value)
    if isinstance(converted, bytes):
        return f"\\x{converted.hex()}"
    return converted.isoformat() if isinstance(converted, date | time) else str(converted)


def misfit(number: int, type_: int) -> Failed:
    name = name_of(type_)
    wanted = _WANTED.get(name.removesuffix("[]"))
    if wanted is None:
        hint = f"pass text and write ${number}::text::{name} in the statement"
    else:
        hint = f"pass a list, each item {wanted}" if name.endswith("[]") else f"pass {wanted}"
    return wrong(f"Parameter ${number} does not fit its type, {name}: {hint}.", _INVALID)


def misfit_of(problem: Exception, types: tuple[int, ...]) -> Failed:
    """Returns the failure for a parameter that the driver could not encode."""
    match = _ARGUMENT.search(str(problem))
    if match is None or int(match[1]) > len(types):
        return wrong("The driver can't send the parameters: pass them as text and cast them.", _INVALID)
    return misfit(int(match[1]), types[int(match[1]) - 1])


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _numeric(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return Decimal(str(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise TypeError
    return msgspec.json.encode(value).decode()


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _bytes(value: Any) -> bytes:
    return b64decode(value, validate=True)


def _instant(value: Any) -> datetime:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is None:
        raise ValueError("no offset")
    return instant


def _local_instant(value: Any) -> datetime:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is not None:
        raise ValueError("an offset")
    return instant


_INTEGERS = dict.fromkeys(("int2", "int4", "int8", "oid"), _integer)
_TEXTS = dict.fromkeys(("text", "varchar", "bpchar", "name", "citext", "unknown"), _text)
_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    **_INTEGERS, **_TEXTS, "float4": _float, "float8": _float, "numeric": _numeric, "bool": _boolean,
    "json": _json, "jsonb": _json, "uuid": UUID, "bytea": _bytes, "timestamptz": _instant,
    "timestamp": _local_instant, "date": date.fromisoformat, "time": time.fromisoformat, "timetz": time.fromisoformat,
}  # fmt: skip
_WANTED = {
    **dict.fromkeys(_INTEGERS, "a whole number within its range"), **dict.fromkeys(_TEXTS, "text"),
    "unknown": "text, or a list for an array",
    "float4": "a number", "float8": "a number", "numeric": "a number, or text for one that must be exact",
    "bool": "true or false", "json": "any JSON value", "jsonb": "any JSON value", "uuid": "text such as "
    "01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f", "bytea": "its bytes in base64",
    "timestamptz": "text such as 2026-01-31T12:00:00Z, with an offset",
    "timestamp": "text such as 2026-01-31T12:00:00, without an offset", "date": "text such as 2026-01-31",
    "time": "text such as 12:00:00", "timetz": "text such as 12:00:00+02:00",
}  # fmt: skip
