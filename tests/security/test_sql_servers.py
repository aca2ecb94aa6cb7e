"""A tenant's own hostile PostgreSQL server costs the node neither time nor memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from cluster.processes import Server
from executors.script.watching import on_linux
from security.hostile_postgres import HostileServer, message, row
from security.hostile_sql import Admin, node

pytestmark = [pytest.mark.slow, on_linux]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = node(tmp_path_factory.mktemp("sql-servers"), SQL_ALLOWED_HOSTS="127.0.0.1")
    server.start()
    yield server
    server.close()


@pytest.fixture
def eve(server: Server) -> Admin:
    return Admin(server, "evil")


def ended(eve: Admin, hostile: HostileServer) -> dict[str, Any]:
    found = eve.run(hostile.url, "SELECT 1")
    assert found is not None
    return found


def test_a_handshake_with_millions_of_iterations_is_refused_before_the_first(eve: Admin) -> None:
    with closing(HostileServer(iterations=1_000_000)) as hostile:
        found = ended(eve, hostile)
    assert (found["error_type"], hostile.proofs) == ("sql_error", 0), found
    assert "scram_iterations" in found["error_message"]


def test_a_normal_handshake_succeeds(eve: Admin) -> None:
    with closing(HostileServer(iterations=4096)) as hostile:
        ended(eve, hostile)
    assert hostile.proofs == 1


def test_a_server_that_sends_more_rows_than_requested_is_disconnected(eve: Admin) -> None:
    with closing(HostileServer(row(None) * 200_000)) as hostile:
        found = ended(eve, hostile)
    assert found["error_type"] == "sql_error", found
    assert "more rows than were requested" in found["error_message"]


def test_a_thousand_notices_are_logged_and_the_others_skipped(eve: Admin) -> None:
    notice = message(b"N", b"SNOTICE\0C00000\0Mpsst\0\0")
    with closing(HostileServer(notice * 20_000 + row(b"x"))) as hostile:
        found = ended(eve, hostile)
    assert found["state"] == "COMPLETED", found
    log = eve.get(f"/executions/{found['execution_id']}/logs?limit=1000").body.decode()
    assert 900 < log.count("psst") <= 1000


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (message(b"N", b"\0") * 200_000, "notices"),
        (message(b"S", b"application_name\0x\0") * 20_000, "'S'"),
        (message(b"E", b"SERROR\0C00000\0Mno\0\0") * 20_000, "'E'"),
        (message(b"C", b"SELECT 1\0") * 20_000, "'C'"),
    ],
)
def test_messages_of_every_kind_are_counted(eve: Admin, answer: bytes, says: str) -> None:
    with closing(HostileServer(answer)) as hostile:
        found = ended(eve, hostile)
    assert found["error_type"] == "sql_error", found
    assert says in found["error_message"], found


def test_a_result_has_no_more_columns_than_postgresql_has(eve: Admin) -> None:
    with closing(HostileServer(types=(25,) * 10_000)) as hostile:
        found = ended(eve, hostile)
    assert "more than 1664 columns" in found["error_message"], found


def test_the_server_can_not_choose_another_encoding_than_utf8(eve: Admin) -> None:
    """Python has codecs whose work grows with the square of the length of a text."""
    with closing(HostileServer(status={"client_encoding": "zlib_codec"})) as hostile:
        found = ended(eve, hostile)
    assert "client_encoding" in found["error_message"], found


MANY = struct.pack("!i", 2**21)  # with 2**31 - 1 it would be 16 GB


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (604, MANY),  # a polygon of two million points, in four bytes
        (602, b"\0" + MANY),  # a path
        (2249, MANY),  # a record
        (5038, MANY + bytes(16)),  # a snapshot
        (1007, struct.pack("!iiI", 1, 0, 23) + MANY + MANY),  # an array
        (1700, struct.pack("!HhHH", 1, 32512, 0, 1)),  # a number
        (99_999, MANY),  # a type defined by the server
    ],
)
def test_a_value_with_a_false_size_is_not_decoded(eve: Admin, type_: int, value: bytes) -> None:
    """The node requests the value as text, and does not look up its type."""
    with closing(HostileServer(row(value), types=(type_,))) as hostile:
        found = ended(eve, hostile)
        (bound,) = hostile.bound
    assert bound.endswith(struct.pack("!HH", 1, 0)), "one format of results, which is text"
    assert found["state"] == "COMPLETED", found
    assert len(json.loads(found["response"])["rows"]) == 1
    assert not [query for query in hostile.parsed if "pg_type" in query]
