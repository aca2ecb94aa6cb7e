"""Work that a client without a credential can cause: log lines, decoded paths, the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.people import JWT_SECRET
from cluster.processes import Server, wait_until
from patience import PATIENCE_SECONDS
from security.raw import Ending, connect, send_until_closed

TARGET_BYTES = 8 * 1024
SHOWN = 200  # characters of a path
REQUESTS = 400


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "node", JWT_SECRET=JWT_SECRET, LOG_LEVEL="info").start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def ask(node: Server, target: bytes) -> Ending:
    with connect(node.client.port) as line:
        return send_until_closed(line, [b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % target])


def refusals(node: Server) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in node.errors().splitlines() if line.startswith("{") and line.endswith("}")]
    return [line for line in lines if "refused" in line["event"]]


def test_a_long_target_is_refused_before_it_is_read_as_a_path(node: Server) -> None:
    assert ask(node, b"/" + b"a" * (TARGET_BYTES - 1)).status == 401
    for target in (b"/" + b"a" * TARGET_BYTES, b"/" + b"%01" * 20_000, b"/?" + b"a" * TARGET_BYTES):
        ending = ask(node, target)
        assert ending.status == 414
        assert f"{TARGET_BYTES} bytes" in ending.problem["message"]


@pytest.mark.parametrize("path", [b"/" + b"a" * 8000, b"/" + b"%01" * 2700], ids=["letters", "control characters"])
def test_a_refused_request_leaves_the_beginning_of_its_path_in_the_log_and_the_response(
    node: Server, path: bytes
) -> None:
    ending = ask(node, path)
    assert len(ending.problem["instance"]) <= SHOWN + 1
    (line,) = wait_until(lambda: refusals(node), PATIENCE_SECONDS, "the refusal is in the log")
    assert len(line["path"]) <= SHOWN + 1


def test_many_refused_requests_are_counted_instead_of_logged(node: Server) -> None:
    with connect(node.client.port) as line:
        for number in range(REQUESTS):
            line.sendall(b"GET /%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % number)
            while b"\r\n\r\n" not in line.recv(65_536):
                continue

    def all_accounted() -> bool:
        """Returns whether every refusal has a line, or is counted in a sum of those without one."""
        return sum(line.get("left_out", 1) for line in refusals(node)) == REQUESTS

    wait_until(all_accounted, PATIENCE_SECONDS, "the log accounts for every refused request")
    assert len(refusals(node)) < REQUESTS / 2
