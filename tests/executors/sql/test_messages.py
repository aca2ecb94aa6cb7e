"""The messages of a server that the driver sees, in pieces of any size."""

from __future__ import annotations

import struct

import pytest

from duetime.executors.sql.messages import (
    MOST_ITERATIONS,
    MOST_NOTICES,
    MOST_OTHERS,
    SPARE_ROWS,
    Messages,
    Tally,
    Unfit,
)
from security.hostile_postgres import columns, message, row

ROWS = 20
PARAMETERS = message(b"t", struct.pack("!H3I", 3, 23, 1007, 16_400))


def messages() -> tuple[Messages, Tally]:
    tally = Tally(ROWS)
    return Messages(tally), tally


def scram(iterations: str) -> bytes:
    return message(b"R", struct.pack("!I", 11) + f"r=nonce,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_give_the_same_bytes(size: int):
    sent = scram("4096") + PARAMETERS + columns(25, 604) + row(b"x" * 50, None) + message(b"Z", b"I")
    inner, tally = messages()
    seen = b"".join(inner.feed(sent[at : at + size]) for at in range(0, len(sent), size))
    known = message(b"t", struct.pack("!H3I", 3, 23, 705, 705))
    assert seen == sent.replace(PARAMETERS, known).replace(columns(25, 604), columns(25, 705))
    assert (tally.parameters, tally.columns) == ((23, 1007, 16_400), (25, 604))


def test_a_statement_without_columns_does_not_get_those_of_the_previous_one():
    inner, tally = messages()
    inner.feed(PARAMETERS + columns(25) + PARAMETERS + message(b"n"))
    assert tally.columns == ()


@pytest.mark.parametrize("iterations", [str(MOST_ITERATIONS + 1), "20000000", "9" * 5000])
def test_too_many_iterations_never_reach_the_driver(iterations: str):
    inner, _ = messages()
    assert inner.feed(scram(iterations)[:-1]) == b""
    with pytest.raises(Unfit, match="scram_iterations"):
        inner.feed(scram(iterations)[-1:])


def test_iterations_of_several_messages_add_up():
    inner, _ = messages()
    inner.feed(scram(str(MOST_ITERATIONS)))
    with pytest.raises(Unfit, match="scram_iterations"):
        inner.feed(scram("1"))


def test_a_row_over_the_limit_is_refused():
    inner, tally = messages()
    for _ in range(2):
        assert inner.feed(row(None) * (ROWS + SPARE_ROWS)) == row(None) * (ROWS + SPARE_ROWS)
        tally.rewind()
    inner.feed(row(None) * (ROWS + SPARE_ROWS))
    with pytest.raises(Unfit, match="more rows"):
        inner.feed(row(None))


def test_notices_over_the_limit_and_all_notifications_are_skipped():
    inner, _ = messages()
    notice, end = message(b"N", b"x\0"), message(b"Z", b"I")
    assert inner.feed(notice * MOST_NOTICES) == notice * MOST_NOTICES
    assert inner.feed(notice * 5 + message(b"A", b"channel") + end) == end


def test_messages_of_every_kind_are_limited():
    inner, _ = messages()
    inner.feed(message(b"C", b"SELECT 1\0") * MOST_OTHERS)
    with pytest.raises(Unfit, match="'C'"):
        inner.feed(message(b"C", b"SELECT 1\0"))


@pytest.mark.parametrize(
    "sent",
    [
        b"D\0\0\0\x03",
        b"T\x7f\xff\xff\xff",
        message(b"T", struct.pack("!H", 5) + b"no end"),
        message(b"T", struct.pack("!H", 5) + b"name\0"),
        message(b"t", struct.pack("!H", 5)),
        message(b"S", b"no value"),
        message(b"T"),
    ],
)
def test_bytes_that_are_not_a_message_are_refused(sent: bytes):
    with pytest.raises(Unfit, match="protocol"):
        messages()[0].feed(sent)
