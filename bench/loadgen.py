"""The load generator: keep-alive connections that each send their next request when the answer is in.

A process of its own on raw sockets, so that it costs the server as little as possible. It reads a `Load` as MessagePack
from stdin and prints a `Loaded` as JSON. Requests are built before the clock starts.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

from bench import processes
from bench.arrivals import percentile


class Load(msgspec.Struct, frozen=True):
    port: int
    path: str
    body: str  # `#N#` becomes the number of the request
    count: int
    connections: int = 64
    headers: dict[str, str] = {}


class Loaded(msgspec.Struct, frozen=True):
    seconds: float
    per_second: float
    statuses: dict[str, int]
    p50_ms: float
    p99_ms: float


class LoadConnection(asyncio.Protocol):
    """One connection, one request under way at a time."""

    def __init__(self, requests: Iterator[bytes], statuses: Counter[bytes], late: list[float]) -> None:
        self.requests, self.statuses, self.late = requests, statuses, late
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.transport.close()
            return
        self.sent_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + _content_length(data[:end]):
            self.buffer = data
            return
        self.buffer = b""
        self.statuses[data[9:12]] += 1
        self.late.append(time.perf_counter() - self.sent_at)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _content_length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0


def build_requests(load: Load) -> list[bytes]:
    extra = "".join(f"{name}: {value}\r\n" for name, value in load.headers.items())
    made = []
    for number in range(load.count):
        body = load.body.replace("#N#", str(number)).encode()
        head = (
            f"POST {load.path} HTTP/1.1\r\nhost: 127.0.0.1:{load.port}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
        )
        made.append(head.encode() + body)
    return made


async def generate(load: Load) -> Loaded:
    loop = asyncio.get_running_loop()
    requests = iter(build_requests(load))
    statuses: Counter[bytes] = Counter()
    late: list[float] = []
    connections = []
    for _ in range(load.connections):
        _, connection = await loop.create_connection(
            lambda: LoadConnection(requests, statuses, late), "127.0.0.1", load.port
        )
        connections.append(connection)
    started = time.perf_counter()
    for connection in connections:
        connection.send()
    await asyncio.gather(*(connection.done for connection in connections))
    seconds = time.perf_counter() - started
    late.sort()
    return Loaded(
        seconds=seconds,
        per_second=len(late) / seconds,
        statuses={status.decode(): number for status, number in statuses.items()},
        p50_ms=percentile(late, 0.5) * 1000,
        p99_ms=percentile(late, 0.99) * 1000,
    )


def run(load: Load, timeout_seconds: float = 120) -> Loaded:
    """Generate the load from a process of its own."""
    output = processes.run(
        [processes.PYTHON, "-m", "bench.loadgen"],
        input_bytes=msgspec.msgpack.encode(load),
        timeout_seconds=timeout_seconds,
    )
    return msgspec.json.decode(output, type=Loaded)


if __name__ == "__main__":
    gc.disable()
    load = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(generate(load))))
