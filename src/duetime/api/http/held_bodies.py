"""Bounds the large bodies that this node holds at once, of requests and of responses. Tenants share the memory fairly.

A request's body is held until the request is answered. Small ones are bounded by the number of connections, so only
bodies of some size, or of unknown size, are counted. Only a part of an NDJSON batch is held at a time: its handler
counts that part itself, and waits for room.

A response is sent in pieces, the next one when the client has read nearly all before it. So a response is held only
until its last piece is sent. A response that its tenant may not hold is replaced by a 503.
"""

from __future__ import annotations

import asyncio
from typing import cast

from litestar.types import ASGIApp, HTTPReceiveMessage, HTTPResponseBodyEvent, HTTPScope, Message, Receive, Send

from duetime.domain.errors import Overloaded
from duetime.domain.shares import may_have_more

MOST_HELD_BYTES = 64 * 1024 * 1024
MOST_WAITING = 32  # requests that wait for room: each holds a piece of a body, too
SMALL_DIGITS = 5  # a Content-Length with at most this many digits is small

_BATCH = "/api/v1/jobs:batch"
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
_FULL = (
    "too many large bodies are being received at once, most of them from your tenant; "
    "send fewer at a time, or many jobs as application/x-ndjson"
)
MOST_UNSENT_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 64 * 1024
_UNREAD = (
    "too many large responses wait to be read, most of them your tenant's; read them, or ask for smaller pages (limit)"
)


def is_counted(scope: HTTPScope, content_length: bytes | None) -> bool:
    """Returns whether the body of a request counts as a whole. One without a length may be of any size."""
    if content_length is not None and len(content_length) <= SMALL_DIGITS:
        return False
    return scope["method"] not in _WITHOUT_BODY and not (scope["path"] == _BATCH and _is_lines(scope))


def _is_lines(scope: HTTPScope) -> bool:
    """Returns whether all content types are NDJSON, so that it does not matter which one the handler uses."""
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return bool(types) and all(b"ndjson" in value for value in types)


class HeldBytes:
    """The bytes of `capacity` that each tenant holds. `refusal`: the message for a tenant that may hold no more."""

    def __init__(self, capacity: int, refusal: str) -> None:
        self._capacity = capacity
        self._refusal = refusal
        self._total = 0
        self._held: dict[str, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, tenant: str, size: int) -> None:
        """Raises Overloaded if this tenant may hold no more."""
        held = self._held.get(tenant, 0)
        holders = len(self._held) + (tenant not in self._held)
        if not may_have_more(held, self._total, self._capacity, holders):
            raise Overloaded(self._refusal, retry_after=1)
        self._held[tenant] = held + size
        self._total += size

    def remove(self, tenant: str, size: int) -> None:
        self._total -= size
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]
        if self._waiting:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiting.clear()

    async def add_patiently(self, tenant: str, size: int, seconds: float) -> None:
        """Like `add`, but waits up to `seconds` for bytes to be released, unless many requests wait already."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            try:
                self.add(tenant, size)
                return
            except Overloaded:
                left = until - loop.time()
                if left <= 0 or len(self._waiting) >= MOST_WAITING:
                    raise
            waiter = loop.create_future()
            self._waiting.add(waiter)
            try:
                await asyncio.wait([waiter], timeout=left)
            finally:
                self._waiting.discard(waiter)


class HeldBodies(HeldBytes):
    def __init__(self, capacity: int = MOST_HELD_BYTES) -> None:
        super().__init__(capacity, _FULL)

    async def call(self, app: ASGIApp, scope: HTTPScope, receive: Receive, send: Send, tenant: str) -> None:
        """Calls the application. Its `receive` raises Overloaded when this tenant may hold no more."""
        own = 0

        async def counted() -> HTTPReceiveMessage:
            nonlocal own
            message = await receive()
            size = len(message.get("body", b""))  # type: ignore[arg-type]  # a disconnect has none
            if size:
                self.add(tenant, size)
                own += size
            return message  # type: ignore[return-value]  # always a request: there are no other scopes here

        try:
            await app(scope, counted, send)
        finally:
            if own:
                self.remove(tenant, own)


def is_large(headers: list[tuple[bytes, bytes]]) -> bool:
    """Returns whether a response is large enough to count. Streams have no length, and hold little."""
    for name, value in headers:
        if name == b"content-length":
            return len(value) > SMALL_DIGITS
    return False


class UnsentResponses(HeldBytes):
    def __init__(self, capacity: int = MOST_UNSENT_BYTES) -> None:
        super().__init__(capacity, _UNREAD)

    async def send(self, send: Send, tenant: str, start: Message, body: Message) -> None:
        """Sends the head of a response and its body. Raises Overloaded before anything is sent."""
        content = cast(bytes, body.get("body", b""))
        size = len(content)
        if not size:  # a response to HEAD
            await send(start)
            await send(body)
            return
        more_body = bool(body.get("more_body", False))
        self.add(tenant, size)
        try:
            await send(start)
            for begin in range(0, size, PIECE_BYTES):
                end = begin + PIECE_BYTES
                await send(_piece(content[begin:end], end < size or more_body))
        finally:
            self.remove(tenant, size)


def _piece(content: bytes, more_body: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": content, "more_body": more_body}
