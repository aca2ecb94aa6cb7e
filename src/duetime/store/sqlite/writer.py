"""The one writer thread: takes all waiting batches, applies them, commits once, returns all results.

That gives group commit: while one commit waits for the disk, batches queue up for the next. No result is returned
before its commit has returned.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from duetime.domain.capacity import Capacity
from duetime.domain.commands import Command, CreateJobs
from duetime.domain.errors import DuetimeError, Overloaded
from duetime.process.crash import crash_point
from duetime.store.sqlite.apply import Applier
from duetime.store.sqlite.checkpointer import Checkpointer

MOST_COMMANDS_A_COMMIT = 1000
MOST_WAITING = 20_000  # batches; beyond that, callers get Overloaded, so that memory stays bounded

Batch = tuple[Sequence[Command], "asyncio.Future[list[Any]]"]
Answer = tuple["asyncio.Future[list[Any]]", list[Any] | Exception]


class Writer:
    def __init__(self, connect: Callable[[], apsw.Connection], capacity: Capacity, checkpointer: Checkpointer) -> None:
        self._connect = connect
        self._checkpointer = checkpointer
        self._capacity = capacity
        self._waiting: list[Batch] = []
        self._ready = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="duetime-writer", daemon=True)
        self._opened: asyncio.Future[None] | None = None
        self.last_error: str | None = None
        self.committed = 0
        self.on_commit: Callable[[int, float], None] = lambda commands, seconds: None
        self._commit: tuple[int, float] | None = None  # of the last write: commands and seconds; None: it failed

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._thread.start()
        await self._opened

    async def stop(self) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify()
        await asyncio.to_thread(self._thread.join)

    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, commands: Sequence[Command]) -> asyncio.Future[list[Any]]:
        future = self._loop.create_future()
        with self._ready:
            if self._stopping:
                raise Overloaded("the node is shutting down; try again in a moment")
            if len(self._waiting) >= MOST_WAITING:
                raise Overloaded("too many writes are waiting for the disk; try again in a second")
            self._waiting.append((commands, future))
            if len(self._waiting) == 1:
                self._ready.notify()
        return future

    def _run(self) -> None:
        assert self._opened is not None
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 (start raises it)
            self._loop.call_soon_threadsafe(self._opened.set_exception, error)
            return
        self._checkpointer.start()
        self._loop.call_soon_threadsafe(self._opened.set_result, None)
        while batches := self._take():
            answers = self._write(batches)
            self._loop.call_soon_threadsafe(self._answer, answers, self._commit)
            if not self._broken:
                self._checkpointer.finish(self._connection)
        self._checkpointer.stop()
        self._connection.close()

    def _open(self) -> None:
        self._connection = self._connect()
        self._checkpointer.watch(self._connection)
        self._applier = Applier(self._connection, self._capacity)
        self._broken = False

    def _take(self) -> list[Batch]:
        """Returns the waiting batches, up to a limit; empty only when stopping with none left."""
        with self._ready:
            while not self._waiting and not self._stopping:
                self._ready.wait()
            taken, count = 0, 0
            for commands, _ in self._waiting:
                taken, count = taken + 1, count + len(commands)
                if count >= MOST_COMMANDS_A_COMMIT:
                    break
            batches, self._waiting = self._waiting[:taken], self._waiting[taken:]
            return batches

    def _write(self, batches: list[Batch]) -> list[Answer]:
        began, self._commit = time.perf_counter(), None
        try:
            if self._broken:
                self._open()
            self._connection.execute("BEGIN IMMEDIATE")
            self._applier.begin()
            results = _apply_all(self._applier, [command for commands, _ in batches for command in commands])
            self._applier.end()
            crash_point("before_commit")
            self._connection.execute("COMMIT")
            crash_point("after_commit")
        except Exception as error:  # noqa: BLE001 (answered to every caller; nothing was written)
            self.last_error = f"{type(error).__name__}: {error}"
            self._roll_back()
            return [(future, _unwritten(error)) for _, future in batches]
        self.last_error = None
        self.committed += 1
        self._commit = len(results), time.perf_counter() - began
        answers: list[Answer] = []
        position = 0
        for commands, future in batches:
            answers.append((future, results[position : position + len(commands)]))
            position += len(commands)
        return answers

    def _answer(self, answers: list[Answer], commit: tuple[int, float] | None) -> None:
        """Runs on the event loop."""
        _answer(answers)
        if commit is not None:
            self.on_commit(*commit)

    def _roll_back(self) -> None:
        try:
            # After some errors (disk full, I/O) SQLite has rolled back by itself.
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._broken = True  # its state is unknown: the next write opens another connection
            self._connection.close(True)


def _apply_all(applier: Applier, commands: list[Command]) -> list[Any]:
    """Writes adjacent CreateJobs as one page (64 clients may send them at once). One that fails, fails alone."""
    results: list[Any] = []
    position = 0
    while position < len(commands):
        end = position
        while end < len(commands) and type(command := commands[end]) is CreateJobs and not command.idempotency:
            end += 1
        if end - position > 1:
            creates = commands[position:end]
            together = applier.create_together(creates)
            results.extend([None] * len(creates) if together else [applier.apply(create) for create in creates])
            position = end
            continue
        results.append(applier.apply(commands[position]))
        position += 1
    return results


def _answer(answers: list[Answer]) -> None:
    for future, answer in answers:
        if future.done():  # its caller was cancelled; what it wrote stays written
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _unwritten(error: Exception) -> Exception:
    if isinstance(error, DuetimeError):
        return error
    if isinstance(error, apsw.FullError):
        return Overloaded("the disk is full, nothing was written; free some space and try again", retry_after=10)
    return Overloaded(f"the database could not write ({error}), nothing was changed; try again", retry_after=5)
