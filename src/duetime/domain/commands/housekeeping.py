"""Housekeeping commands for rows that can't be found by their age.

Sweeps read a whole table, page by page: an index on a column that changes with each request would cost more than the
sweep does. The audit is pruned chain by chain, from its oldest link on.
"""

from __future__ import annotations

import msgspec

from duetime.domain.commands.base import Command


class SweptRows(msgspec.Struct, frozen=True):
    removed: int
    last: tuple[str, str, str] | tuple[str, str, int] | None  # the last row that was read; None: there are no more


class SweepLimits(Command[SweptRows], frozen=True):
    """Remove limits whose bucket has been full since before `before`, among the `limit` rows after `after`.

    `after` is (tenant, user, name of the limit). Returns `SweptRows`. A user without a row has a full bucket.
    """

    before: int
    after: tuple[str, str, str]
    limit: int


class SweepCounters(Command[SweptRows], frozen=True):
    """Remove totals of 0 (of tenants with no jobs and no history), among the `limit` totals after `after`.

    `after` is (tenant, name of the total, day). Returns `SweptRows`. A missing total counts as 0. A store that keeps
    totals by the day leaves those of the days from `before` on, which are being written.
    The first page also removes up to `limit` totals of jobs by status.
    """

    before: int
    after: tuple[str, str, int]
    limit: int


class PruneAudit(Command[int], frozen=True):
    """Remove the entries of an audit chain up to `link`, whose hash is `hash`. Both are kept as the chain's checkpoint.

    The caller has verified these entries, has written them elsewhere, and limits their number. Returns the number of
    removed entries: 0 if the chain was pruned up to there before. Fails with Conflict if the chain has no such link.
    """

    now: int
    chain: int
    link: int
    hash: str  # hex


class Trimmed(msgspec.Struct, frozen=True):
    removed: int
    last: str  # the last execution that was read: the next command goes on after it
    is_end: bool  # the tenant has no executions after `last`


class TrimHistory(Command[Trimmed], frozen=True):
    """Remove up to `number` ended executions of a tenant, oldest first and dead letters last. Returns `Trimmed`.

    It reads the `look` executions after `after` (an execution's id). Only if these are the tenant's last ones, and
    too few of them could be removed, dead letters of the tenant make up the rest.
    """

    tenant: str
    number: int
    after: str
    look: int
