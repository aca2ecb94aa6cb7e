from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.table import Table, friendly
from duetime.executors.sql.words import first_word


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00+00:00"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(days=1), "P1D"),
        (b"\xff\x00", "/wA="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("a\0b\ud800", "ab?"),
        (float("nan"), "nan"),
        (2**64, "18446744073709551616"),
        ([1, {"a\0": Decimal("2")}], [1, {"a": "2"}]),
    ],
)
def test_a_value_is_converted_to_json(value: object, shown: object):
    assert friendly(value) == shown


def test_no_more_rows_are_kept_than_the_limit_says():
    table = Table(SqlLimits(rows=2), ["n"])
    for number in range(5):
        table.add([number])
    assert json.loads(table.encode()) == {"columns": ["n"], "rows": [[0], [1]], "row_count": 5, "truncated": True}


def test_as_many_rows_as_the_limit_are_whole():
    table = Table(SqlLimits(rows=2), ["n"])
    table.add([0])
    table.add([1])
    assert json.loads(table.encode())["truncated"] is False


@pytest.mark.parametrize("size", [1, 10, 60, 500, 100_000])
def test_a_result_never_takes_more_bytes_than_the_limit(size: int):
    limits = SqlLimits(bytes=300)
    table = Table(limits, ["a", "b"])
    for _ in range(100):
        table.add(["ü" * size, 1])
    text = table.encode()
    assert len(text.encode()) <= limits.bytes
    assert json.loads(text)["row_count"] == 100
    assert json.loads(text)["truncated"] is True
    assert len(text.encode()) > limits.bytes // 3


def test_columns_beyond_the_limit_are_cut_too():
    table = Table(SqlLimits(bytes=300), [f"column_{number}" for number in range(1000)])
    table.add([0] * 1000)
    assert len(table.encode().encode()) <= 300
    assert json.loads(table.encode())["truncated"] is True


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("select 1", "SELECT"),
        (" -- call\n/* a /* b */ c */ Call f()", "CALL"),
        ("(select 1)", "SELECT"),
        ("/* open", ""),
        ("--", ""),
        (" ;; ", ""),
    ],
)
def test_the_first_keyword_is_found_after_comments(statement: str, word: str):
    assert first_word(statement) == word
