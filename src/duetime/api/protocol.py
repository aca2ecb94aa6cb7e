"""HTTP as uvicorn speaks it (httptools), with bounds on what a client may do to a connection.

uvicorn closes a connection that is idle between requests (`timeout_keep_alive`) and bounds how many there are
(`limit_concurrency`). It waits without end for a request's head and for the rest of its body, and takes a head of any
size: `h11_max_incomplete_event_size` is for its other protocol. So here a head must come whole within some seconds and
some kilobytes, and a body must not fall silent. A body that comes slowly may: a batch is read as it comes.
"""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duetime.api.problems import MEDIA_TYPE, Problem

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0  # from the connection, or from a request's first byte
BODY_SECONDS = 60.0  # between two pieces of a body
LOOK_SECONDS = 2.0  # how often a connection is looked at

_GIANT_HEAD = msgspec.json.encode(
    Problem(
        "urn:duetime:problem:invalid-request",
        "The request is not valid",
        431,
        "INVALID_REQUEST",
        f"the request's headers have more than {MAX_HEAD_BYTES} bytes; send less",
    )
)


class BoundedProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=BoundedProtocol)`."""

    _since = 0.0  # the last sign of progress
    _head_bytes = 0
    _in_head = True  # or before one
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_after)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        else:
            self._since = self.loop.time()
        HttpToolsProtocol.data_received(self, data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (MEDIA_TYPE.encode(), len(_GIANT_HEAD), _GIANT_HEAD)
            )
            self.transport.close()

    def on_message_begin(self) -> None:
        HttpToolsProtocol.on_message_begin(self)
        self._since = self.loop.time()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        HttpToolsProtocol.on_headers_complete(self)

    def on_message_complete(self) -> None:
        HttpToolsProtocol.on_message_complete(self)
        self._in_head = True  # the next one's

    def _look_after(self) -> None:
        silent = self.loop.time() - self._since
        if silent > self._patience():
            self.transport.abort()
        elif not self.transport.is_closing():
            self._look = self.loop.call_later(LOOK_SECONDS, self._look_after)

    def _patience(self) -> float:
        """How long the client may be silent as things stand."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return HEAD_SECONDS
        if cycle.more_body and not self.flow.read_paused:
            return BODY_SECONDS
        self._since = self.loop.time()  # it is our turn, not the client's
        return HEAD_SECONDS
