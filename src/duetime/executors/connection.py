"""One connection to a target: HTTP/1.1, one exchange at a time, everything bounded.

llhttp (httptools) parses the response; this module limits how much of it is read. Every byte of an exchange is counted.
More than 64 kB of framing (interim responses, the head, chunk sizes and extensions, trailers), or framing in too many
parts, fails the exchange. A body of more than 64 kB ends the exchange with the part that was read. In all these cases
the connection is closed, not drained. Trailers are ignored. Bodies are never decompressed, so a gzip bomb stays small.
Cancelling `exchange` closes the connection before CancelledError is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn, cast

import httptools

from duetime.domain.http_bounds import MAX_FRAMING_BYTES, MAX_PARTS, PIECE_BYTES, TINY_BYTES, framing_after
from duetime.ports.executor import NotSent, always

MAX_BODY_BYTES = 65_536
_LENGTHS = frozenset(map(len, (b"content-length", b"transfer-encoding", b"retry-after")))
_TICK = 0.002  # seconds: the precision of an event loop's timers
_GIANT_HEAD = f"sent more than {MAX_FRAMING_BYTES // 1024} kB of headers"
_MANY_PARTS = f"sent more than {MAX_PARTS} headers, interim answers and tiny chunks"
_MUCH_FRAMING = f"sent {MAX_FRAMING_BYTES // 1024} kB of chunk sizes or trailers more than its body is worth"


class ConnectionLost(Exception):
    """The target closed the connection before the response was complete. `answered`: it had sent at least one byte."""

    def __init__(self, answered: bool) -> None:
        super().__init__(answered)
        self.answered = answered


class BadAnswer(Exception):
    """The response is not usable HTTP. The message completes “<host> …”."""


class LateHead(TimeoutError):
    """The target did not send a response head in time. The message completes “<host> …”."""


class _Enough(Exception):
    """Stops the parser inside a callback: the exchange has ended."""


class Connection(asyncio.Protocol):
    """After `exchange`, `status`, `body` and `retry_after` hold the response. `reusable`: another request may use it.

    `head_seconds`: how long the response head may take, counted from the request; None: as long as the exchange.
    """

    __slots__ = (
        "_body_bytes", "_deadline", "_framed", "_framing", "_head_bytes", "_head_done", "_head_only", "_head_seconds",
        "_keep_alive", "_loop", "_parser", "_parts", "_pieces", "_received", "_timer", "_transport", "_until",
        "_waiter", "address", "body", "idle_since", "retry_after", "reusable", "status", "tenant",
    )  # fmt: skip

    def __init__(self, address: str, head_seconds: float | None = None) -> None:
        self.address = address
        self._head_seconds = head_seconds
        self.status = 0
        self.body = b""
        self.retry_after: str | None = None
        self.reusable = False
        self.idle_since = 0.0
        self.tenant = ""  # the tenant that used the connection last
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0  # of the current wait: for the response head, or for the whole response
        self._until = 0.0  # the deadline of the exchange
        self._timer: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._head_only = False
        self._pieces: list[bytes] = []  # of the body

    async def exchange(
        self, request: bytes, deadline: float, *, head_only: bool = False, may_send: Callable[[], bool] = always
    ) -> None:
        """Sends a request and waits for its response until `deadline` (loop time).

        Raises TimeoutError (LateHead if the head took too long), ConnectionLost, BadAnswer, NotSent if `may_send`
        returned False, or the OSError that broke the connection.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost(answered=False)
        self.status = 0
        self.body = b""
        self.retry_after = None
        self.reusable = False
        self._head_only = head_only
        self._framing = self._head_bytes = self._received = self._body_bytes = self._parts = 0
        self._pieces = []
        self._head_done = self._framed = self._keep_alive = False
        self._waiter = self._loop.create_future()
        self._until = deadline
        if self._head_seconds is not None:
            deadline = min(deadline, self._loop.time() + self._head_seconds)
        self._expire_at(deadline)
        try:
            # `write` hands its first bytes to the kernel before it returns, and the kernel sends them even if this
            # process stops. So a process that is paused sends at most one request too late: the one between this check
            # and the write. No check can be closer to the write. For that request, the target has the fencing token.
            if not may_send():
                raise NotSent
            transport.write(request)
            await self._waiter
        except BaseException:
            # Also if this was cancelled just as the response arrived: the connection may be reusable, but no caller
            # will give it back to the pool.
            self.abort()
            raise
        finally:
            self._waiter = None
        if not self.reusable:
            self.abort()

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Closes the connection at once; data in flight is dropped."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _expire_at(self, deadline: float) -> None:
        # A timer is reused until it fires, and checks the current deadline only then: a new timer for each exchange
        # would cost a tenth of the exchange.
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._deadline > self._loop.time() + _TICK:
            self._expire_at(self._deadline)
        elif self._deadline < self._until:
            self._fail(LateHead(f"did not begin to answer within {self._head_seconds:g} s"))
        else:
            self._fail(TimeoutError())

    def _fail(self, problem: BaseException) -> None:
        self.reusable = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(problem)

    def _finish(self, *, reusable: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self.reusable = reusable
            if self._pieces:
                self.body = b"".join(self._pieces)[:MAX_BODY_BYTES]
            self._waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        del self._parser  # breaks a reference cycle: this object is freed now, not at a later garbage collection
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is None or self._waiter.done():
            self.reusable = False
        elif self._head_done and not self._framed:
            self._finish(reusable=False)  # a body without a length ends when the connection closes
        elif exc is not None and not isinstance(exc, ConnectionError):
            self._fail(exc)
        else:
            self._fail(ConnectionLost(answered=self._received > 0))

    def data_received(self, data: bytes | memoryview) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self.abort()  # an unrequested response must not be read as the response to the next request
            return
        size = len(data)
        if size > PIECE_BYTES:
            self._receive_in_pieces(memoryview(data), waiter)
            return
        body = self._body_bytes
        self._received += size
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(BadAnswer("did not answer in HTTP/1.1"))
            return
        if waiter.done():  # the response is complete: nearly all come in one piece, and it was not too large
            return
        self._framing = framing_after(self._framing, size, self._body_bytes - body)
        if self._framing > MAX_FRAMING_BYTES:
            self._fail(BadAnswer(_MUCH_FRAMING if self._head_done else _GIANT_HEAD))

    def _receive_in_pieces(self, data: memoryview, waiter: asyncio.Future[None]) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if waiter.done():
                return
            self.data_received(data[start : start + PIECE_BYTES])

    # httptools

    def on_message_begin(self) -> None:
        if self._waiter is None or self._waiter.done():
            # A second response in the same packet: stop the parser before it overwrites the first.
            raise BadAnswer("sent an unrequested response")

    def _stop_at_parts(self) -> NoReturn:
        """Stops the parser, for there are too many parts: each costs as much as some hundred bytes of a body."""
        self._fail(BadAnswer(_MANY_PARTS))
        raise _Enough

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            self._stop_at_parts()
        length = len(name)
        self._head_bytes += length + len(value)
        if length in _LENGTHS and not self._head_done:  # after the head, it is a trailer
            lower = name.lower()
            if lower in (b"content-length", b"transfer-encoding"):
                self._framed = True
            elif lower == b"retry-after":
                self.retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self._parts += 1
            if self._parts > MAX_PARTS:
                self._stop_at_parts()
            self.retry_after = None  # 1xx: the final response is still to come
            return
        self._head_done = True
        self._deadline = self._until  # the timer reads it when it fires
        self._keep_alive = self._parser.should_keep_alive()
        if self._head_bytes > MAX_FRAMING_BYTES:  # the head arrived in one piece, maybe with the whole body
            self._fail(BadAnswer(_GIANT_HEAD))
        elif self._head_only:
            # llhttp would wait for the body that Content-Length announces and HEAD never sends.
            self._finish(reusable=False)

    def on_body(self, chunk: bytes) -> None:
        size = len(chunk)
        if size < TINY_BYTES:
            self._parts += 1
            if self._parts > MAX_PARTS:
                self._stop_at_parts()
        self._body_bytes += size
        self._pieces.append(chunk)
        if self._body_bytes >= MAX_BODY_BYTES:
            self._finish(reusable=False)
            raise _Enough  # the rest of the data is not parsed

    def on_message_complete(self) -> None:
        if self._head_done:
            self._finish(reusable=self._keep_alive)
