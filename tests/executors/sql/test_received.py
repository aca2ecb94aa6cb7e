"""The bytes from servers are limited per statement and per node. Over the node's limit, the largest tenant loses."""

from __future__ import annotations

import asyncio

import pytest

from duetime.domain.execution import ErrorType
from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.received import NODE_SHARE, Meter, Received
from executors.sql.conftest import Run, rows_of, sentence_of

LIMIT = 1000


class Line(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True


def opened(received: Received, tenant: str) -> tuple[Meter, Line]:
    meter, line = received.meter(tenant), Line()
    meter.opened(line)
    return meter, line


def test_a_connection_that_receives_too_much_is_closed():
    meter, line = opened(received := Received(LIMIT), "one")
    assert meter.take(LIMIT)
    assert not meter.take(1)
    assert (line.is_cut, received.total) == (True, 0)
    assert "SQL_RECEIVE_LIMIT" in str(meter.problem)


def test_each_statement_has_the_whole_limit():
    meter, line = opened(received := Received(LIMIT), "one")
    for _ in range(10):
        assert meter.take(LIMIT)
        meter.rewind()
    assert (line.is_cut, received.total) == (False, 0)


def test_the_largest_connection_of_the_largest_tenant_is_closed():
    received = Received(LIMIT)
    quiet, quiet_line = opened(received, "quiet")
    assert quiet.take(LIMIT)
    many = [opened(received, "hostile") for _ in range(2 * NODE_SHARE)]
    for meter, _ in many:
        meter.take(LIMIT - 1)
    assert not quiet_line.is_cut
    assert [line.is_cut for _, line in many].count(True) > NODE_SHARE
    assert all(meter.is_crowded for meter, line in many if line.is_cut)
    assert received.total <= NODE_SHARE * LIMIT


@pytest.mark.parametrize("limits", [SqlLimits(received_bytes=100_000)])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 200000)",
        "SELECT repeat('x', 60000) FROM generate_series(1, 100)",
        "DO $$ BEGIN FOR i IN 1..20 LOOP RAISE WARNING '%', repeat('x', 10000); END LOOP; END $$",
        "DO $$ BEGIN RAISE EXCEPTION '%', repeat('x', 200000); END $$",
    ],
)
async def test_a_statement_that_sends_too_much_fails_and_the_next_one_runs(postgres: Run, statement: str):
    said = sentence_of(await postgres(statement), ErrorType.SQL_ERROR)
    assert "SQL_RECEIVE_LIMIT" in said
    assert rows_of(await postgres("SELECT 1")) == [[1]]


@pytest.mark.parametrize("limits", [SqlLimits(received_bytes=100_000)])
async def test_many_narrow_rows_are_skipped_on_the_server(postgres: Run):
    outcome = await postgres("SELECT n, repeat('x', 100) FROM generate_series(1, 100000) AS n")
    assert outcome.error_type is None, outcome


async def test_a_long_document_stays_text(postgres: Run):
    outcome = await postgres("SELECT to_jsonb(array_fill(0, ARRAY[200000])) AS j")
    ((shown,),) = rows_of(outcome)
    assert shown.startswith("[0, 0")
