"""Bodies that are small on the wire and large in memory: many tiny values, endless lines, pages of large lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from select import select

import pytest

from api.people import JWT_SECRET
from api.person import FAR
from cluster.processes import Answer, Server, wait_until
from patience import PATIENCE_SECONDS
from security.raw import MEGABYTE, connect, forget_peak_memory, peak_memory
from security.test_held_bodies import HELD, token

JOB = b'{"name":"a","schedule":"%b","payload":{"url":"http://127.0.0.1:9/","body":%b}}'
NDJSON = {"Content-Type": "application/x-ndjson"}
LINES, LINE = 150, 1_000_000
VALUES = 100_000  # of a body, where a list or an object counts as five
HEAD = (
    b"POST /api/v1/jobs:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 200000000\r\n\r\n"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("heavy"), JWT_SECRET=JWT_SECRET).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def job(body: bytes) -> bytes:
    return JOB % (FAR.encode(), body)


def array_of(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


def send(node: Server, body: bytes, path: str = "/jobs", method: str = "POST", **headers: str) -> Answer:
    return node.client.request(method, path, body, {"Authorization": f"Bearer {token('acme')}", **headers})


def test_a_body_of_too_many_values_is_refused_on_every_route_before_it_is_decoded(node: Server) -> None:
    job_id = send(node, job(b"1")).json()["job_id"]
    assert node.process is not None
    before = forget_peak_memory(node.process.pid)
    heavy = job(array_of(b"[]", 340_000))
    assert len(heavy) < MEGABYTE
    for answer in (
        send(node, heavy),
        send(node, heavy, "/jobs/by-key/a", "PUT"),
        send(node, heavy, f"/jobs/{job_id}", "PATCH"),
        send(node, b"[" + heavy + b"]", "/jobs:batch"),
        send(node, heavy, "/jobs:batch", **NDJSON),
    ):
        problem = answer.json() if answer.status == 400 else answer.json()["refused"][0]
        assert problem["error"] == "INVALID_REQUEST"
        assert f"{VALUES:,} values" in problem["message"]
    assert peak_memory(node.process.pid) - before < 16 * MEGABYTE


@pytest.mark.parametrize(
    "body",
    [array_of(b"[]", 19_000), array_of(b"1", 90_000), json.dumps("a,b,[],{}\n" * 90_000).encode()],
    ids=["lists", "numbers", "text"],
)
def test_a_body_with_the_most_allowed_values_is_accepted(node: Server, body: bytes) -> None:
    assert send(node, job(body)).status == 201
    assert send(node, job(body) + b"\n", "/jobs:batch", **NDJSON).json()["created_count"] == 1


def test_endless_lines_are_counted_and_leave_other_tenants_their_share(node: Server) -> None:
    assert node.process is not None
    before = forget_peak_memory(node.process.pid)
    with ExitStack() as held:
        hostile = [held.enter_context(connect(node.client.port)) for _ in range(LINES)]
        for line in hostile:
            line.sendall(HEAD % token("evil").encode() + b'{"name":"' + b"x" * LINE)
        assert send(node, job(b"1") + b"\n", "/jobs:batch", **NDJSON).json()["created_count"] == 1
        refused = LINES - HELD // LINE - 5  # there is no room for these lines
        wait_until(
            lambda: len(select(hostile, [], [], 0)[0]) >= refused, PATIENCE_SECONDS, f"{refused} have a response"
        )
        answered = select(hostile, [], [], 0)[0]
        assert {line.recv(12) for line in answered} == {b"HTTP/1.1 503"}
    assert peak_memory(node.process.pid) - before < HELD + 64 * MEGABYTE


def test_a_page_of_large_lines_ends_before_it_has_a_thousand(node: Server) -> None:
    """Each is small on the wire: a page of a thousand of them would take more than a gigabyte."""
    assert node.process is not None
    before = forget_peak_memory(node.process.pid)
    line = job(array_of(b"[]", 19_000)) + b"\n"
    answer = send(node, line * 300, "/jobs:batch", **NDJSON)
    assert answer.json()["created_count"] == 300
    assert peak_memory(node.process.pid) - before < 200 * MEGABYTE
