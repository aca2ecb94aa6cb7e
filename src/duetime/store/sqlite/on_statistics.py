"""Commands of statistics: write, roll up, report."""

from __future__ import annotations

from duetime.domain import commands as c
from duetime.domain.statistics import OTHERS, StatisticsRow, roll_up
from duetime.store.rolling import MOST_ROLLED_KEYS, bounds, read_rows
from duetime.store.sqlite.statements import Statements, page


class StatisticsCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def write_statistics(self, command: c.WriteStatistics) -> int:
        self._db.run("write_statistics", rows=page(command.rows))
        return self._db.connection.changes()

    def roll_up_statistics(self, command: c.RollUpStatistics) -> int:
        self._db.run("set_rolled", span=command.span, until=command.until)
        self._db.run("prune_node_reports", before=command.reports_before)
        first_at = self._db.value("get_bucket_to_roll_up", span=command.span, until=command.until)
        if first_at is None:
            return 0
        since, until = bounds(first_at, command.into, command.until)
        rows = read_rows(
            self._db.rows("list_to_roll_up", span=command.span, since=since, until=until, limit=command.limit)
        )
        if command.into is not None:
            self._merge(rows, command.into, since)
        self._db.run("remove_statistics", rows=page([(*_place(row), row.node) for row in rows]))
        return len(rows)

    def _merge(self, rows: list[StatisticsRow], into: int, bucket_at: int) -> None:
        keys = page(sorted({row.key for row in rows} | {(OTHERS, row.type, "") for row in rows}))
        existing = read_rows(self._db.rows("list_rolled", keys=keys, into=into, bucket_at=bucket_at))
        room = MOST_ROLLED_KEYS - self._db.value("count_bucket", span=into, bucket_at=bucket_at)
        self._db.run("put_rolled", rows=page(roll_up(rows, existing, into, room)))

    def recount_jobs(self, command: c.RecountJobs) -> int:
        self._db.run("recount_jobs")
        return self._db.connection.changes()

    def report_node(self, command: c.ReportNode) -> None:
        self._db.run("report_node", node=command.node, now=command.now, facts=page(command.facts))


def _place(row: StatisticsRow) -> tuple[int, int, str, str, str]:
    return row.span, row.bucket_at, row.tenant, row.type, row.subject
