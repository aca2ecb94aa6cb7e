"""Logs in a local folder, or in one that several nodes share: one folder per day, one file per execution.

Lines wait in memory until one thread appends them, those of all logs in one flush. The first flush starts at once; then
lines gather for a moment. One flush appends a bounded number of bytes per tenant, and a bounded part of them per log: a
flood of lines waits for the next flush, and does not delay other tenants. A file is open only while it is appended to
or read. A disk that stores nothing costs lines, which are counted, and never an attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from duetime.domain.errors import Overloaded
from duetime.logs.days import Totals, day_of, prune_days
from duetime.logs.disk import LogDisk
from duetime.logs.file import Appended, Measured, append, measure, scan
from duetime.logs.lines import size_of
from duetime.logs.memory import Memory, Writer, first_page, follows_on, joined
from duetime.logs.outage_log import OutageLog
from duetime.ports.clock import Clock
from duetime.ports.logs import Line, LogsUnusable, LogWriter, TenantsOf
from duetime.ports.usage import LogUsage
from duetime.recent import Recent

FLUSH_SECONDS = 0.05
TURN_BYTES = 1024 * 1024  # of one tenant in one flush
PIECE_BYTES = 256 * 1024  # of one log in one flush
CLOSE_SECONDS = 3.0  # the most that an attempt waits for its log
TROUBLE_SECONDS = 1.0  # between two tries while writes fail
LOOK_SECONDS = 0.2  # between looks at a file that another process may write to
MOST_REMEMBERED = 1024  # executions for which read positions are cached
PLACES_A_LOG = 8

log = structlog.get_logger()

T = TypeVar("T")


class Batch(NamedTuple):
    writer: Writer
    path: str
    attempt: int
    lines: list[Line]
    settled: bool


class FolderLogs:
    def __init__(self, path: Path, limit_bytes: int, clock: Clock) -> None:
        self._path = str(path)
        self._disk = LogDisk(self._path)
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._memory = Memory()
        self._totals = Totals(clock)
        self._dirty: dict[Writer, None] = {}
        self._failed: set[Writer] = set()  # closing writers whose append failed
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._under_way = self._next = asyncio.Event()  # set at the end of the current flush, and of the next one
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._outage = OutageLog(self._path)
        self._stored_bytes = 0  # since the start
        self._places = Recent[str, dict[int, int]](MOST_REMEMBERED)
        self._seen = Recent[tuple[str, int], int](MOST_REMEMBERED)
        self._measured = Recent[str, Measured](MOST_REMEMBERED)

    async def start(self) -> None:
        try:
            await self._disk.start()
        except OSError as error:
            raise LogsUnusable(
                f"the logs of executions can't be kept in {self._path}: {error.strerror or error}; "
                "give a folder that this user may write to"
            ) from error
        self._appender = ThreadPoolExecutor(1, "duetime-logs")
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="logs")

    async def stop(self) -> None:
        if self._task is None:
            return
        await asyncio.gather(*(writer.close() for writer in self._memory.writers()))
        self._stopping = True
        self._wake.set()
        self._hurry.set()
        await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        self._task.cancel()
        self._task = None
        self._outage.stop()
        self._appender.shutdown(wait=False)
        self._disk.stop()

    def open(self, execution_id: str, attempt: int, tenant: str = "") -> LogWriter:
        writer = Writer(self._memory, self, execution_id, attempt, self._limit_bytes, self._clock, tenant)
        self._memory.add(writer)
        return writer

    def note(self, writer: Writer) -> None:
        self._dirty[writer] = None
        self._wake.set()
        if not writer.settled:
            self._hurry.set()  # its first line is visible only after the file was read

    async def finish(self, writer: Writer) -> None:
        """Waits for as many flushes as it takes, until one fails. It does not wait for a disk that hangs."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while writer.waiting() and self._task is not None and writer not in self._failed:
                    flushed = self._next if writer in self._dirty else self._under_way
                    if flushed.is_set():
                        break  # its flush failed: there is no retry
                    self._hurry.set()
                    await flushed.wait()
        except TimeoutError as error:
            self._outage.begin(error)
        finally:
            self._dirty.pop(writer, None)
            self._failed.discard(writer)
            self._outage.lose(writer.give_up())
            self._memory.drop(writer)

    def usage(self) -> LogUsage:
        return LogUsage(self._stored_bytes, self._memory.lost_lines, self._memory.waiting_bytes)

    async def read(self, execution_id: str, after: int, limit: int) -> list[Line]:
        held = self._memory.list_lines(execution_id, after)
        if held and follows_on(held[0], after):
            return first_page(held, limit)
        return await self._scan(execution_id, after, limit, held)

    async def wait(self, execution_id: str, after: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        with self._memory.watch(execution_id) as written:
            while True:
                if self._memory.list_lines(execution_id, after) or await self._changed(execution_id, after):
                    return True
                left = until - loop.time()
                if left <= 0:
                    return False
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, LOOK_SECONDS)):
                        return await written.wait()

    async def size(self, execution_id: str) -> int:
        held = self._memory.list_lines(execution_id, 0)
        path, known = self._disk.path_of(execution_id), self._measured.get(execution_id) or Measured()
        found = await self._disk.call(execution_id, lambda: measure(path, known))
        self._measured.put(execution_id, found)
        return found.bytes + sum(size_of(line.text) + 1 for line in held if line.number > found.last)

    async def remove(self, execution_ids: Collection[str]) -> None:
        ids = list(execution_ids)
        for execution_id in ids:
            self._places.pop(execution_id)
            self._measured.pop(execution_id)
        removed = await self._disk.remove(ids)
        for execution_id, count in zip(ids, removed, strict=True):
            self._totals.add(day_of(execution_id), -count)

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf | None = None) -> int:
        return await prune_days(self._disk, self._totals, before, most_bytes, tenants_of)

    # Writing

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._hurry.clear()
            try:
                await self._flush()
            except Exception as error:  # of any kind: the next lines are still tried
                log.error("lines of executions' logs were lost", error=repr(error), exc_info=True)
            if self._stopping and not self._dirty:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(TROUBLE_SECONDS if self._outage.lasts else FLUSH_SECONDS):
                    await self._hurry.wait()

    async def _flush(self) -> None:
        self._under_way, self._next = self._next, asyncio.Event()
        try:
            await self._flush_dirty()
        finally:
            self._under_way.set()

    async def _flush_dirty(self) -> None:
        batches, is_all = self._take_turns()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._appender, _append_all, batches)
        trouble: OSError | None = None
        for batch, result in zip(batches, results, strict=True):
            trouble = result.error or trouble
            self._settle(batch, result)
        if trouble is not None:
            self._outage.begin(trouble)
        else:
            self._outage.end()
        if not is_all:
            self._wake.set()
            if trouble is None:  # otherwise the disk gets a pause
                self._hurry.set()

    def _take_turns(self) -> tuple[list[Batch], bool]:
        """Returns the next lines of each log, within its tenant's budget, and whether they are all waiting lines."""
        left: dict[str, int] = {}
        batches: list[Batch] = []
        is_all = True
        for writer in list(self._dirty):
            budget = left.get(writer.tenant, TURN_BYTES)
            if budget <= 0:
                is_all = False
                continue
            lines, size = writer.first_waiting(min(budget, PIECE_BYTES))
            is_all = is_all and size == writer.waiting_bytes
            left[writer.tenant] = budget - size
            batches.append(
                Batch(writer, self._disk.path_of(writer.execution_id), writer.attempt, lines, writer.settled)
            )
            del self._dirty[writer]
        return batches, is_all

    def _settle(self, batch: Batch, result: Appended) -> None:
        writer = batch.writer
        if not batch.settled and result.numbered is not None:
            writer.settle(result.numbered)
        writer.keep(result.lines)
        self._totals.add(day_of(writer.execution_id), result.bytes, writer.tenant)
        self._stored_bytes += result.bytes
        self._failed.discard(writer)
        if writer.kept < len(writer.lines):
            self._dirty[writer] = None  # behind the logs that were not flushed
            self._wake.set()
            if result.error is not None and writer.closed:
                self._failed.add(writer)

    # Reading

    async def _scan(self, execution_id: str, after: int, limit: int, held: list[Line]) -> list[Line]:
        path, place = self._disk.path_of(execution_id), self._place(execution_id, after)
        found = await self._disk.call(execution_id, lambda: scan(path, place, after, limit))
        self._remember_place(execution_id, *found.place)
        if found.size is None:
            return found.lines
        if not found.lines:
            self._seen.put((execution_id, after), found.size)
        return joined(found.lines, held, limit)

    async def _changed(self, execution_id: str, after: int) -> bool:
        """Returns whether the file has lines beyond `after`. If its size is unchanged, the file is not read."""
        try:
            size = await self._disk.size(execution_id)
            if size == (self._seen.get((execution_id, after)) or 0):
                return False
            return bool(await self._scan(execution_id, after, 1, []))
        except Overloaded:  # the next read raises it
            return False

    def _place(self, execution_id: str, after: int) -> tuple[int, int]:
        places = self._places.get(execution_id) or {}
        return max((place for place in places.items() if place[0] <= after), default=(0, 0))

    def _remember_place(self, execution_id: str, number: int, offset: int) -> None:
        places = self._places.get(execution_id) or {}
        places.pop(number, None)
        places[number] = offset
        if len(places) > PLACES_A_LOG:
            del places[next(iter(places))]
        self._places.put(execution_id, places)


def _append_all(batches: list[Batch]) -> list[Appended]:
    return [append(batch.path, batch.attempt, batch.lines, batch.settled) for batch in batches]
