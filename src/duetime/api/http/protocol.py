"""uvicorn's HTTP protocol (httptools), with bounds on what a client may do with a connection.

uvicorn closes a connection that is idle between requests (`timeout_keep_alive`). It waits forever for a request's
head and for the rest of its body, and accepts a head, chunk extensions and trailers of any size. Here a whole head must
arrive within some seconds, all bytes that are not body are bounded (`domain.http_bounds`), trailers are refused, a body
must not fall silent or come byte by byte, and the client must read the response. A slow body is allowed: a batch is
read as it comes.

A response that is sent before its request's body has ended closes the connection: the rest of that body is not parsed,
and is read only as long as the client needs to receive the response (`linger`).

`domain.sockets` decides which connections are accepted, and which one is closed when there are too many.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, cast

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from duetime.api.http import refusals
from duetime.api.http.joining import JoiningTransport
from duetime.api.http.refusal_log import refusal_log
from duetime.api.http.refusals import Refusal
from duetime.api.http.starts import REQUESTS_PER_ROUND, Starts
from duetime.domain.http_bounds import (
    MAX_FRAMING_BYTES,
    MAX_HEADERS,
    MAX_REQUEST_TARGET_BYTES,
    PIECE_BYTES,
    framing_after,
    is_too_slow,
)
from duetime.domain.sockets import Seat, Sockets, address_group

HEAD_SECONDS = 10.0  # from the connection, or from a request's first byte
BODY_SECONDS = 60.0  # between two pieces of a body, or of a response as the client reads it
BODY_BYTES = 256  # the least that counts as a piece: a line or two of a batch, not a byte a second
LOOK_SECONDS = 2.0  # between two checks of a connection
LINGER_SECONDS = 5.0  # how long a client may go on sending after the response that closes its connection ...
LINGER_BYTES = 16 * 1024 * 1024  # ... and how much; it is not parsed
MAX_PIPELINED = 8  # requests that wait for the response to an earlier one on the same connection

log = structlog.get_logger()


class _Refused(Exception):
    """Raised inside the parser's callbacks, to stop it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class _NoTrailers(list[tuple[bytes, bytes]]):
    """Replaces a request's list of headers once its head is complete: a later header is a trailer."""

    def append(self, header: tuple[bytes, bytes]) -> NoReturn:
        raise _Refused(refusals.TRAILERS)


