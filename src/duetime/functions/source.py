"""Where a worker's work comes from and its reports go: a node, over HTTP or in the same process.

Errors:
    SourceError
    ├── UnknownWorker   the lease is lost: what this worker runs is another's by now; it joins anew
    ├── SourceAway      can't be reached now, or has no room; the same is tried again, no sooner than it says
    └── SourceRefused   will never be accepted: a wrong key, a bad request; the worker gives up with this sentence
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
    """`retry_after_seconds`: it said so itself."""

    def __init__(self, message: str = "", retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SourceRefused(SourceError):
    pass


class Source(Protocol):
    """Each may raise the errors above. A poll and a report may be under way at once; never two of a kind."""

    async def join(self, joining: Joining) -> Joined:
        """Be known, and hold a lease from here on."""

    async def poll(self, polling: Polling) -> Polled:
        """Wait for assignments, up to `wait_seconds`, and answer with `free` of them at most; none if none came.

        May be cancelled while it waits. What was given out just then comes back with the lease's end, or with `leave`.
        """

    async def report(self, reporting: Reporting) -> Reported:
        """Renews the lease. When it answers, what was reported is durable.

        An end may come twice, if the first answer was lost: the token tells.
        """

    async def leave(self, leaving: Leaving) -> None:
        """Give up the lease; whatever is still assigned goes to others at once."""
