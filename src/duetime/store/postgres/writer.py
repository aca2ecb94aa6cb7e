"""Group commit over a few connections: each takes the waiting batches, applies them, commits once, returns all results.

While one connection waits for its commit, batches queue up for the next. The commands of a batch stay together, in
their order. No result is returned before its commit has returned.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from duetime.domain import commands as c
from duetime.domain.capacity import Capacity
from duetime.domain.errors import Overloaded, TimedOut
from duetime.store.postgres.connections import Connector
from duetime.store.postgres.partitions import Days
from duetime.store.postgres.writer_connection import ENGINE, Batch, WriterConnection

WRITER_CONNECTIONS = 3
SLOTS = 64  # of totals; see counters in the schema
MOST_COMMANDS_A_COMMIT = 50  # one savepoint each; above 64 in a transaction PostgreSQL slows down for all
MOST_ROWS_A_COMMIT = 4000
GRACE_SECONDS = 0.25  # for the connection to report the exact result of a write that took too long
MOST_WAITING = 20_000  # batches; beyond that, callers get Overloaded, so that memory stays bounded


class Writer:
    def __init__(self, connector: Connector, timeout_seconds: float, capacity: Capacity) -> None:
        self._timeout = timeout_seconds
        self._waiting: deque[Batch] = deque()
        self._ready = asyncio.Condition()
        self._is_stopping = False
        slots = random.sample(range(SLOTS), WRITER_CONNECTIONS)
        days = Days()
        self._connections = [
            WriterConnection(connector, days, timeout_seconds, slot, self._note, capacity) for slot in slots
        ]
        self.last_error: str | None = None
        self.committed = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(connection), name="duetime-writer") for connection in self._connections
        ]

    async def stop(self) -> None:
        async with self._ready:
            self._is_stopping = True
            for connection in self._connections:
                connection.is_stopping = True
            self._ready.notify_all()
        await asyncio.gather(*self._tasks)

    def waiting(self) -> int:
        return len(self._waiting)

    def on_read_only(self, call: Callable[[], None]) -> None:
        """Registers `call`, which is called when the server turns out to be read-only."""
        for connection in self._connections:
            connection.on_read_only = call

    def on_commit(self, call: Callable[[int, float], None]) -> None:
        """Registers `call(commands, seconds)`, which is called after each commit."""
        for connection in self._connections:
            connection.on_commit = call

    def _note(self, error: str | None) -> None:
        self.last_error = error
        self.committed += error is None

    async def submit(self, commands: Sequence[c.Command]) -> list[Any]:
        if self._is_stopping or not self._tasks:
            raise Overloaded("the node is shutting down; try again in a moment")
        if len(self._waiting) >= MOST_WAITING:
            raise Overloaded("too many writes are waiting for the database; try again in a second")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        expiry: asyncio.TimerHandle | None = None
        if not isinstance(commands[0], ENGINE):  # users get a response in time, however busy the connections are
            expiry = loop.call_later(self._timeout + GRACE_SECONDS, _expire, future)
        self._waiting.append((commands, future))
        async with self._ready:
            self._ready.notify()
        try:
            return await future
        finally:
            if expiry is not None:
                expiry.cancel()

    async def _run(self, connection: WriterConnection) -> None:
        await connection.open()
        while batches := await self._take():
            await connection.write(batches)
        await connection.close()

    async def _take(self) -> list[Batch]:
        """Returns the waiting batches, up to a limit; empty only when stopping with none left."""
        async with self._ready:
            await self._ready.wait_for(lambda: self._waiting or self._is_stopping)
            taken: list[Batch] = []
            count, rows = 0, 0
            while self._waiting and count < MOST_COMMANDS_A_COMMIT and rows < MOST_ROWS_A_COMMIT:
                batch = self._waiting.popleft()
                if batch[1].done():  # its caller gave up before it started
                    continue
                taken.append(batch)
                for command in batch[0]:
                    # Adjacent creates are written as one page, in one savepoint.
                    count += not isinstance(command, c.CreateJobs)
                    rows += _rows(command)
            return taken


def _expire(future: asyncio.Future[list[Any]]) -> None:
    if not future.done():
        future.set_exception(
            TimedOut("the database did not respond in time; this may still be written: check before you try again")
        )


def _rows(command: c.Command) -> int:
    match command:
        case c.CreateJobs():
            return len(command.jobs)
        case c.Fire():
            return len(command.executions) + len(command.moves)
        case c.Finish():
            return len(command.ends)
        case _:
            return 1
