"""An embedded app after fork(): the node lives on in the process that started it, and children ask it there.

gunicorn --preload, uWSGI and multiprocessing fork programs whose app may run already. Threads do not survive a fork, so
a child has no node, and must not touch what it was copied of one. It makes a pair of sockets instead, and hands one end
to the parent through a socket that both have since before the fork. There is no port and no file, and nobody but
descendants of the program can ask.

Calls travel as a length of four bytes and MessagePack, one at a time for each child.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TypeVar
from weakref import WeakSet

import msgspec
from litestar.types import ASGIApp

from duetime.client.calls import Answer, Call
from duetime.client.errors import ServerAway
from duetime.sdk.asking import exchange

T = TypeVar("T")

_SIZE = 4  # bytes of a message's length


class Asked(msgspec.Struct, frozen=True, array_like=True):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


class Answered(msgspec.Struct, frozen=True, array_like=True):
    status: int
    body: bytes
    headers: dict[str, str]


def _framed(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_SIZE, "big") + body


class CallsFromChildren:
    """The parent's side. It is there before anybody forks; `start` and `stop` are called on the node's loop."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._connections: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        _here.add(self)

    def start(self, app: ASGIApp) -> None:
        asyncio.get_running_loop().add_reader(self._ours, self._accept, app)

    async def stop(self) -> None:
        """What is under way is given up: a child is told that the connection broke."""
        asyncio.get_running_loop().remove_reader(self._ours)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()

    def _accept(self, app: ASGIApp) -> None:
        try:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        for descriptor in descriptors:
            task = asyncio.get_running_loop().create_task(self._serve(app, socket.socket(fileno=descriptor)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, app: ASGIApp, connection: socket.socket) -> None:
        """Until the child has closed it, or is gone."""
        self._connections.add(connection)
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_SIZE), "big")
                asked = msgspec.msgpack.decode(await reader.readexactly(size), type=Asked)
                answer = await exchange(app, asked.method, asked.path, asked.headers, asked.body)
                writer.write(_framed(Answered(answer.status, answer.body, answer.headers)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._connections.discard(connection)
            writer.close()

    def leave_to_parent(self) -> None:
        """In a child: close the copies of the parent's ends, so that the parent's death can be noticed."""
        self._ours.close()
        for connection in self._connections:
            connection.close()


_here: WeakSet[CallsFromChildren] = WeakSet()


def _forked() -> None:
    for calls in list(_here):
        calls.leave_to_parent()
    _here.clear()


os.register_at_fork(after_in_child=_forked)


class CallsToParent:
    """A child's side, and that of its own children: each process has a connection of its own."""

    def __init__(self, theirs: socket.socket) -> None:
        self._theirs = theirs
        self._lines: dict[int, _Line] = {}  # by process; no lock, for a fork might copy it locked

    def ask(self, call: Call[T]) -> T:
        process = os.getpid()
        line = self._lines.get(process) or self._lines.setdefault(process, _Line(self._theirs))
        return call.read(line.exchange(call))

    async def ask_async(self, call: Call[T]) -> T:
        return await asyncio.to_thread(self.ask, call)

    def close(self) -> None:
        line = self._lines.pop(os.getpid(), None)
        if line is not None:
            line.close()


class _Line:
    """One process's connection, made when it is needed."""

    def __init__(self, theirs: socket.socket) -> None:
        self._theirs = theirs
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def exchange(self, call: Call[T]) -> Answer:
        with self._lock:
            connection = self._connection or self._connect()
            self._connection = None  # and not used again, should this be interrupted
            try:
                connection.sendall(_framed(Asked(call.method, call.path, dict(call.headers), call.body)))
                size = int.from_bytes(_read(connection, _SIZE), "big")
                answered = msgspec.msgpack.decode(_read(connection, size), type=Answered)
            except OSError:
                connection.close()
                raise _away(was_sent=True) from None
            self._connection = connection
        return Answer(answered.status, answered.body, lambda name: answered.headers.get(name.lower()))

    def _connect(self) -> socket.socket:
        ours, handed = socket.socketpair()
        with handed:
            try:
                socket.send_fds(self._theirs, [b"+"], [handed.fileno()])
            except OSError:
                ours.close()
                raise _away(was_sent=False) from None
        return ours

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (part := connection.recv(min(size - len(data), 65_536))):
            raise ConnectionError
        data += part
    return bytes(data)


def _away(was_sent: bool) -> ServerAway:
    doubt = "; it may have been carried out or not" if was_sent else ""
    return ServerAway(
        "this process was forked from one that ran an embedded Duetime, and that one has stopped it, or has ended"
        f"{doubt}: start the program again, or give Duetime() the URL of a server",
        was_sent,
    )
