"""An embedded app after fork(): the node stays in the process that started it, and children send it their calls.

gunicorn --preload, uWSGI and multiprocessing fork programs whose app may already run. A fork copies no threads, so a
child has no node, and must not touch the copied parts of one. Instead it creates a pair of sockets, and sends one end
to the parent through a socket that both have since before the fork. There is no port and no file, so only descendants
of the program can send calls.

A message is its length in four bytes and MessagePack. Each child sends one call at a time. It waits for a response with
a timeout: the parent may be stopped, or its threads may not run.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

import msgspec
import structlog
from litestar.types import ASGIApp

from duetime.api.problems import problem_of
from duetime.client.batch import CHUNK_BYTES
from duetime.client.calls import Answer, Call
from duetime.client.errors import ServerAway
from duetime.domain.errors import PayloadTooLarge
from duetime.sdk.asking import exchange

T = TypeVar("T")

ANSWER_SECONDS = 30.0  # as long as a client waits for a server
LARGEST_CALL = 2 * CHUNK_BYTES  # a larger call is refused, and not held in memory
_SIZE = 4  # bytes of a message's length
_PIECE = 65_536
_CLOSED_BY_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

log = structlog.get_logger()

# Held while `leave_to_parent` does not have a new descriptor yet. A fork waits for it.
_adopting = threading.RLock()  # a signal handler may fork in the thread that holds the lock


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
    """The parent's side. It is created before any fork. `start` and `stop` are called on the node's loop."""

    def __init__(self) -> None:
        self._connections: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        with _adopting:
            self._ours, self.theirs = socket.socketpair()
            _here.add(self)
        self._ours.setblocking(False)

    def start(self, app: ASGIApp) -> None:
        asyncio.get_running_loop().add_reader(self._ours, self._accept, app)

    async def stop(self) -> None:
        """Cancels the calls under way: their children get a connection error."""
        asyncio.get_running_loop().remove_reader(self._ours)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def close(self) -> None:
        self._ours.close()
        self.theirs.close()

    def _accept(self, app: ASGIApp) -> None:
        for connection in self._adopt():
            task = asyncio.get_running_loop().create_task(self._serve(app, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _adopt(self) -> list[socket.socket]:
        """Returns sockets that children have sent. They are registered before the next fork, and closed by exec."""
        with _adopting:
            try:
                _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1, _CLOSED_BY_EXEC)
            except (BlockingIOError, InterruptedError):
                return []
            found = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            self._connections.update(found)
        for connection in found:
            connection.set_inheritable(False)
            connection.setblocking(False)
        return found

    async def _serve(self, app: ASGIApp, connection: socket.socket) -> None:
        """Responds to calls until the child closes the connection or ends."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                while True:
                    answered = await _answer(app, reader)
                    writer.write(_framed(answered))
                    await writer.drain()
            finally:
                writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except msgspec.DecodeError as error:
            log.error("a forked process sent an invalid call; its connection is closed", error=str(error))
        finally:
            self._connections.discard(connection)
            connection.close()

    def leave_to_parent(self) -> None:
        """In a child: closes the copies of the parent's sockets, so that the child can detect the parent's death."""
        self._ours.close()
        for connection in self._connections:
            connection.close()


async def _answer(app: ASGIApp, reader: asyncio.StreamReader) -> Answered:
    size = int.from_bytes(await reader.readexactly(_SIZE), "big")
    if size > LARGEST_CALL:
        await _skip(reader, size)
        problem = problem_of(PayloadTooLarge(f"the call has {size} bytes; {LARGEST_CALL} are allowed"), "")
        return Answered(problem.status, msgspec.json.encode(problem), {})
    asked = msgspec.msgpack.decode(await reader.readexactly(size), type=Asked)
    answer = await exchange(app, asked.method, asked.path, asked.headers, asked.body)
    return Answered(answer.status, answer.body, answer.headers)


async def _skip(reader: asyncio.StreamReader, size: int) -> None:
    while size:
        piece = await reader.read(min(size, _PIECE))
        if not piece:
            raise ConnectionError
        size -= len(piece)


_here: WeakSet[CallsFromChildren] = WeakSet()


def _forked() -> None:
    _adopting.release()
    for calls in list(_here):
        calls.leave_to_parent()
    _here.clear()


os.register_at_fork(before=_adopting.acquire, after_in_parent=_adopting.release, after_in_child=_forked)


class CallsToParent:
    """The side of a child and of its own children. Each process has its own connection."""

    def __init__(self, parents: CallsFromChildren, patience_seconds: float = ANSWER_SECONDS) -> None:
        self._parents = parents
        self._patience_seconds = patience_seconds
        self._lines: dict[int, _Line] = {}  # by process; without a lock, which a fork could copy while it is held

    def ask(self, call: Call[T]) -> T:
        process = os.getpid()
        line = self._lines.get(process) or self._lines.setdefault(process, self._new_line())
        return call.read(line.exchange(call))

    def _new_line(self) -> _Line:
        """Returns a connection. First repeats the work of the fork hooks: a server that forks in C may skip them."""
        self._parents.leave_to_parent()
        for process in list(self._lines):
            if process != os.getpid() and (copied := self._lines.pop(process, None)) is not None:
                copied.forget()
        return _Line(self._parents.theirs, self._patience_seconds)

    async def ask_async(self, call: Call[T]) -> T:
        return await asyncio.to_thread(self.ask, call)

    def close(self) -> None:
        line = self._lines.pop(os.getpid(), None)
        if line is not None:
            line.close()


class _Line:
    """The connection of one process, opened at the first call."""

    def __init__(self, theirs: socket.socket, patience_seconds: float) -> None:
        self._theirs = theirs
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def exchange(self, call: Call[T]) -> Answer:
        deadline = time.monotonic() + self._patience_seconds

        def remaining() -> float:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            return left

        if not self._lock.acquire(timeout=self._patience_seconds):
            raise self._silent(was_sent=False)
        try:
            answered = self._exchange(_framed(Asked(call.method, call.path, dict(call.headers), call.body)), remaining)
        finally:
            self._lock.release()
        return Answer(answered.status, answered.body, lambda name: answered.headers.get(name.lower()))

    def _exchange(self, message: bytes, remaining: Callable[[], float]) -> Answered:
        connection = self._connection or self._connect(remaining)
        self._connection = None  # not used again if this call is interrupted
        try:
            connection.settimeout(remaining())
            connection.sendall(message)
            size = int.from_bytes(_read(connection, _SIZE, remaining), "big")
            answered = msgspec.msgpack.decode(_read(connection, size, remaining), type=Answered)
        except TimeoutError:
            connection.close()
            raise self._silent(was_sent=True) from None
        except OSError:
            connection.close()
            raise _away(was_sent=True) from None
        self._connection = connection
        return answered

    def _connect(self, remaining: Callable[[], float]) -> socket.socket:
        ours, handed = socket.socketpair()
        with handed:
            try:
                self._theirs.settimeout(remaining())
                socket.send_fds(self._theirs, [b"+"], [handed.fileno()])
            except TimeoutError:
                ours.close()
                raise self._silent(was_sent=False) from None
            except OSError:
                ours.close()
                raise _away(was_sent=False) from None
        return ours

    def close(self) -> None:
        with self._lock:
            self.forget()

    def forget(self) -> None:
        """Closes a copied connection, without the lock: a thread that the fork did not copy may hold it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _silent(self, was_sent: bool) -> ServerAway:
        reason = f"did not respond within {self._patience_seconds:g} s"
        return _away(was_sent, reason, "it is stopped or overloaded, or its threads do not run")


def _read(connection: socket.socket, size: int, remaining: Callable[[], float]) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(remaining())
        if not (part := connection.recv(min(size - len(data), _PIECE))):
            raise ConnectionError
        data += part
    return bytes(data)


def _away(
    was_sent: bool, reason: str = "stopped it, or has ended",
    advice: str = "start the program again, or give Duetime() the URL of a server",
) -> ServerAway:  # fmt: skip
    doubt = "; it may have been carried out or not" if was_sent else ""
    message = f"this process was forked from one with an embedded Duetime, which {reason}{doubt}: {advice}"
    return ServerAway(message, was_sent)
