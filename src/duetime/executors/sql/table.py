"""Turns a result into a small JSON table, limited in rows and bytes whatever the values are."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import asyncpg
import msgspec

from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.problems import clean

_SHORT_TEXT = 100  # characters that are kept of each text in a first row that does not fit
_LONGEST_INTEGER = 2**63


class Table:
    """Keeps rows until one does not fit; all later rows are only counted."""

    def __init__(self, limits: SqlLimits, columns: Iterable[str] = ()) -> None:
        self._most_rows = limits.rows
        self._room = limits.bytes - len(_json([], [], _LONGEST_INTEGER, is_truncated=False)) - 1
        self._columns: list[str] = []
        self._rows: list[msgspec.Raw] = []
        self.row_count = 0
        self.is_full = False
        self._is_cut = False
        self._name(columns)

    def _name(self, columns: Iterable[str]) -> None:
        for name in columns:
            column = clean(name)
            size = len(msgspec.json.encode(column)) + 1
            if size > self._room:
                self._is_cut = self.is_full = True  # a row without its column names is useless
                return
            self._room -= size
            self._columns.append(column)

    def add(self, row: Iterable[Any]) -> None:
        self.row_count += 1
        if self.is_full or len(self._rows) >= self._most_rows:
            self.is_full = self._is_cut = True
            return
        values = [friendly(value) for value in row]
        encoded = msgspec.json.encode(values)
        if len(encoded) >= self._room and not self._rows:
            # The start of a long text is more useful than no row.
            self._is_cut = self.is_full = True
            encoded = msgspec.json.encode([_shortened(value) for value in values])
        if len(encoded) >= self._room:
            self._is_cut = self.is_full = True
            return
        self._room -= len(encoded) + 1
        self._rows.append(msgspec.Raw(encoded))

    def skip(self, rows: int) -> None:
        """Counts rows that are not kept."""
        self.row_count += rows
        self._is_cut = self._is_cut or rows > 0

    def encode(self) -> str:
        return _json(self._columns, self._rows, self.row_count, is_truncated=self._is_cut).decode()


def _json(columns: list[str], rows: list[msgspec.Raw], row_count: int, *, is_truncated: bool) -> bytes:
    return msgspec.json.encode({"columns": columns, "rows": rows, "row_count": row_count, "truncated": is_truncated})


def friendly(value: Any) -> Any:
    """Converts a database value to a JSON value without loss, or to text."""
    match value:
        case None | bool():
            return value
        case str():
            return clean(value)
        case int():
            return value if -_LONGEST_INTEGER <= value < _LONGEST_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return msgspec.to_builtins(value)
        case asyncpg.BitString():
            return value.as_string()
        case asyncpg.Range():
            return _range(value)
        case asyncpg.Record():  # before Mapping, because its fields may have the same name
            return [friendly(field) for field in value.values()]
        case Mapping():
            return {clean(str(key)): friendly(field) for key, field in value.items()}
        case Sequence():
            return [friendly(item) for item in value]
        case _:
            return clean(str(value))


def _range(value: asyncpg.Range) -> str:
    if value.isempty:
        return "empty"
    bounds = ["" if bound is None else str(friendly(bound)) for bound in (value.lower, value.upper)]
    return f"{'[' if value.lower_inc else '('}{','.join(bounds)}{']' if value.upper_inc else ')'}"


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _SHORT_TEXT:
        return value[:_SHORT_TEXT] + "…"
    return None if isinstance(value, list | dict) else value
