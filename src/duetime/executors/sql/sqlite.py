"""One statement on a SQLite file, in a thread. It commits by itself, or leaves nothing behind.

Threads are shared by tenant: one whose statements hold all of them, as they wait for locks, does not delay the others.
Each statement has a connection of its own, so there is nothing that could leak into the next. SQLite works inside this
process: what a statement may allocate at once is bounded, and a value beyond that is an error of the statement.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import apsw
import apsw.ext
import msgspec

from duetime.domain.connection_urls import SqliteUrl
from duetime.domain.execution import ErrorType
from duetime.domain.payloads import SqlQuery
from duetime.executors.sql.limits import SqlLimits
from duetime.executors.sql.own import OwnDatabase, check_file
from duetime.executors.sql.problems import Failed, blocked, sqlite_refused, timed_out, wrong
from duetime.executors.sql.sqlite_rules import Authorizer
from duetime.executors.sql.table import Table
from duetime.executors.sql.words import first_word
from duetime.places import Places
from duetime.ports.executor import NotSent, Task

PLACES = 64  # statements at once
MOST_THREADS = 256  # with those of tenants that would else wait behind the statements of others
LONGEST_VALUE = 16 * 1024 * 1024
_STOP_SECONDS = 10.0  # one step of the virtual machine may take long; more than that is told
_STEPS = 5000  # of the virtual machine, between two looks at whether to go on
_BUSY_SECONDS = 0.005
_FLAGS = {
    "ro": apsw.SQLITE_OPEN_READONLY,
    "rw": apsw.SQLITE_OPEN_READWRITE,
    "rwc": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
}


class SqliteStatements:
    def __init__(self, own: OwnDatabase, limits: SqlLimits) -> None:
        self._own = own
        self._limits = limits
        self._threads = ThreadPoolExecutor(MOST_THREADS, "duetime-sqlite")
        self._places = Places(PLACES, MOST_THREADS)
        self._rooms: dict[tuple[str, str], tuple[asyncio.Semaphore, int]] = {}

    async def stop(self) -> None:
        self._threads.shutdown(wait=False)

    async def run(self, task: Task[SqlQuery], query: SqlQuery, url: SqliteUrl, deadline: float) -> Table:
        """Raises Failed, NotSent, CancelledError: by then the statement is over."""
        loop = asyncio.get_running_loop()
        async with self._room(task, url, deadline):
            await self._enter(task, deadline)
            statement = _Statement(self._own, self._limits, task, query, url, deadline - loop.time())
            work = loop.run_in_executor(self._threads, statement.run)
            work.add_done_callback(lambda _: self._places.leave(task.tenant))
            try:
                await asyncio.wait({work}, timeout=deadline - loop.time())
            finally:
                is_over = work.done()
                if not is_over:
                    await _ended(statement, work)
        if not is_over:
            raise timed_out(task.timeout_seconds, f"{url.shown} did not finish the statement, which was stopped:")
        return work.result()

    async def _enter(self, task: Task[SqlQuery], deadline: float) -> None:
        """Until there is a thread for it. Whoever has one leaves its place when the thread is done."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.enter(task.tenant)
        except TimeoutError:
            raise timed_out(task.timeout_seconds, "None of this node's threads for SQLite was free") from None

    @asynccontextmanager
    async def _room(self, task: Task[SqlQuery], url: SqliteUrl, deadline: float) -> AsyncIterator[None]:
        key = (task.tenant, url.path)
        room, users = self._rooms.get(key, (asyncio.Semaphore(self._limits.connections), 0))
        self._rooms[key] = room, users + 1
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await room.acquire()
            except TimeoutError:
                raise timed_out(
                    task.timeout_seconds, f"None of the {self._limits.connections} connections to {url.shown} was free"
                ) from None
            try:
                yield
            finally:
                room.release()
        finally:
            room, users = self._rooms.pop(key)
            if users > 1:
                self._rooms[key] = room, users - 1


