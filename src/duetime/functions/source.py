"""The source that gives a worker its calls and takes its reports: a node, over HTTP or in the same process.

Errors:
    SourceError
    ├── UnknownWorker   the lease has expired: its executions go to other workers; the worker joins again
    ├── SourceAway      unreachable, or has no room; the worker retries, no sooner than the source says
    └── SourceRefused   will never be accepted: a wrong key, a bad request; the worker gives up with this message
"""

from __future__ import annotations

from typing import Protocol

from duetime.domain.work import Joined, Joining, Leaving, Polled, Polling, Reported, Reporting


class SourceError(Exception):
    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class UnknownWorker(SourceError):
    pass


class SourceAway(SourceError):
    """`retry_after_seconds`: the pause that the source asked for."""

    def __init__(self, message: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SourceRefused(SourceError):
    pass


class Source(Protocol):
    """Each method may raise the errors above. One poll and one report may run at the same time, never two of a kind."""

    async def join(self, joining: Joining) -> Joined:
        """Registers the worker, which holds a lease from then on."""

    async def poll(self, polling: Polling) -> Polled:
        """Waits up to `wait_seconds` for assignments. Returns at most `free` of them, or none.

        May be cancelled while it waits. Assignments made at that moment return when the lease ends, or with `leave`.
        """

    async def report(self, reporting: Reporting) -> Reported:
        """Renews the lease. When it returns, the report is durable.

        An end may be reported twice, if the first response was lost: the token identifies it.
        """

    async def leave(self, leaving: Leaving) -> None:
        """Gives up the lease. Executions that are still assigned go to other workers at once."""
