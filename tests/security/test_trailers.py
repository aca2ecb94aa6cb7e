"""Bytes besides a body cost a node nothing: trailers, chunk sizes, extensions, unwanted bodies.

None of these clients needs a credential: all of it happens before a request is authenticated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import repeat

import pytest

from api.person import FAR
from cluster.processes import Server
from security.raw import MEGABYTE, Ending, connect, peak_memory, send_until_closed

POST = b"POST /api/v1/%b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n\r\n"
CHUNKED = POST % (b"jobs", b"Transfer-Encoding: chunked")
CHUNKED_LINES = POST % (b"jobs:batch", b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked")
JOB = json.dumps({"name": "in chunks", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/"}}).encode()
BUFFERS = 24 * MEGABYTE  # the most that two sockets of loopback buffer, and that a node discards


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("wire")).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def attack(node: Server, *pieces: bytes, then: bytes = b"", times: int = 0) -> Ending:
    with connect(node.client.port) as line:
        return send_until_closed(line, (*pieces, *repeat(then, times)))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def job_count(node: Server) -> int:
    count: int = node.client.get("/jobs?limit=1").json()["total"]
    return count


def test_endless_trailers_take_no_memory(node: Server) -> None:
    assert node.process is not None
    before = peak_memory(node.process.pid)
    ending = attack(node, CHUNKED, b"0\r\n", then=b"X-A: 1\r\n" * 8192, times=256)  # 16 MB, 2 million headers
    assert peak_memory(node.process.pid) - before < 32 * MEGABYTE
    assert ending.status == 400
    assert "trailers" in ending.problem["message"]
    assert node.client.get("/health").status == 200


def test_one_endless_trailer_takes_no_memory(node: Server) -> None:
    assert node.process is not None
    before = peak_memory(node.process.pid)
    ending = attack(node, CHUNKED, b"0\r\nX-A: ", then=b"a" * 65_536, times=512)
    assert peak_memory(node.process.pid) - before < 32 * MEGABYTE
    assert ending.sent < 32 * MEGABYTE
    assert node.client.get("/health").status == 200


@pytest.mark.parametrize("trailer", [b"X-A: 1\r\n", b"Authorization: Bearer x\r\n"])
def test_a_request_with_a_trailer_is_refused_and_changes_nothing(node: Server, trailer: bytes) -> None:
    before = job_count(node)
    ending = attack(node, CHUNKED, chunk(JOB), b"0\r\n" + trailer + b"\r\n")
    assert ending.status == 400
    assert ending.problem["error"] == "INVALID_REQUEST"
    assert "trailers" in ending.problem["message"]
    assert b"connection: close" in ending.said
    assert job_count(node) == before


@pytest.mark.parametrize(
    "piece",
    [b"1\r\n \r\n" * 8192, b"1;extension=%b\r\n \r\n" % (b"a" * 2000) * 32, b"1;name=value\r\n \r\n" * 4096],
    ids=["chunks of a byte", "long extensions", "short extensions"],
)
@pytest.mark.parametrize("head", [CHUNKED, CHUNKED_LINES], ids=["a job", "a batch"])
def test_chunks_that_are_mostly_framing_are_refused(node: Server, head: bytes, piece: bytes) -> None:
    ending = attack(node, head, then=piece, times=64)
    assert ending.status == 400
    assert "larger chunks" in ending.problem["message"]


def test_an_endless_chunk_extension_is_refused(node: Server) -> None:
    ending = attack(node, CHUNKED, b"1;", then=b"a" * 65_536, times=16)
    assert ending.status == 400
    assert "larger chunks" in ending.problem["message"]


def test_a_batch_may_come_in_a_chunk_for_each_line(node: Server) -> None:
    before = job_count(node)
    lines = [chunk(JOB + b"\n")] * 3000
    close = CHUNKED_LINES.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    ending = attack(node, close, *lines, b"0\r\n\r\n")
    assert ending.status == 200
    assert job_count(node) == before + 3000


def test_a_body_in_small_chunks_is_accepted(node: Server) -> None:
    close = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    pieces = [chunk(JOB[start : start + 1]) for start in range(len(JOB))]
    assert attack(node, close, *pieces, b"0\r\n\r\n").status == 201


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000000", b"Transfer-Encoding: chunked"])
def test_the_body_is_not_read_to_its_end_after_the_response(node: Server, framing: bytes) -> None:
    ending = attack(node, POST % (b"nowhere", framing), then=chunk(bytes(65_536)), times=2048)  # 128 MB
    assert ending.status == 404
    assert b"connection: close" in ending.said
    assert ending.sent < 2 * BUFFERS


def test_a_client_can_read_the_response_to_a_refused_body(node: Server) -> None:
    """It sends everything before it reads, as most clients do."""
    answer = node.client.request("POST", "/nowhere", bytes(4 * MEGABYTE))
    assert answer.status == 404
    assert answer.headers["connection"] == "close"


def test_pipelined_requests_are_limited(node: Server) -> None:
    ahead = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    ending = attack(node, ahead * 1000)
    assert ending.said.count(b"HTTP/1.1 200") < 1000


def test_a_head_of_many_small_headers_is_refused(node: Server) -> None:
    ending = attack(node, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: 1\r\n" * 300 + b"\r\n")
    assert ending.status == 431
    assert "more than 256 headers" in ending.problem["message"]


def test_an_incomplete_head_of_many_small_headers_is_refused(node: Server) -> None:
    ending = attack(node, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", then=b"A: 1\r\n" * 2000, times=64)
    assert ending.status == 431
    assert "more than 256 headers" in ending.problem["message"]
