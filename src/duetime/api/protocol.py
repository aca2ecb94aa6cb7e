"""HTTP as uvicorn speaks it (httptools), with bounds on what a client may do to a connection.

uvicorn closes a connection that is idle between requests (`timeout_keep_alive`) and bounds how many there are
(`limit_concurrency`). It waits without end for a request's head and for the rest of its body, and takes a head of any
size: `h11_max_incomplete_event_size` is for its other protocol. So here a head must come whole within some seconds and
some kilobytes, a body must not fall silent or come byte by byte, and an answer must be read. A body that comes slowly
may: a batch is read as it comes.
"""

from __future__ import annotations

import asyncio
import os

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duetime.api.gate import ALWAYS
from duetime.api.problems import MEDIA_TYPE, Problem

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0  # from the connection, or from a request's first byte
BODY_SECONDS = 60.0  # between two pieces of a body, or of an answer as it is read
BODY_BYTES = 256  # what counts as a piece: a line of a batch or two, not a byte a second
LOOK_SECONDS = 2.0  # how often a connection is looked at


def _refusal(status: int, reason: str, message: str) -> bytes:
    """An answer but for its request id, for what never gets as far as the application."""
    title = "The request is not valid"
    body = msgspec.json.encode(
        Problem("urn:duetime:problem:invalid-request", title, status, "INVALID_REQUEST", message)
    )
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
    always = b"".join(b"%b: %b\r\n" % header for header in ALWAYS)
    return head.encode() + always + b"x-request-id: %b\r\nconnection: close\r\n\r\n" + body


_GIANT_HEAD = _refusal(
    431,
    "Request Header Fields Too Large",
    f"the request's headers have more than {MAX_HEAD_BYTES} bytes; send less",
)
_NO_HTTP = _refusal(400, "Bad Request", "this is not a valid HTTP/1.1 request; check its method, headers and framing")


class BoundedProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=BoundedProtocol)`."""

    _since = 0.0  # the last sign of progress
    _head_bytes = 0
    _body_bytes = 0  # since then
    _unread = 0  # of our answer, when last looked at
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
        elif self.cycle is not None and not self.cycle.response_complete:  # else nobody waits for the rest of it
            self._body_bytes += len(data)
            if self._body_bytes >= BODY_BYTES:
                self._body_bytes = 0
                self._since = self.loop.time()
        HttpToolsProtocol.data_received(self, data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(_GIANT_HEAD)

    def send_400_response(self, msg: str) -> None:
        self._refuse(_NO_HTTP)

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(answer % os.urandom(8).hex().encode())
        self.transport.close()

    def resume_writing(self) -> None:
        self._since = self.loop.time()
        super().resume_writing()

    def on_message_begin(self) -> None:
        HttpToolsProtocol.on_message_begin(self)
        self._since = self.loop.time()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = self._body_bytes = 0
        HttpToolsProtocol.on_headers_complete(self)

    def on_message_complete(self) -> None:
        HttpToolsProtocol.on_message_complete(self)
        self._in_head = True  # the next one's

    def _look_after(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self._since = self.loop.time()
        self._unread = unread
        if self.loop.time() - self._since > self._patience():
            self.transport.abort()
        else:  # also while it closes: it stays open as long as nobody reads what is left
            self._look = self.loop.call_later(LOOK_SECONDS, self._look_after)

    def _patience(self) -> float:
        """How long the client may be silent as things stand."""
        if self._unread:
            return BODY_SECONDS
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return HEAD_SECONDS
        if cycle.more_body and not self.flow.read_paused:
            return BODY_SECONDS
        self._since = self.loop.time()  # it is our turn, not the client's
        return HEAD_SECONDS
