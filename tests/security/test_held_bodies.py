"""Bodies that a node holds while they arrive: arrays are limited, and tenants share the memory."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from api.people import JWT_SECRET
from api.person import FAR
from cluster.processes import Answer, Server, now_ms
from duetime.api.auth.tokens import sign
from security.raw import MEGABYTE, connect, peak_memory, read_to_the_end

JOB = {"name": "one of many", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/"}}
ARRAY = 8 * MEGABYTE  # the largest array
HELD = 64 * MEGABYTE  # the limit of all together
HEAD = (
    b"POST /api/v1/jobs:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("bodies"), JWT_SECRET=JWT_SECRET).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def token(tenant: str) -> str:
    claims = {"user_id": "u", "role": "admin", "tier": "enterprise", "tenant": tenant}
    return sign(JWT_SECRET, "duetime", "duetime", claims, now_ms(), 3600)


def send(node: Server, body: bytes, tenant: str = "acme", kind: str = "application/json") -> Answer:
    headers = {"Authorization": f"Bearer {token(tenant)}", "Content-Type": kind}
    return node.client.request("POST", "/jobs:batch", body, headers)


def array(size: int) -> bytes:
    """Returns an array with one job, of this total size."""
    job = b"[%b" % json.dumps(JOB).encode()
    return job + b" " * (size - len(job) - 1) + b"]"


def test_an_array_may_have_8_megabytes(node: Server) -> None:
    assert send(node, array(ARRAY)).json()["created_count"] == 1


@pytest.mark.parametrize("size", [ARRAY + 1, 14 * MEGABYTE])
def test_a_larger_array_is_refused_with_advice(node: Server, size: int) -> None:
    answer = send(node, array(size))
    assert (answer.status, answer.json()["error"]) == (413, "PAYLOAD_TOO_LARGE")
    assert "application/x-ndjson" in answer.json()["message"]


def test_a_larger_array_without_a_length_is_refused_too(node: Server) -> None:
    head = HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") % token("acme").encode()
    with connect(node.client.port) as line:
        line.sendall(head)
        for _ in range(ARRAY // MEGABYTE + 1):
            line.sendall(b"%x\r\n%b\r\n" % (MEGABYTE, b" " * MEGABYTE))
        assert read_to_the_end(line).startswith(b"HTTP/1.1 413 ")


def test_a_larger_batch_of_lines_is_accepted(node: Server) -> None:
    line = json.dumps(JOB).encode()
    lines = line + b" " * (MEGABYTE // 2 - len(line)) + b"\n"
    assert send(node, lines * 24, kind="application/x-ndjson").json()["created_count"] == 24


def begin(lines: ExitStack, node: Server, tenant: str) -> socket.socket:
    """An array of which only the last byte is missing."""
    line = lines.enter_context(connect(node.client.port))
    line.sendall(HEAD % (token(tenant).encode(), ARRAY) + array(ARRAY)[:-1])
    return line


def test_endless_arrays_take_limited_memory_and_leave_other_tenants_their_share(node: Server) -> None:
    assert node.process is not None
    before = peak_memory(node.process.pid)
    with ExitStack() as lines:
        hostile = [begin(lines, node, "evil") for _ in range(40)]  # 320 MB
        assert send(node, array(ARRAY), "victim").json()["created_count"] == 1
        refused = 0
        for line in hostile:
            line.setblocking(False)
            try:
                refused += line.recv(4096).startswith(b"HTTP/1.1 503 ")
            except BlockingIOError:
                continue
        assert refused >= 40 - HELD // ARRAY - 2
    assert peak_memory(node.process.pid) - before < HELD + 3 * ARRAY + 32 * MEGABYTE
