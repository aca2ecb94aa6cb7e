"""Bounds the large responses that this node holds until clients read them, and shares the memory fairly by tenant.

A response is sent in pieces, the next one when the client has read nearly all before it. So a response is held only
until its last piece is sent. A response that its tenant may not hold is replaced by a 503.
"""

from __future__ import annotations

from typing import cast

from litestar.types import HTTPResponseBodyEvent, Message, Send

from duetime.api.http.held_bodies import SMALL_DIGITS, HeldBytes

MOST_UNSENT_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 64 * 1024

_FULL = (
    "too many large responses wait to be read, most of them your tenant's; read them, or ask for smaller pages (limit)"
)


def is_large(headers: list[tuple[bytes, bytes]]) -> bool:
    """Returns whether a response is large enough to count. Streams have no length, and hold little."""
    for name, value in headers:
        if name == b"content-length":
            return len(value) > SMALL_DIGITS
    return False


class UnsentResponses(HeldBytes):
    def __init__(self, capacity: int = MOST_UNSENT_BYTES) -> None:
        super().__init__(capacity, _FULL)

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
