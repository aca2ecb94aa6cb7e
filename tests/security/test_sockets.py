"""Idle connections and slow bodies that hold places: connections of other addresses are still accepted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from cluster.processes import Server
from security.raw import connect, is_closed, read_to_the_end

HOSTILE, VICTIM = "127.0.0.2", "127.0.0.3"
PLACES = 40  # of the server: see crowded/sitecustomize.py
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: %b\r\n\r\n"
HEALTHY = b'{"status":"ok"}'
# A server that says "100 Continue" waits for the body.
BODY = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def start(folder: Path, place: str, **settings: str) -> Server:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent / place), os.environ.get("PYTHONPATH")]))
    return Server(folder).start({"PYTHONPATH": path}, **settings)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node with few places, and without a limit per address."""
    server = start(tmp_path_factory.mktemp("crowded"), "crowded", CONNECTIONS_PER_ADDRESS="0")
    yield server
    server.close()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A node with five places for an address."""
    server = start(tmp_path_factory.mktemp("limited"), "crowded", CONNECTIONS_PER_ADDRESS="5")
    yield server
    server.close()


@pytest.fixture
def lines() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(port: int, address: str) -> bytes:
    """Returns the response to a request on a new connection; empty if it was refused before it was read."""
    with connect(port, address) as line:
        try:
            line.sendall(HEALTH % b"close")
        except (BrokenPipeError, ConnectionResetError):
            return b""
        return read_to_the_end(line)


def exchange(line: socket.socket, request: bytes, response: bytes) -> None:
    """Sends a request and reads its response up to the bytes that it ends with."""
    line.sendall(request)
    said = b""
    while not said.endswith(response):
        piece = line.recv(4096)
        assert piece, f"closed after {said!r}"
        said += piece


def occupy(lines: ExitStack, port: int, number: int, request: bytes, response: bytes) -> list[socket.socket]:
    """Opens this many connections of the hostile address. The server has responded to each of them."""
    held = []
    for _ in range(number):
        line = lines.enter_context(connect(port, HOSTILE))
        exchange(line, request, response)
        held.append(line)
    return held


def occupy_idly(lines: ExitStack, port: int, number: int) -> list[socket.socket]:
    return occupy(lines, port, number, HEALTH % b"keep-alive", HEALTHY)


def occupy_with_bodies(lines: ExitStack, port: int, number: int) -> list[socket.socket]:
    return occupy(lines, port, number, BODY, CONTINUE)


def test_idle_connections_do_not_block_other_addresses(crowded: Server, lines: ExitStack) -> None:
    port = crowded.client.port
    held = [lines.enter_context(connect(port, HOSTILE)) for _ in range(PLACES)]
    for _ in range(3):
        assert ask(port, VICTIM).startswith(b"HTTP/1.1 200")
    assert sum(map(is_closed, held)) >= 1


def test_the_oldest_idle_connection_goes_first(crowded: Server, lines: ExitStack) -> None:
    port = crowded.client.port
    held = occupy_idly(lines, port, PLACES)
    exchange(held[0], HEALTH % b"keep-alive", HEALTHY)  # so it is the youngest
    exchange(lines.enter_context(connect(port, VICTIM)), HEALTH % b"keep-alive", HEALTHY)
    assert read_to_the_end(held[1]) == b""
    assert not is_closed(held[0])
    assert not is_closed(held[2])


def test_slow_bodies_do_not_block_other_addresses(crowded: Server, lines: ExitStack) -> None:
    port = crowded.client.port
    held = occupy_with_bodies(lines, port, PLACES)
    assert ask(port, VICTIM).startswith(b"HTTP/1.1 200")
    assert sum(map(is_closed, held)) < PLACES // 2


def test_slow_heads_do_not_block_other_addresses(crowded: Server, lines: ExitStack) -> None:
    port = crowded.client.port
    for _ in range(PLACES):
        lines.enter_context(connect(port, HOSTILE)).sendall(b"GET /health HTTP/1.1\r\nX-A: ")
    assert ask(port, VICTIM).startswith(b"HTTP/1.1 200")


def test_an_address_over_its_limit_loses_its_oldest_idle_connection(limited: Server, lines: ExitStack) -> None:
    held = occupy_idly(lines, limited.client.port, 5)
    held += occupy_idly(lines, limited.client.port, 1)
    assert ask(limited.client.port, VICTIM).startswith(b"HTTP/1.1 200")
    assert list(map(is_closed, held)) == [True] + 5 * [False]


def test_an_address_whose_connections_are_all_busy_gets_no_more(limited: Server, lines: ExitStack) -> None:
    port = limited.client.port
    held = occupy_with_bodies(lines, port, 5)
    assert ask(port, HOSTILE)[:12] in (b"HTTP/1.1 503", b"")
    assert not any(map(is_closed, held)), "what is under way goes on"
    assert ask(port, VICTIM).startswith(b"HTTP/1.1 200")


def test_a_body_below_the_least_rate_is_refused(tmp_path: Path, lines: ExitStack) -> None:
    """It is never silent for the whole timeout, so the timeout alone would not end it."""
    path = os.pathsep.join([str(Path(__file__).parents[1] / "api" / "hasty"), os.environ.get("PYTHONPATH", "")])
    server = Server(tmp_path / "node").start({"PYTHONPATH": path})
    lines.callback(server.close)
    line = lines.enter_context(connect(server.client.port))
    exchange(line, BODY, CONTINUE)
    line.settimeout(1.0)
    said = b""
    for drops in count():
        assert drops < 60, "it drips for ever"
        line.sendall(b" " * 260)
        try:
            said = line.recv(4096)
            break
        except TimeoutError:
            continue
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"bytes a second" in said
