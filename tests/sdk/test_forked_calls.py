"""The sockets between an embedded app and forked processes: failures at either end."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from duetime.client.calls import Call
from duetime.client.errors import PayloadTooLarge, ServerAway
from duetime.sdk.forked import LARGEST_CALL, Asked, CallsFromChildren, CallsToParent
from patience import PATIENCE_SECONDS

CALL = Call("GET", "/asked", str)
CLOSED = b""


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """An application that responds with the path."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": msgspec.json.encode(scope["path"]), "more_body": False})


class Parent:
    """An event loop in a thread that serves calls, as in a node. `do` runs a function in that thread."""

    def __init__(self, app: Any = echo) -> None:
        self.calls = CallsFromChildren()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._app = app

    def __enter__(self) -> Parent:
        self._thread.start()
        self.do(self._start())
        return self

    async def _start(self) -> None:
        self.calls.start(self._app)

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self.do(self.calls.stop())
        self.calls.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self.loop.close()

    def connect(self) -> socket.socket:
        """Connects like a child, by sending one end of a pair of sockets."""
        ours, handed = socket.socketpair()
        with handed:
            socket.send_fds(self.calls.theirs, [b"+"], [handed.fileno()])
        ours.settimeout(PATIENCE_SECONDS)
        return ours


def framed(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def read_answer(connection: socket.socket) -> list[Any]:
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4), "big")
        answer: list[Any] = msgspec.msgpack.decode(stream.read(size))
    return answer


def of_child(calls: CallsFromChildren, patience_seconds: float = PATIENCE_SECONDS) -> CallsToParent:
    """Returns the side of a child in this process. It must not close the parent's sockets, which are no copies here."""
    child = CallsToParent(calls, patience_seconds)
    calls.leave_to_parent = lambda: None  # type: ignore[method-assign]
    return child


def test_a_call_to_a_parent_whose_threads_do_not_run_times_out() -> None:
    calls = CallsFromChildren()
    with pytest.raises(
        ServerAway, match=r"did not respond within 0\.05 s; it may have been carried out or not"
    ) as error:
        of_child(calls, 0.05).ask(CALL)
    assert error.value.was_sent
    calls.close()


def test_the_wait_for_another_threads_call_counts_towards_the_timeout() -> None:
    calls = CallsFromChildren()
    child = of_child(calls, 0.05)
    with pytest.raises(ServerAway):
        child.ask(CALL)
    with child._lines[os.getpid()]._lock, pytest.raises(ServerAway, match="did not respond within") as error:
        child.ask(CALL)  # while another thread's call is under way
    assert not error.value.was_sent
    calls.close()


def test_children_beyond_the_sockets_capacity_time_out_with_a_silent_parent() -> None:
    calls = CallsFromChildren()
    calls.theirs.setblocking(False)
    with suppress(BlockingIOError):
        while calls.theirs.send(b"+" * 4096):
            continue
    with pytest.raises(ServerAway, match="did not respond within") as error:
        of_child(calls, 0.05).ask(CALL)
    assert not error.value.was_sent
    calls.close()


def test_a_childs_socket_is_closed_in_the_next_child_before_any_call() -> None:
    """Otherwise the next child would keep it open, and the first could not detect the parent's death."""
    calls = CallsFromChildren()

    async def accept() -> None:
        ours, handed = socket.socketpair()
        with ours:
            socket.send_fds(calls.theirs, [b"+"], [handed.fileno()])
            handed.close()
            calls._accept(echo)
            calls.leave_to_parent()  # what the hook does in a child that is forked right now
            ours.settimeout(PATIENCE_SECONDS)
            assert ours.recv(1) == CLOSED

    asyncio.run(accept())


def test_a_childs_socket_is_not_inherited_by_programs_that_the_parent_runs() -> None:
    with Parent() as parent, parent.connect() as connection:
        connection.sendall(framed(Asked("GET", "/asked", {}, None)))
        assert read_answer(connection)[0] == 200
        assert [os.get_inheritable(it.fileno()) for it in parent.calls._connections] == [False]


def test_a_call_that_is_too_large_is_refused_unread_and_the_next_one_succeeds() -> None:
    with Parent() as parent:
        child = of_child(parent.calls)
        with pytest.raises(PayloadTooLarge, match="bytes; 16777216 are allowed"):
            child.ask(Call("POST", "/asked", str, bytes(LARGEST_CALL)))
        assert child.ask(CALL) == "/asked"
        child.close()


def test_an_invalid_call_closes_its_own_connection_only() -> None:
    with Parent() as parent, parent.connect() as bad, parent.connect() as good:
        bad.sendall((5).to_bytes(4, "big") + b"\xc1junk")
        assert bad.recv(1) == CLOSED
        good.sendall(framed(Asked("GET", "/asked", {}, None)))
        assert read_answer(good)[1] == b'"/asked"'


def test_a_child_that_never_reads_delays_neither_other_calls_nor_the_stop() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(4 * 1024 * 1024), "more_body": False})

    with Parent(large) as parent, parent.connect() as deaf, parent.connect() as half, parent.connect() as good:
        for _ in range(3):
            deaf.sendall(framed(Asked("GET", "/asked", {}, None)))
        half.sendall((1000).to_bytes(4, "big") + b"half a call")
        good.sendall(framed(Asked("GET", "/asked", {}, None)))
        assert len(read_answer(good)[1]) == 4 * 1024 * 1024
