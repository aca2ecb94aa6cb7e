from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest

from duetime.executors.connection import Connection

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Transport:
    def __init__(self) -> None:
        self.written = asyncio.Event()
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.set()

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


async def test_an_exchange_cancelled_as_its_response_arrives_leaves_no_connection_open():
    connection, transport = Connection("192.0.2.1"), Transport()
    connection.connection_made(cast(Any, transport))
    deadline = asyncio.get_running_loop().time() + 10
    exchange = asyncio.create_task(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", deadline))
    await transport.written.wait()
    connection.data_received(ANSWER)
    assert connection.reusable
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert transport.aborted
    assert not connection.reusable


async def test_a_connection_that_ended_is_freed_without_the_collector():
    """A node's collector looks at old objects rarely: a target that closes each connection would fill its memory."""

    class Watched(Connection):
        """A class whose objects can have weak references."""

    connection, transport = Watched("192.0.2.1"), Transport()
    connection.connection_made(cast(Any, transport))
    deadline = asyncio.get_running_loop().time() + 10
    exchange = asyncio.create_task(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", deadline))
    await transport.written.wait()
    connection.data_received(ANSWER)
    await exchange
    freed = weakref.finalize(connection, lambda: None)
    connection.connection_lost(None)
    gc.disable()
    try:
        del connection, exchange
        assert not freed.alive
    finally:
        gc.enable()
