"""The target of every webhook: a process that answers 200 at once and remembers when each request came.

Hand-parsed on purpose: it shares the machine with what is measured, so it must cost far less than any client.
The heads of requests are kept as they came and taken apart only when the report is asked for.

    GET /__count    how many requests have come
    GET /__reset    forget them
    GET /__report   all of them, as MessagePack: [[at, path, execution_id, scheduled_at], …]
"""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from typing import cast

import msgspec
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok"

heads: list[tuple[float, bytes]] = []


class SinkProtocol(asyncio.Protocol):
    """One connection. Keep-alive always; a request may come in pieces."""

    __slots__ = ("buffer", "transport")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        now = time.time()
        if self.buffer:
            data = self.buffer + data
        while data:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                break
            total = end + 4 + body_length(data, end)
            if len(data) < total:
                break
            head = data[:end]
            if head.startswith(b"GET /__"):
                self.control(head)
            else:
                heads.append((now, head))
                self.transport.write(ANSWER)
            data = data[total:]
        self.buffer = data

    def control(self, head: bytes) -> None:
        path = head.split(b" ", 2)[1]
        body = b""
        if path == b"/__count":
            body = str(len(heads)).encode()
        elif path == b"/__reset":
            heads.clear()
        elif path == b"/__report":
            body = msgspec.msgpack.encode([arrival(at, head) for at, head in heads])
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def body_length(data: bytes, end: int) -> int:
    """The length of the body that follows the head; clients here always name it, in either case."""
    at = data.find(b"ontent-", 0, end)
    while at >= 0:
        if data[at + 7 : at + 14].lower() == b"length:":
            stop = data.find(b"\r\n", at, end)
            return int(data[at + 14 : stop if stop >= 0 else end])
        at = data.find(b"ontent-", at + 7, end)
    return 0


def arrival(at: float, head: bytes) -> tuple[float, str, str, str]:
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    path = lines[0].split(" ")[1]
    return at, path, headers.get("webhook-id", ""), headers.get("duetime-scheduled-at", "")


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(SinkProtocol, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()


if __name__ == "__main__":
    gc.disable()  # the list of heads only grows: a collection would find nothing and show as lateness
    uvloop.run(serve())
