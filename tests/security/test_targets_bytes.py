"""A target that sends anything except a body costs a node no memory and no time: every byte of an exchange counts."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from unittest.mock import Mock

import pytest

from cluster.processes import Server, wait_until
from duetime.domain.http_bounds import MAX_PARTS
from duetime.executors.connection import BadAnswer, Connection
from patience import PATIENCE_SECONDS
from security.raw import MEGABYTE, peak_memory

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST_SENT = 64 * MEGABYTE
# The first bytes, the bytes that follow without end, and the end if the node has not closed the connection before.
ATTACKS = {
    "trailers": (CHUNKED + b"0\r\n", b"X-A: 1\r\n" * 8192, b"\r\n"),
    "one trailer": (CHUNKED + b"0\r\nX-A: ", b"a" * 65_536, b"\r\n\r\n"),
    "chunks of a byte": (CHUNKED, b"1\r\nx\r\n" * 10_000, b"0\r\n\r\n"),
    "chunk extensions": (CHUNKED, b"1;name=%b\r\nx\r\n" % (b"v" * 2000) * 32, b"0\r\n\r\n"),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000, b"HTTP/1.1 204 No Content\r\n\r\n"),
}  # fmt: skip


class Target:
    """Answers each request with one of the attacks, and counts the bytes that it could send."""

    def __init__(self, answer: tuple[bytes, bytes, bytes], times: int) -> None:
        self._first, self._then, self._end = answer
        self._times = times
        self.sent = 0
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def _serve(self) -> None:
        with self._listener.accept()[0] as line, suppress(ConnectionError):
            line.settimeout(PATIENCE_SECONDS)
            line.recv(65_536)
            for piece in (self._first, *repeat(self._then, self._times), self._end):
                line.sendall(piece)
                self.sent += len(piece)
        self.ended.set()

    def close(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        self._listener.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("targets")).start()
    yield server
    assert server.returncode() is None, f"the server ended on its own: {server.errors()}"
    server.close()


def run(node: Server, answer: tuple[bytes, bytes, bytes], times: int) -> tuple[dict[str, str], int]:
    """Returns the execution that called such a target, and how many bytes the target could send."""
    target = Target(answer, times)
    try:
        body = {"name": "hostile", "schedule": "immediate", "payload": {"url": target.url}, "timeout_seconds": 60,
                "retry_policy": {"max_retries": 0}}  # fmt: skip
        job_id = node.client.post("/jobs", body).json()["job_id"]

        def ended() -> dict[str, str] | None:
            (execution,) = node.client.get(f"/jobs/{job_id}/executions").json()["executions"] or [{"state": "QUEUED"}]
            return None if execution["state"] in ("QUEUED", "RUNNING") else execution

        execution = wait_until(ended, 60, "the execution has ended")
        assert target.ended.wait(PATIENCE_SECONDS)
    finally:
        target.close()
    return execution, target.sent


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_target_that_sends_too_much_framing_is_cut_off(node: Server, attack: str) -> None:
    assert node.process is not None
    before = peak_memory(node.process.pid)
    execution, sent = run(node, ATTACKS[attack], MOST_SENT // len(ATTACKS[attack][1]))
    assert execution["state"] == "FAILED"
    assert re.search("64 kB of|more than 2000 headers", execution["error_message"])
    assert sent < MOST_SENT // 2, "the rest was never taken"
    assert peak_memory(node.process.pid) - before < 32 * MEGABYTE


def test_a_response_in_chunks_of_one_byte_is_cut_off(node: Server) -> None:
    """60 kB of body in chunks of one byte: only the framing is too large."""
    execution, _ = run(node, ATTACKS["chunks of a byte"], 6)
    assert (execution["state"], execution["error_type"]) == ("FAILED", "connection_error")


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (CHUNKED + b"0\r\n" + b"A: 1\r\n" * 100_000, 100_000),
        (CHUNKED + b"1\r\nx\r\n" * 100_000, 100_000),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000, 100_000),
        (b"HTTP/1.1 200 OK\r\n" + b"A: 1\r\n" * 100_000, 100_000),
    ],
    ids=["trailers", "chunks of a byte", "interim answers", "headers"],
)
async def test_the_number_of_parts_of_a_response_is_limited(answer: bytes, parts: int) -> None:
    """Each costs as much as a hundred bytes of a body: 64 kB of them would cost as much as sixty requests."""
    handled = Counter[str]()

    class Counted(Connection):
        def on_header(self, name: bytes, value: bytes) -> None:
            handled["headers"] += 1
            super().on_header(name, value)

        def on_body(self, chunk: bytes) -> None:
            handled["chunks"] += 1
            super().on_body(chunk)

        def on_message_begin(self) -> None:
            handled["messages"] += 1
            super().on_message_begin()

    line = Counted("127.0.0.1")
    line.connection_made(Mock(is_closing=lambda: False))
    exchange = asyncio.ensure_future(line.exchange(b"", asyncio.get_running_loop().time() + PATIENCE_SECONDS))
    await asyncio.sleep(0)
    line.data_received(answer)
    with pytest.raises(BadAnswer, match="2000 headers"):
        await exchange
    assert handled.total() <= MAX_PARTS + 2 < parts


def test_a_few_trailers_and_small_chunks_are_accepted(node: Server) -> None:
    answer = CHUNKED, b"1\r\nx\r\n", b"0\r\nServer-Timing: a\r\nRetry-After: 9\r\n\r\n"
    execution, _ = run(node, answer, 100)
    assert execution["state"] == "COMPLETED"
