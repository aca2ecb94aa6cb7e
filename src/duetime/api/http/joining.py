"""A transport that joins the writes of one turn of the event loop, so that a response leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

JOINED_BYTES = 64 * 1024  # of a response that are held until the event loop's next turn


class JoiningTransport:
    """Holds written data until the event loop's next turn, then sends it with one system call.

    uvicorn writes the head and the body of a response one after the other. Each write would be a system call, and the
    client would need two to read them.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > JOINED_BYTES:  # now, so that the transport reports when it is full
            self._flush()

    def _flush(self) -> None:
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._transport.writelines(held)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held, self._held_bytes = [], 0
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._held_bytes + self._transport.get_write_buffer_size()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
