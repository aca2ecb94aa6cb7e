from __future__ import annotations

import asyncpg
import pytest

from duetime.domain.execution import ErrorType
from executors.sql.conftest import Run, rows_of, sentence_of


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        ("int2", 5, 5),
        ("int8", 2**62, 2**62),
        ("float8", 1, 1.0),
        ("numeric", "12345678901234567890.123", "12345678901234567890.123"),
        ("numeric", 0.1, "0.1"),
        ("text", "ü", "ü"),
        ("text", 5, "5"),
        ("bool", True, True),
        ("jsonb", {"a": [1, None]}, {"a": [1, None]}),
        ("json", "text", "text"),
        ("uuid", "01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f", "01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f"),
        ("timestamptz", "2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00+00:00"),
        ("timestamptz", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
        ("timestamp", "2026-01-31T12:00:00", "2026-01-31T12:00:00"),
        ("date", "2026-01-31", "2026-01-31"),
        ("time", "12:30:00", "12:30:00"),
        ("bytea", "/wA=", "/wA="),
        ("int4[]", [1, None, 3], [1, None, 3]),
        ("text[]", [["a"], ["b"]], [["a"], ["b"]]),
        ("text[]", ['a,"b\\', "{", "NULL", "", None, " "], ['a,"b\\', "{", "NULL", "", None, " "]),
        ("bool[]", [True, False], [True, False]),
        ("numeric[]", [0.1, "1e3"], ["0.1", "1000"]),
        ("jsonb[]", [{"a": [1]}, "x"], [{"a": [1]}, "x"]),
        ("bytea[]", ["/wA="], ["/wA="]),
        ("float8[]", [1, 0.5], [1.0, 0.5]),
        ("uuid[]", ["01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f"], ["01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f"]),
        ("int4[]", [], []),
        ("numrange", "[1,5)", "[1,5)"),
        ("bit(3)", "101", "101"),
        ("polygon", "((0,0),(1,1))", "((0,0),(1,1))"),
        ("money", 5, "$5.00"),
        ("timestamptz[]", ["2026-01-31T12:00:00Z"], ["2026-01-31T12:00:00+00:00"]),
        ("inet", "10.0.0.1", "10.0.0.1"),
        ("text::interval", "1 day", "P1D"),
        ("text::int4range", "[1,5)", "[1,5)"),
        ("int4", None, None),
    ],
)
async def test_a_json_value_is_bound_as_the_type_of_the_parameter(
    postgres: Run, type_: str, value: object, shown: object
):
    assert rows_of(await postgres(f"SELECT $1::{type_} AS v", value)) == [[shown]]


async def test_user_defined_types_are_bound(postgres: Run, session: asyncpg.Connection):
    await session.execute("CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN few AS int CHECK (VALUE < 10)")
    await session.execute("CREATE TABLE t (m mood, f few, ms mood[])")
    outcome = await postgres("INSERT INTO t VALUES ($1, $2, $3) RETURNING *", "ok", 5, ["sad"])
    assert rows_of(outcome) == [["ok", 5, "{sad}"]]
    assert rows_of(await postgres("SELECT ms::text[] FROM t")) == [[["sad"]]]
    await session.execute("CREATE TYPE pair AS (a int, b text); DELETE FROM t")
    assert rows_of(await postgres("SELECT $1::pair AS p, $1::pair = (1, 'x y')::pair", '(1,"x y")')) == [
        ['(1,"x y")', True]
    ]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int4", "s3cret"), ("int4", 2**31), ("int4", True), ("bool", 1), ("uuid", "s3cret"), ("bytea", "s3cret"),
        ("timestamptz", "2026-01-31T12:00:00"), ("timestamp", "2026-01-31T12:00:00Z"), ("date", 5), ("int4[]", 5),
        ("text", {}), ("interval", "1 day"), ("int4range", {}), ("numeric", "s3cret"),
    ],
)  # fmt: skip
async def test_the_error_for_a_value_that_does_not_fit_has_number_and_type(postgres: Run, type_: str, value: object):
    said = sentence_of(await postgres(f"SELECT $1::text, $2::{type_}", "x", value), ErrorType.SQL_ERROR)
    assert said.startswith(f"Parameter $2 does not fit its type, {type_}: pass ")
    assert "s3cret" not in said


async def test_the_number_of_values_must_be_the_number_of_parameters(postgres: Run):
    said = sentence_of(await postgres("SELECT $1::int", 1, 2), ErrorType.SQL_ERROR)
    assert said.startswith("The statement has 1 parameters, the job gives 2.")
