"""Slow-loris attacks: hundreds of slow or silent connections do not delay other clients, and are closed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.person import FAR
from cluster.processes import Client, Server
from duetime.api.http import protocol
from patience import PATIENCE_SECONDS

_POST = (
    b"POST /api/v1/%b HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Content-Type: application/x-ndjson\r\nContent-Length: 100000\r\n\r\n"
)
# The first bytes, and the bytes that follow slowly. An empty text: the client is silent.
HEAD = (b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", b"x")
LINES = (b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-A: x\r\n")
SILENT = (b"", b"")
BODY = (_POST % b"jobs" + b'{"name"', b" ")
SILENT_BODY = (_POST % b"jobs" + b'{"name"', b"")
BATCH = (_POST % b"jobs:batch" + b'{"name"', b" ")
CROWD = [HEAD] * 100 + [LINES] * 40 + [SILENT] * 20 + [BODY] * 40 + [SILENT_BODY] * 40 + [BATCH] * 40
PUT_UP_SECONDS = 2.0  # of the server: see hasty/sitecustomize.py
DRIP_SECONDS = 0.3


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Server]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).with_name("hasty")), os.environ.get("PYTHONPATH")]))
    server = Server(tmp_path / "node").start({"PYTHONPATH": path})
    yield server
    server.close()


async def dawdle(port: int, first: bytes, drop: bytes) -> float:
    """Returns after how many seconds the server closed the connection."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    gone = asyncio.create_task(_read_to_the_end(reader))
    while not gone.done():
        await asyncio.wait({gone}, timeout=DRIP_SECONDS)
        writer.write(drop)
    writer.close()
    return time.monotonic() - began


async def _read_to_the_end(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        return


async def ask_until(ended: asyncio.Event, client: Client) -> list[float]:
    """Sends ordinary requests, one after the other. Returns how long each took."""
    took = []
    job = {"name": "ordinary", "schedule": FAR, "payload": {"url": "http://127.0.0.1:9/"}}
    while not ended.is_set():
        for method, path, body, status in (("POST", "/jobs", job, 201), ("GET", "/jobs?limit=1", None, 200)):
            began = time.monotonic()
            answer = await asyncio.to_thread(client.request, method, path, body)
            took.append(time.monotonic() - began)
            assert answer.status == status, answer
    return sorted(took)


async def test_many_slow_clients_delay_no_other_client_and_are_closed(hasty: Server) -> None:
    ended = asyncio.Event()
    asking = asyncio.create_task(ask_until(ended, hasty.client))
    async with asyncio.timeout(PATIENCE_SECONDS):
        lasted = await asyncio.gather(*(dawdle(hasty.client.port, first, drop) for first, drop in CROWD))
    ended.set()
    took = await asking
    assert min(lasted) > PUT_UP_SECONDS / 2
    assert len(took) >= 4
    assert took[len(took) // 2] * 2 < min(lasted), "nobody waits until the crowd is gone"
    assert "a request failed" not in hasty.errors()


def test_no_client_is_waited_for_longer_than_a_minute() -> None:
    """This is the limit in production. The tests above use shorter ones."""
    assert protocol.HEAD_SECONDS <= 10
    assert protocol.BODY_SECONDS <= 60