class _Statement:
    """What runs in the thread, and how it is told to stop."""

    def __init__(
        self, own: OwnDatabase, limits: SqlLimits, task: Task[SqlQuery], query: SqlQuery, url: SqliteUrl, seconds: float
    ) -> None:
        self._own = own
        self._limits = limits
        self._task = task
        self._query = query
        self._url = url
        self._deadline = time.monotonic() + seconds
        self._stopped = threading.Event()
        self._connection: apsw.Connection | None = None
        self._authorizer = Authorizer(is_vacuum=first_word(query.statement) == "VACUUM")

    def stop(self) -> None:
        """From another thread. What it runs ends at its next look."""
        self._stopped.set()
        if self._connection is not None:
            with suppress(apsw.ConnectionClosedError):
                self._connection.interrupt()

    def run(self) -> Table:
        check_file(self._own, self._url.path)
        try:
            with closing(self._open()) as connection:
                check_file(self._own, connection.filename)  # whoever swapped a link meanwhile is found out
                return self._execute(connection)
        except apsw.InterruptError:
            raise timed_out(self._task.timeout_seconds, "The statement did not end") from None
        except apsw.BusyError as problem:
            if self._must_stop():
                raise timed_out(
                    self._task.timeout_seconds, f"{self._url.shown} was locked by others, not free"
                ) from None
            raise sqlite_refused(problem, self._query.statement) from None
        except apsw.Error as problem:
            if self._authorizer.refused:
                raise blocked(f"{self._authorizer.refused}, which a job can't do.") from None
            raise sqlite_refused(problem, self._query.statement) from None
        except UnicodeDecodeError:
            raise wrong("A text is no valid UTF-8: read it as CAST(column AS BLOB).", "SQLITE_MISMATCH") from None

    def _open(self) -> apsw.Connection:
        try:
            connection = apsw.Connection(self._url.path, flags=_FLAGS[self._url.mode])
        except apsw.Error:
            raise Failed(
                ErrorType.CONNECTION_ERROR,
                f"{self._url.shown} can't be opened: is it there, and may Duetime's user read and write it? "
                "(With ?mode=rwc in its URL, a file that is not there is made.)",
            ) from None
        connection.set_busy_handler(self._wait)
        connection.set_progress_handler(self._must_stop, _STEPS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.authorizer = self._authorizer
        self._connection = connection
        return connection

    def _execute(self, connection: apsw.Connection) -> Table:
        found = apsw.ext.query_info(connection, self._query.statement)
        _check_alone(connection, found)
        if found.bindings_count != len(self._query.parameters):
            raise wrong(
                f"The statement has {found.bindings_count} parameters, the job gives {len(self._query.parameters)}.",
                "SQLITE_RANGE",
            )
        bindings = [_bound(number, value) for number, value in enumerate(self._query.parameters, 1)]
        if not self._task.may_send():
            raise NotSent
        table = Table(self._limits, [column[0] for column in found.description])
        for row in connection.execute(found.first_query, bindings):
            table.add(row)
        if not found.description:
            table.row_count = connection.changes()
        return table

    def _must_stop(self) -> bool:
        return self._stopped.is_set() or time.monotonic() >= self._deadline

    def _wait(self, _: int) -> bool:
        """Another has the file locked: whether to try again."""
        return not (self._must_stop() or self._stopped.wait(_BUSY_SECONDS))


def _check_alone(connection: apsw.Connection, found: Any) -> None:
    """SQLite itself tells where the first statement ends, and whether what follows is one."""
    if not found.has_vdbe:
        raise wrong("The statement is empty.", "SQLITE_MISUSE")
    remaining = found.query_remaining
    while remaining:
        try:
            after = apsw.ext.query_info(connection, remaining)
        except apsw.Error:
            after = None  # it can't even be read, so it is no comment
        if after is None or after.has_vdbe:
            raise wrong("A job is one statement, this has several: make a job of each.", "SQLITE_MISUSE")
        remaining = after.query_remaining


def _bound(number: int, value: Any) -> Any:
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise wrong(f"Parameter {number} is beyond the integers of SQLite: pass it as text.", "SQLITE_RANGE")
    return int(value) if isinstance(value, bool) else value


async def _ended(statement: _Statement, work: asyncio.Future[Table]) -> None:
    """Until the thread is through, however often whoever waits is cancelled."""
    statement.stop()
    give_up = asyncio.get_running_loop().time() + _STOP_SECONDS
    work.add_done_callback(lambda done: done.exception())  # nobody else will ask
    cancelled: asyncio.CancelledError | None = None
    while not work.done() and (left := give_up - asyncio.get_running_loop().time()) > 0:
        try:
            await asyncio.wait({work}, timeout=left)
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled
