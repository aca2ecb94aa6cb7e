"""Runs SQLite statements from the node's side: each runs in a child process of the fork server (`sqlite_server`).

The number of processes is limited and shared by tenant: a tenant whose statements use all processes, for instance while
they wait for locks, does not delay other tenants. Each statement has its own process and connection, so no state leaks
into the next statement. When an attempt ends, its process has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from duetime.domain.connection_urls import SqliteUrl
from duetime.domain.execution import ErrorType
from duetime.domain.payloads import SqlQuery
from duetime.executors.script.link import ForkServerLink
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.problems import Failed, blocked, timed_out, wrong
from duetime.executors.sql.sqlite_server import PROGRAM
from duetime.executors.sql.sqlite_wire import (
    ASK_TO_END,
    GO,
    LENGTH,
    Died,
    Opened,
    Problem,
    Reply,
    Request,
    Result,
    frame,
    reply_of,
)
from duetime.executors.uncancelled import uncancelled
from duetime.places import Places
from duetime.ports.executor import Attempt, NotSent

PLACES = 16  # concurrent statements
MOST_PROCESSES = 64  # includes extra ones for tenants that would otherwise wait behind the statements of others
_ASK_SECONDS = 0.5  # for a statement to stop by itself and roll back; after that its process is killed
_KILL_SECONDS = 10.0  # for a killed process to end; after that the fork server, which should have killed it, is killed
_ENVELOPE = 65_536  # bytes of a reply besides the result
OFF = "SQLite connections are off on this node; the operator turns them on: SQL_SQLITE_FOLDER."


class SqliteStatements:
    def __init__(self, limits: SqlLimits, rules: SqlRules) -> None:
        self._limits = limits
        self._folder = rules.sqlite_folder
        self.link = ForkServerLink(PROGRAM, sys.path)
        self._places = Places(PLACES, MOST_PROCESSES)
        self._rooms: dict[tuple[str, str], tuple[asyncio.Semaphore, int]] = {}

    async def run(self, attempt: Attempt[SqlQuery], query: SqlQuery, url: SqliteUrl, deadline: float) -> Result:
        """Runs the statement and returns its result. Raises Failed, NotSent or CancelledError.

        When it returns or raises, the statement's process has ended.
        """
        if not self._folder:
            raise blocked(OFF)
        parameters = [_bound(number, value) for number, value in enumerate(query.parameters, 1)]
        loop = asyncio.get_running_loop()
        async with self._room(attempt, url, deadline), self._place(attempt, deadline):
            request = Request(
                self._folder, attempt.claim.tenant, url.name, url.mode, query.statement, parameters,
                max(0.0, deadline - loop.time()), attempt.timeout_seconds, self._limits.rows, self._limits.bytes,
                self._limits.file_bytes, self._limits.memory_bytes,
            )  # fmt: skip
            reply = await self._attempt(attempt, request, deadline)
            if reply is None:  # the fork server was killed: nothing has run, and a new one starts at once
                reply = await self._attempt(attempt, request, deadline)
        match reply:
            case Result():
                return reply
            case Problem(error_type, message):
                raise Failed(error_type, message)
            case Died(status):
                raise _died(status)
        raise Failed(ErrorType.INTERNAL_ERROR, "The process for the statement could not be started.")

    async def _attempt(self, attempt: Attempt[SqlQuery], request: Request, deadline: float) -> Reply | None:
        """Returns how the statement ended; None if its process ended before the statement began."""
        process = _Process(self._limits)
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await process.start(self.link, request)
                    first = await process.reply()
                    if not isinstance(first, Opened):
                        return first
                    if not attempt.may_send():
                        raise NotSent
                    process.go()
                    return await process.reply() or Died(signal.SIGKILL)
            except TimeoutError:
                raise timed_out(
                    attempt.timeout_seconds, f"{request.name} did not finish the statement, which was stopped:"
                ) from None
        finally:
            await uncancelled(process.end(self.link))

    @asynccontextmanager
    async def _place(self, attempt: Attempt[SqlQuery], deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.enter(attempt.claim.tenant)
        except TimeoutError:
            raise timed_out(attempt.timeout_seconds, "None of this node's processes for SQLite was free") from None
        try:
            yield
        finally:
            self._places.leave(attempt.claim.tenant)

    @asynccontextmanager
    async def _room(self, attempt: Attempt[SqlQuery], url: SqliteUrl, deadline: float) -> AsyncIterator[None]:
        key = (attempt.claim.tenant, url.name)
        room, users = self._rooms.get(key, (asyncio.Semaphore(self._limits.connections), 0))
        self._rooms[key] = room, users + 1
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await room.acquire()
            except TimeoutError:
                raise timed_out(
                    attempt.timeout_seconds,
                    f"None of the {self._limits.connections} connections to {url.shown} was free",
                ) from None
            try:
                yield
            finally:
                room.release()
        finally:
            room, users = self._rooms.pop(key)
            if users > 1:
                self._rooms[key] = room, users - 1


class _Process:
    """The child process of one statement: its socket, and the pipe through which it is ended."""

    def __init__(self, limits: SqlLimits) -> None:
        self._most_bytes = 2 * limits.bytes + _ENVELOPE
        self._orders: int | None = None
        self._is_over = False  # the child has sent its last reply, and ends by itself
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self, link: ForkServerLink, request: Request) -> None:
        ours, theirs = socket.socketpair()
        reads, self._orders = os.pipe()
        try:
            link.ask(theirs.fileno(), reads)
        except OSError as problem:
            ours.close()
            raise Failed(
                ErrorType.INTERNAL_ERROR, f"The process for the statement could not be started: {problem.strerror}."
            ) from None
        finally:
            theirs.close()
            os.close(reads)
        ours.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(frame(request))

    def go(self) -> None:
        assert self._writer is not None
        self._writer.write(GO)

    async def reply(self) -> Reply | None:
        """Returns the next reply; None if the process has ended without one."""
        assert self._reader is not None
        try:
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if size > self._most_bytes:
                raise Failed(ErrorType.INTERNAL_ERROR, "The process of the statement sent more than it may.")
            reply = reply_of(await self._reader.readexactly(size))
            self._is_over = not isinstance(reply, Opened)
            return reply
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def end(self, link: ForkServerLink) -> None:
        """Waits until the process has ended. First asks it to end, so that it rolls back, and then kills it."""
        if self._orders is None:
            return
        if not self._is_over:
            with suppress(OSError):  # the fork server has ended
                os.write(self._orders, ASK_TO_END)
        is_gone = await self._gone(_ASK_SECONDS)
        os.close(self._orders)
        self._orders = None
        if not is_gone and not await self._gone(_KILL_SECONDS):
            link.give_up()  # the fork server hangs; its children end with it
            await self._gone(_KILL_SECONDS)
        if self._writer is not None:
            self._writer.close()

    async def _gone(self, seconds: float) -> bool:
        """Returns whether the process ends in time. The other end of the socket closes once the process is reaped."""
        try:
            async with asyncio.timeout(seconds):
                while self._reader is not None and await self._reader.read(_ENVELOPE):
                    continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


def _died(status: int) -> Failed:
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return Failed(
        ErrorType.INTERNAL_ERROR,
        f"The process of the statement {how}. What was not committed is rolled back; whether it was is not known.",
    )


def _bound(number: int, value: Any) -> Any:
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise wrong(f"Parameter {number} is beyond the integers of SQLite: pass it as text.", "SQLITE_RANGE")
    return int(value) if isinstance(value, bool) else value
