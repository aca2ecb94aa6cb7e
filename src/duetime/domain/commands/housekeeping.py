"""Housekeeping: what is removed that is not found by its age.

Sweeps walk a whole table, page by page: an index on what changes with each request would cost every request more than
the walk costs anybody. The audit is cut chain by chain, from its oldest link on.
"""

from __future__ import annotations

import msgspec

from duetime.domain.commands.base import Command


class SweepLimits(Command, frozen=True):
    """Remove limits whose bucket is full again since before `before`, among the `limit` rows after `after`.

    `after` is (tenant, user, name of the limit). Answers `SweptRows`. A user without a row has a full bucket.
    """

    before: int
    after: tuple[str, str, str]
    limit: int


class SweepCounters(Command, frozen=True):
    """Remove totals of nothing, among the `limit` totals after `after`: of tenants that have no jobs and no history.

    `after` is (tenant, name of the total, day). Answers `SweptRows`. What has no total counts as 0. A store that keeps
    totals by the day leaves those of the days from `before` on, which are being written.
    """

    before: int
    after: tuple[str, str, int]
    limit: int


class SweptRows(msgspec.Struct, frozen=True):
    removed: int
    last: tuple[str, str, str] | tuple[str, str, int] | None  # of those that were looked at; None: there are no more


class PruneAudit(Command, frozen=True):
    """Remove a chain of the audit up to `link`, whose hash is `hash`, and keep those two as the chain's checkpoint.

    Whoever asks has verified the pages up to there, has written them elsewhere, and bounds how many they are. Answers
    how many entries went; a chain that was pruned up to there before is left as it is, and 0 the answer.
    Refused: Conflict if the chain has no such link.
    """

    now: int
    chain: int
    link: int
    hash: str  # hex


class TrimHistory(Command, frozen=True):
    """Remove up to `number` ended executions of a tenant, oldest first and dead letters last. Answers `Trimmed`.

    It looks at the `look` executions behind `after` (an execution's id). Only if these are the tenant's last ones, and
    too few of them could be removed, the rest is taken from the tenant's dead letters.
    """

    tenant: str
    number: int
    after: str
    look: int


class Trimmed(msgspec.Struct, frozen=True):
    removed: int
    last: str  # what was looked at last: where the next one goes on
    is_end: bool  # the tenant has no executions behind it
