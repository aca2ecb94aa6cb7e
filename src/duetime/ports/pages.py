"""Pages that a store lists: bounded by the query's limit, by bytes, and by the cost of decoding them.

A row whose job's definition this version can't read is listed apart: it must not stop the others. A read writes
nothing; the caller decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from duetime.domain.execution import Claim
from duetime.domain.plan import DueTimer

T = TypeVar("T")

PAGE_BYTES = 4 * 1024 * 1024  # of rows as JSON; a page has at least one row
PAGE_WEIGHT = 200_000  # of their values (domain.weights)


class Page(list[T]):
    """Rows in order. `is_cut`: more rows follow, although the page is below the limit; continue after the last row."""

    is_cut = False


class UnreadableJob(NamedTuple):
    job_id: str
    tenant: str
    error: str


class UnreadableClaim(NamedTuple):
    execution_id: str
    job_id: str
    tenant: str
    attempt: int
    token: int
    error: str


class DueTimers(list[DueTimer]):
    """Due timers, and those whose job can't be read: they stay due until the job is paused."""

    unreadable: Sequence[UnreadableJob] = ()


class ExpiredClaims(list[Claim]):
    """Expired claims, and those whose job can't be read: they stay expired until they are finished."""

    unreadable: Sequence[UnreadableClaim] = ()
