"""Commands of statistics: write, roll up, report."""

from __future__ import annotations

from duetime.domain import commands as c
from duetime.domain.statistics import OTHERS, StatisticsRow, roll_up
from duetime.store.postgres.statements import Statements, text_of
from duetime.store.rolling import MOST_ROLLED_KEYS, bounds, columns_of, read_rows


class StatisticsCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def write_statistics(self, command: c.WriteStatistics) -> int:
        return len(await self._db.rows("write_statistics", **columns_of(command.rows)))

    async def roll_up_statistics(self, command: c.RollUpStatistics) -> int:
        await self._db.run("set_rolled", span=command.span, until=command.until)
        await self._db.run("prune_node_reports", before=command.reports_before)
        first_at = await self._db.value("get_bucket_to_roll_up", span=command.span, until=command.until)
        if first_at is None:
            return 0
        since, until = bounds(first_at, command.into, command.until)
        rows = read_rows(
            await self._db.rows("list_to_roll_up", span=command.span, since=since, until=until, limit=command.limit)
        )
        if command.into is not None:
            await self._merge(rows, command.into, since)
        await self._db.run("remove_statistics", **columns_of(rows))
        return len(rows)

    async def _merge(self, rows: list[StatisticsRow], into: int, bucket_at: int) -> None:
        keys = sorted({row.key for row in rows} | {(OTHERS, row.type, "") for row in rows})
        tenants, types, subjects = (list(column) for column in zip(*keys, strict=True))
        existing = read_rows(
            await self._db.rows(
                "list_rolled", tenants=tenants, types=types, subjects=subjects, into=into, bucket_at=bucket_at
            )
        )
        room = MOST_ROLLED_KEYS - await self._db.value("count_bucket", span=into, bucket_at=bucket_at)
        await self._db.run("put_rolled", **columns_of(roll_up(rows, existing, into, room)))

    async def recount_jobs(self, command: c.RecountJobs) -> int:
        await self._db.run("lock_recount")
        return len(await self._db.rows("recount_jobs"))

    async def report_node(self, command: c.ReportNode) -> None:
        await self._db.run("report_node", node=command.node, now=command.now, facts=text_of(command.facts))
