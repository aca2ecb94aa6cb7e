"""The logs port: what executions print, kept line by line as it comes. A backend is what passes tests/contract/logs.

A log belongs to one execution; its lines are numbered by (attempt << 32) + their place in the attempt, so that the
number grows over all attempts and nodes without anybody being asked. Logs are for people: failing to keep one never
stops a run, and says so in the log itself, or in ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

Stream = Literal["stdout", "stderr", "log"]  # log: said through Duetime, by a function or by Duetime itself


# The tenants of executions, by id; one that the ledger does not have is left out.
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
    """Logs can't be kept where they are to be. The sentence says why, and what to do."""


class LogWriter(Protocol):
    """The log of one attempt, while that runs. Neither waits nor raises. For the event loop's thread only."""

    def write(self, stream: Stream, text: str) -> None:
        """Text as it came: it may hold several lines, or a part of one, which is kept until its end comes.

        Lines end in \\n, \\r\\n or \\r; one of more than 16 kB is cut into pieces. Beyond the size cap, what comes is
        counted and not kept; a last line says how much was left out. What comes after close is nobody's.
        """

    async def close(self) -> None:
        """No more comes. What was written is kept by now, as far as it ever will be."""


class LogStore(Protocol):
    async def start(self) -> None:
        """Open. Raises LogsUnusable when that can't be; a place that is only away for now is no reason."""

    async def stop(self) -> None:
        """Keep what is still in memory, then close."""

    def open(self, execution_id: str, attempt: int, tenant: str = "") -> LogWriter:
        """Of a new attempt. (One that is opened again, after a claim was given back, goes on where it was.)

        Memory, the disk's time and calls to a store are shared by tenant: one that prints without end costs no other
        tenant a line.
        """

    async def read(self, execution_id: str, after: int, limit: int) -> list[Line]:
        """Up to `limit` lines with numbers beyond `after`, in order; also those that were written a moment ago.

        A page is bounded in bytes, too: one that is shorter than `limit` is not the last, an empty one is.
        Raises Overloaded if the log can't be read now.
        """

    async def wait(self, execution_id: str, after: int, seconds: float) -> bool:
        """Until there may be lines beyond `after`: True; or for so long: False. At once for those written here."""

    async def size(self, execution_id: str) -> int:
        """Bytes of its lines' texts, line ends counted."""

    async def remove(self, execution_ids: Collection[str]) -> None:
        """Forget these logs, of executions that have ended. One that is not there is no error."""

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf | None = None) -> int:
        """Remove logs of executions scheduled before this instant, and some more while all hold more than that.

        The tenants with the most lose their oldest logs, and keep as much as each of the others at least. Without
        `tenants_of` the oldest logs go, whoever they belong to.
        A store that keeps days apart may leave the day that the instant lies in. Answers how many went.
        """


class NoLog:
    """For an attempt that nobody keeps a log of."""

    def write(self, stream: Stream, text: str) -> None:
        return

    async def close(self) -> None:
        return


NO_LOG = NoLog()
