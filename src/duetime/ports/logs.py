"""The logs port: stores the output of executions, line by line as it is printed. A backend must pass
tests/contract/logs.

A log belongs to one execution. A line's number is (attempt << 32) + its position in the attempt, so that numbers grow
over all attempts and nodes without coordination. Logs are for people: a failure to store one never ends an attempt, and
is reported in the log itself or in the node's own log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from duetime.ports.usage import LogUsage

Stream = Literal["stdout", "stderr", "log"]  # log: lines logged through Duetime, by a function or by Duetime itself


# Returns the tenants of executions, by execution id; executions that are not in the ledger are left out.
TenantsOf = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]


class Line(msgspec.Struct, frozen=True, gc=False, array_like=True):
    number: int  # (attempt << 32) + 1, 2, 3, …
    at: int  # ms since the epoch
    stream: Stream
    text: str  # no line end, no NUL, valid UTF-8

    @property
    def attempt(self) -> int:
        return self.number >> 32


class LogsUnusable(Exception):
    """Logs can't be stored at the configured place. The message says why, and what to do."""


class LogWriter(Protocol):
    """Writes the log of one running attempt. `write` neither waits nor raises. For the event loop's thread only."""

    def write(self, stream: Stream, text: str) -> None:
        """Writes text as it was printed: several lines, or a part of one, which is buffered until the line ends.

        Lines end in \\n, \\r\\n or \\r; a line of more than 16 kB is cut into pieces. Beyond the size cap, text is
        counted and not stored; a last line says how much was left out. Text written after close is discarded.
        """

    async def close(self) -> None:
        """Ends the log. When it returns, all text that can be stored is stored."""


class LogStore(Protocol):
    async def start(self) -> None:
        """Opens the store. Raises LogsUnusable if that fails for good, but not if the place is only unreachable now."""

    async def stop(self) -> None:
        """Stores the lines that are still in memory, then closes the store."""

    def open(self, execution_id: str, attempt: int, tenant: str = "") -> LogWriter:
        """Returns a writer for an attempt. Opened again, after a claim was released, it continues where it stopped.

        Memory, disk time and calls to a store are shared by tenant: a tenant that prints endlessly costs no other
        tenant a line.
        """

    async def read(self, execution_id: str, after: int, limit: int) -> list[Line]:
        """Returns up to `limit` lines with numbers above `after`, in order, including lines written a moment ago.

        A page is also bounded in bytes: only an empty page is the last, not one that is shorter than `limit`.
        Raises Overloaded if the log can't be read now.
        """

    async def wait(self, execution_id: str, after: int, seconds: float) -> bool:
        """Waits for lines above `after`. Returns True once there may be some, at once for lines written on this node;
        False after `seconds`."""

    async def size(self, execution_id: str) -> int:
        """Returns the size of the log's text in bytes, including line ends."""

    async def remove(self, execution_ids: Collection[str]) -> None:
        """Removes the logs of these executions, which have ended. A missing log is no error."""

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf | None = None) -> int:
        """Removes logs of executions scheduled before `before`, and more while all logs exceed `most_bytes`.

        For the size, the tenants with the most bytes lose their oldest logs, but keep at least as much as each of the
        others. Without `tenants_of`, the oldest logs of any tenant are removed.
        A store that keeps one unit per day may keep the day that contains `before`. Returns the number of removed logs.
        """

    def usage(self) -> LogUsage:
        """Returns how much was stored and lost since the start, and how much waits in memory."""


class NoLog:
    """A LogWriter that discards everything."""

    def write(self, stream: Stream, text: str) -> None:
        return

    async def close(self) -> None:
        return


NO_LOG = NoLog()
