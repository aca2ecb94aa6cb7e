"""The log lines that this process holds in memory: those that wait to be stored, and the newest stored ones.

Readers on this node see a line as soon as it is written, and followers read from memory, independent of the backend.
Everything happens on the event loop's thread: there are no locks. Memory is bounded: if a backend stores nothing, each
log holds a fixed number of bytes, and further lines are dropped and counted. Memory beyond that is shared by tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from duetime.domain.shares import may_have_more
from duetime.logs.lines import Cutter, size_of
from duetime.ports.clock import Clock
from duetime.ports.logs import Line, Stream

WAITING_BYTES = 256 * 1024  # guaranteed to each log
SHARED_BYTES = 32 * 1024 * 1024  # for bursts of all logs beyond their guaranteed bytes, shared by tenant
NEWEST_BYTES = 64 * 1024  # of one log: stored lines that followers need not fetch again
OBJECT_BYTES = 128  # memory that a line takes in addition to its text
PAGE_BYTES = 1024 * 1024
FIRST_OF_ALL = (1 << 32) + 1  # the first line of the first attempt


class LogFlusher(Protocol):
    """The backend, as a writer sees it."""

    def note(self, writer: Writer) -> None:
        """The writer has lines to store."""

    async def finish(self, writer: Writer) -> None:
        """The writer is closed. Waits a bounded time until its lines are stored, then drops it from memory."""


class Writer:
    """The log of one attempt: numbered lines, of which the first `kept` are stored and the others wait.

    Until the backend has set the first number (`settle`), only the backend sees the lines: an attempt that is opened
    again may have stored lines already.
    """

    def __init__(
        self, memory: Memory, flusher: LogFlusher, execution_id: str, attempt: int, limit_bytes: int, clock: Clock,
        tenant: str = "",
    ) -> None:  # fmt: skip
        self.execution_id = execution_id
        self.attempt = attempt
        self.tenant = tenant
        self.lines: list[Line] = []
        self.kept = 0
        self.settled = False
        self.waiting_bytes = 0
        self.closed = False
        self._memory = memory
        self._flusher = flusher
        self._cutter = Cutter(limit_bytes)
        self._clock = clock
        self._next = (attempt << 32) + 1
        self._newest_bytes = 0
        self.lost_lines = 0
        self._lost_bytes = 0

    def write(self, stream: Stream, text: str) -> None:
        if self.closed:
            return
        texts = self._cutter.cut(stream, text)
        if texts:
            at = self._clock.now()
            for line in texts:
                self._add(at, stream, line)
            self._tell()

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        at = self._clock.now()
        for stream, text in self._cutter.finish():
            self._add(at, stream, text)
        if self.lost_lines:
            self._say_what_was_lost(at)
        self._tell()
        await self._flusher.finish(self)

    def waiting(self) -> list[Line]:
        return self.lines[self.kept :]

    def first_waiting(self, most_bytes: int) -> tuple[list[Line], int]:
        """Returns the first waiting lines, at least one, up to this much memory; and how much they take."""
        if self.waiting_bytes <= most_bytes:
            return self.waiting(), self.waiting_bytes
        size = 0
        for place in range(self.kept, len(self.lines)):
            size += _cost(self.lines[place])
            if size >= most_bytes:
                return self.lines[self.kept : place + 1], size
        return self.waiting(), size

    def settle(self, numbered: int) -> None:
        """The backend has `numbered` lines of this attempt already: the held lines are numbered after them."""
        if numbered and not self.settled:
            self.lines = [msgspec.structs.replace(line, number=line.number + numbered) for line in self.lines]
            self._next += numbered
        self.settled = True
        self._memory.wake(self.execution_id)

    def keep(self, count: int) -> None:
        """The first `count` waiting lines are stored now (or were given up meanwhile)."""
        count = min(count, len(self.lines) - self.kept)
        cost = sum(map(_cost, self.lines[self.kept : self.kept + count]))
        self.waiting_bytes -= cost
        self._memory.hold(self.tenant, -cost)
        self._newest_bytes += cost
        self.kept += count
        stale = 0
        while self._newest_bytes > NEWEST_BYTES and stale < self.kept:
            self._newest_bytes -= _cost(self.lines[stale])
            stale += 1
        del self.lines[:stale]
        self.kept -= stale

    def give_up(self) -> int:
        """Gives up the lines that are not stored. Returns how many."""
        lost = len(self.lines) - self.kept
        self.keep(lost)
        self.lost_lines += lost
        self._memory.lost_lines += lost
        return lost

    def _add(self, at: int, stream: Stream, text: str) -> None:
        cost = size_of(text) + OBJECT_BYTES
        if self.waiting_bytes > WAITING_BYTES and not self._memory.has_room(self.tenant):
            self.lost_lines += 1
            self._memory.lost_lines += 1
            self._lost_bytes += size_of(text) + 1
            return
        self._append(at, stream, text, cost)

    def _append(self, at: int, stream: Stream, text: str, cost: int) -> None:
        self.lines.append(Line(self._next, at, stream, text))
        self._next += 1
        self.waiting_bytes += cost
        self._memory.hold(self.tenant, cost)

    def _say_what_was_lost(self, at: int) -> None:
        """Adds a line about the lost lines, even without room: it is the one line that readers must see."""
        text = f"{self.lost_lines:,} lines ({self._lost_bytes:,} bytes) were left out: they could not be kept in time"
        self._append(at, "log", text, len(text) + OBJECT_BYTES)

    def _tell(self) -> None:
        if self.kept < len(self.lines):
            self._flusher.note(self)
        if self.settled:
            self._memory.wake(self.execution_id)


class Memory:
    """All logs that are open on this node, and the followers that wait for lines of an execution."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self.lost_lines = 0  # of all logs, since the start
        self._held: dict[str, int] = {}  # bytes of them, by tenant
        self._writers: dict[str, list[Writer]] = {}
        self._watches: dict[str, set[asyncio.Event]] = {}

    def hold(self, tenant: str, count: int) -> None:
        """Adds `count` waiting bytes; negative: removes them."""
        self.waiting_bytes += count
        held = self._held.get(tenant, 0) + count
        if held:
            self._held[tenant] = held
        else:
            self._held.pop(tenant, None)

    def has_room(self, tenant: str) -> bool:
        """Returns whether this tenant may hold more than the bytes guaranteed to each log."""
        return may_have_more(self._held.get(tenant, 0), self.waiting_bytes, SHARED_BYTES, len(self._held))

    def add(self, writer: Writer) -> None:
        self._writers.setdefault(writer.execution_id, []).append(writer)

    def drop(self, writer: Writer) -> None:
        """Removes a writer whose lines are stored or given up."""
        writers = self._writers.get(writer.execution_id, [])
        if writer in writers:
            writers.remove(writer)
            if not writers:
                del self._writers[writer.execution_id]

    def writers(self) -> list[Writer]:
        return [writer for writers in self._writers.values() for writer in writers]

    def list_lines(self, execution_id: str, after: int) -> list[Line]:
        """Returns the held lines beyond `after`. The oldest stored lines may be missing, others are not."""
        writers = [writer for writer in self._writers.get(execution_id, ()) if writer.settled and writer.lines]
        found: list[Line] = []
        for writer in sorted(writers, key=lambda writer: writer.lines[0].number):
            found += writer.lines[max(0, after + 1 - writer.lines[0].number) :]
        return found

    def follows(self, execution_id: str, after: int) -> bool:
        """Returns whether this node writes the log, so that the next line appears here first."""
        return any(
            writer.settled and writer.attempt == after >> 32 and writer.lines and writer.lines[0].number <= after + 1
            for writer in self._writers.get(execution_id, ())
        )

    def wake(self, execution_id: str) -> None:
        for watch in self._watches.get(execution_id, ()):
            watch.set()

    @contextmanager
    def watch(self, execution_id: str) -> Iterator[asyncio.Event]:
        """Yields an event that is set whenever lines of the execution become visible on this node."""
        watch = asyncio.Event()
        watches = self._watches.setdefault(execution_id, set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches and self._watches.get(execution_id) is watches:
                del self._watches[execution_id]


def follows_on(line: Line, after: int) -> bool:
    """Returns whether no line can be between them, so that memory alone is enough and the backend is not needed."""
    return line.number == after + 1 or (line.number == FIRST_OF_ALL and after < FIRST_OF_ALL)


def first_page(lines: Sequence[Line], limit: int) -> list[Line]:
    """Returns as many lines as a page holds, at least one."""
    page: list[Line] = []
    left = PAGE_BYTES
    for line in lines[:limit]:
        left -= size_of(line.text) + 1
        if left < 0 and page:
            break
        page.append(line)
    return page


def joined(kept: list[Line], held: list[Line], limit: int) -> list[Line]:
    """Returns a page of the backend's lines and of the lines held before the backend was read, without duplicates."""
    last = kept[-1].number if kept else 0
    return first_page(kept + [line for line in held if line.number > last], limit)


def _cost(line: Line) -> int:
    return size_of(line.text) + OBJECT_BYTES