class _LingeringTransport:
    """The transport that a cycle uses while its request's body is still coming: `close` lingers."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        self._protocol.linger()


class BoundedProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=BoundedProtocol)`.

    With `sockets`, the connections of that server are bounded; with `starts`, addresses take turns with requests.
    """

    _since = 0.0  # the last sign of progress
    _looked_at = 0.0
    _piece_body = 0  # body bytes in the data that is being parsed
    _message_ended = False  # in that data
    _framing = 0  # of the current request: bytes that are not body, minus the allowance for its body
    _progress = 0  # body bytes since the last sign of progress
    _unread = 0  # bytes of our response that the client had not read at the last check
    _in_head = True  # or before one
    _lingering = False
    _discarded = 0  # bytes, while lingering
    _awaiting = False  # waiting for the rest of a body, which did not come with its head
    _keep_alive = True  # what the client requested, restored once that body has arrived
    _body_bytes = 0  # of that body
    _body_seconds = 0.0  # how long we have waited for the client to send it
    _running: RequestResponseCycle | None = None
    _look: asyncio.TimerHandle | None = None
    _seat: Seat[BoundedProtocol] | None = None

    def __init__(
        self, *, sockets: Sockets[BoundedProtocol] | None = None, starts: Starts[Request] | None = None, **parts: Any
    ) -> None:
        super().__init__(**parts)
        self._sockets = sockets
        self._starts = starts

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, JoiningTransport(transport, self.loop)))
        self._address = address_group(self.client[0] if self.client else "")
        self._since = self._looked_at = self.loop.time()
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_after)
        if self._sockets is not None:
            self._take_seat(self._sockets)

    def _take_seat(self, sockets: Sockets[BoundedProtocol]) -> None:
        self._seat, evicted = sockets.admit(self, self._address)
        if evicted is not None:
            evicted.evict()
        if self._seat is None:
            event = "a connection was refused: too many are open"
            refusal_log.note(log.warning, event, address=self._address, connections=len(sockets))
            self.transport.write(refusals.FULL.response())
            self.transport.close()

    def evict(self) -> None:
        """Closes this connection: another one has its seat."""
        self._seat = None
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._seat is not None and self._sockets is not None:
            self._sockets.leave(self._seat)
            self._seat = None
        self._disconnect()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # They refer to this object: without them it is freed now, and not only by the garbage collector.
        self._look = self._running = None
        self.cycle = None  # type: ignore[assignment]

    def _disconnect(self) -> None:
        """Reports to all requests that the client has disconnected. (uvicorn reports it to the latest request only.)"""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()

    def data_received(self, data: bytes | memoryview) -> None:
        size = len(data)
        if size > PIECE_BYTES:
            self._receive_in_pieces(memoryview(data))
            return
        if self._lingering:
            self._discard(size)
            return
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._piece_body = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause.refusal if isinstance(cause, _Refused) else refusals.NO_HTTP)
            return
        except httptools.HttpParserUpgrade:  # to another protocol than HTTP/1.1, which is not offered: ignore it
            log.debug("a client requested an upgrade, which is not supported")
        if self._message_ended:  # the rest of this piece belongs to the next request, and is not counted
            self._message_ended = False
            self._framing = 0
        else:
            self._framing = framing_after(self._framing, size, self._piece_body)
        if self._framing > MAX_FRAMING_BYTES:
            self._refuse(refusals.GIANT_HEAD if self._in_head else refusals.MUCH_FRAMING)
        elif self._in_head and len(self.headers) > MAX_HEADERS:
            self._refuse(refusals.MANY_HEADERS)
        elif not self._in_head:
            self._await_body(self._piece_body)

    def _receive_in_pieces(self, data: memoryview) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            self.data_received(data[start : start + PIECE_BYTES])

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > LINGER_BYTES:
            self.transport.abort()

    def resume_writing(self) -> None:
        self._since = self.loop.time()
        super().resume_writing()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    # httptools

    def on_message_begin(self) -> None:
        HttpToolsProtocol.on_message_begin(self)
        self._since = self.loop.time()
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > MAX_REQUEST_TARGET_BYTES:
            raise _Refused(refusals.LONG_TARGET)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise _Refused(refusals.MANY_AT_ONCE)
        if len(self.headers) > MAX_HEADERS:
            raise _Refused(refusals.MANY_HEADERS)
        self._in_head = False
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = _NO_TRAILERS
        if not self.pipeline:
            self._running = self.cycle
        if self._seat is not None:
            self._seat.work()

    def on_body(self, body: bytes) -> None:
        self._piece_body += len(body)
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        HttpToolsProtocol.on_message_complete(self)
        self._in_head = True  # of the next request
        self._message_ended = True
        if self._awaiting:
            self._body_came()

    # A body that arrives after its head

    def _await_body(self, came: int) -> None:
        if not self._awaiting:
            self._awaiting = True
            self._body_bytes = self._progress = 0
            self._body_seconds = 0.0
            # A response that is sent before the body has ended closes the connection.
            cycle = self.cycle
            self._keep_alive = cycle.keep_alive
            cycle.keep_alive = False
            cycle.transport = cast(asyncio.Transport, _LingeringTransport(self))
            if self._seat is not None:
                self._seat.receive()
        self._body_bytes += came
        self._progress += came
        if self._progress >= BODY_BYTES:
            self._progress = 0
            self._since = self.loop.time()

    def _body_came(self) -> None:
        self._awaiting = False
        cycle = self.cycle
        if not cycle.response_started:
            cycle.keep_alive = self._keep_alive
            cycle.transport = self.transport
        if self._seat is not None:
            self._seat.work()

    # Requests begin

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._starts is None or self._starts.may_begin(self.loop, self._address, (self, cycle, app)):
            HttpToolsProtocol._start_asgi_task(self, cycle, app)

    # Responses

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]  # which uvicorn starts now
        elif self._seat is not None:
            self._seat.idle()
        HttpToolsProtocol.on_response_complete(self)

    def _refuse(self, refusal: Refusal) -> None:
        """Responds instead of the application and closes the connection. A response that has begun is cut off."""
        refusal_log.note(log.info, "a request was refused early", client=self.client, reason=refusal.message)
        running = self._running
        under_way = running is not None and not running.response_complete
        cut = bool(self.pipeline) or (under_way and (running is not self.cycle or self.cycle.response_started))
        self._disconnect()
        if cut:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(refusal.response())
            self.linger()

    def linger(self) -> None:
        """Closes the connection so that the client can still read the last response.

        A socket that is closed with unread bytes sends a reset, and the client may lose the response. So only our
        direction is closed, and for a while all incoming bytes are discarded.
        """
        if self._lingering or self.transport.is_closing():
            return
        self._lingering = True
        self._since = self.loop.time()
        if self._seat is not None:
            self._seat.idle()
        self.flow.resume_reading()
        self.transport.write_eof()

    # Timeouts

    def _look_after(self) -> None:
        now = self.loop.time()
        if self._awaiting and not self.flow.read_paused:
            self._body_seconds += now - self._looked_at
        self._looked_at = now
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self._since = now
        self._unread = unread
        if now - self._since > self._patience() or self._drips():
            self._give_up()
        # also while it closes: it stays open until the client has read the rest
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_after)

    def _drips(self) -> bool:
        return self._awaiting and not self._lingering and is_too_slow(
            self._body_bytes, self._body_seconds, BODY_SECONDS
        )  # fmt: skip

    def _give_up(self) -> None:
        if self._awaiting and not self._lingering and not self._unread:
            self._refuse(refusals.SLOW_BODY)
        else:
            self.transport.abort()

    def _patience(self) -> float:
        """Returns how long the client may be silent in the current state."""
        if self._unread:
            return BODY_SECONDS
        if self._lingering:
            return LINGER_SECONDS
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return HEAD_SECONDS
        if cycle.more_body and not self.flow.read_paused:
            return BODY_SECONDS
        self._since = self.loop.time()  # we are working; the client has nothing to send
        return HEAD_SECONDS


_NO_TRAILERS = _NoTrailers()

Request = tuple[BoundedProtocol, RequestResponseCycle, Any]  # the last one is the application


def request_starts(most: int = REQUESTS_PER_ROUND) -> Starts[Request]:
    """Returns the starts that the protocols of one server share."""
    return Starts(most, _begin)


def _begin(request: Request) -> None:
    """Begins a request that had to wait for its turn, unless its connection has ended meanwhile."""
    protocol, cycle, app = request
    if not cycle.disconnected:
        HttpToolsProtocol._start_asgi_task(protocol, cycle, app)
