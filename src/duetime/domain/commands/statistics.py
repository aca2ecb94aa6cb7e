"""Commands of statistics: rows of ended attempts, their roll-up, and what nodes report about themselves."""

from __future__ import annotations

from duetime.domain.commands.base import Command
from duetime.domain.node_report import NodeFacts
from duetime.domain.statistics import StatisticsRow


class WriteStatistics(Command[int], frozen=True):
    """Add rows, or replace those of the same bucket, key and node. Returns how many were written.

    Writing the same rows again changes nothing. Rows of buckets that are rolled up already are left out: they would
    count twice.
    """

    now: int
    rows: tuple[StatisticsRow, ...]


class RollUpStatistics(Command[int], frozen=True):
    """Move up to `limit` rows of `span` from buckets before `until` into rows of the span `into`; None: remove them.

    `until` is a bound of a bucket of `into`. Returns how many rows were moved; 0: no more are left.
    Also removes reports of nodes from before `reports_before`.
    """

    now: int
    span: int
    into: int | None
    until: int
    limit: int = 1_000
    reports_before: int = 0


class RecountJobs(Command[int], frozen=True):
    """Correct the totals of jobs by status, by a count of all jobs. Returns how many totals were wrong.

    They are wrong after nodes of a version that does not count them have written to the same database.
    """

    now: int


class ReportNode(Command[None], frozen=True):
    """Replace what a node last reported about itself. Returns None."""

    now: int
    node: int
    facts: NodeFacts
