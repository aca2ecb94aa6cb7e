"""Housekeeping commands: prune what is old, trim a tenant's history, and sweep rows that no index finds by age, such as
jobs that ended long ago, limits that are full again and totals that are zero."""

from __future__ import annotations

from collections import Counter

from duetime.domain import commands as c
from duetime.domain.audit import check_pruned, sweep_entries
from duetime.domain.capacity import loads
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY
from duetime.domain.limits import MICRO
from duetime.domain.subscriptions import EVENT_TAG
from duetime.store.postgres.partitions import drop_day, list_days
from duetime.store.postgres.statements import Statements
from duetime.store.trimming import UNINDEXED, choose_to_trim, pruned_by_age


class HousekeepingCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def prune(self, command: c.Prune) -> int:
        by_age = min(command.before, command.skips_before)
        count = await drop_day(self._db, by_age)
        if not count:
            count = await self._prune_page(await self._row_by_row_before(command.before, by_age), command.limit)
        others = pruned_by_age(command, count)
        removed = [await self._db.remove(block, before=at, limit=command.limit) for block, at in others.items()]
        await self._db.run("prune_commits", limit=command.limit)
        return max(count, *removed)

    async def _row_by_row_before(self, before: int, by_age: int) -> int:
        """Returns the instant before which rows are removed one by one; spares a day that is soon dropped whole."""
        if before > by_age:  # by size: only the oldest rows go
            return before
        today = by_age // DAY
        return today * DAY if today in await list_days(self._db.connection) else before

    async def _prune_page(self, before: int, limit: int) -> int:
        count = 0
        for tenant, state, day, number in await self._db.rows("prune_executions", before=before, limit=limit):
            self._db.moved[tenant, state, day] -= number
            count += number
        return count

    async def sweep_jobs(self, command: c.SweepJobs) -> c.Swept:
        page = await self._db.row(
            "lock_to_sweep", after=command.after_job_id, limit=command.limit, before=command.before,
            delivered_before=command.delivered_before, tag=EVENT_TAG,
        )  # fmt: skip
        assert page is not None
        delivered, over = page["delivered"] or [], page["jobs"] or []
        if delivered:
            for tenant, state, day, count in await self._db.rows("sweep_history", jobs=delivered):
                self._db.moved[tenant, state, day] -= count
        jobs = sorted({*delivered, *over})
        rows = await self._db.rows("sweep_jobs", jobs=jobs, tag=EVENT_TAG) if jobs else []
        if rows:
            self._db.make_room(loads([row["tenant"] for row in rows], [row["size"] for row in rows], -1))
            for (tenant, status), number in Counter((row["tenant"], row["status"]) for row in rows).items():
                self._db.count_jobs(tenant, status, None, number)
            removed = [(row["id"], row["tenant"]) for row in rows if not row["is_notification"]]
            self._db.pending.entries.extend(sweep_entries(removed, command.now))
        return c.Swept(len(rows), page["last"] if page["number"] == command.limit else None)

    async def sweep_limits(self, command: c.SweepLimits) -> c.SweptRows:
        tenant, user_id, name = command.after
        row = await self._db.row(
            "sweep_limits", tenant=tenant, user_id=user_id, name=name, before=command.before * MICRO,
            limit=command.limit,
        )  # fmt: skip
        if row is None:
            return c.SweptRows(0, None)
        last = (row["tenant"], row["user_id"], row["name"])
        return c.SweptRows(row["removed"], last if row["number"] == command.limit else None)

    async def sweep_counters(self, command: c.SweepCounters) -> c.SweptRows:
        tenant, name, day = command.after
        if not tenant:
            await self._db.run("prune_job_totals", limit=command.limit)
        row = await self._db.row(
            "sweep_counters", tenant=tenant, name=name, day=day, before=command.before // DAY, limit=command.limit
        )
        if row is None:
            return c.SweptRows(0, None)
        last = (row["tenant"], row["name"], row["day"])
        return c.SweptRows(row["removed"], last if row["number"] == command.limit else None)

    async def trim_history(self, command: c.TrimHistory) -> c.Trimmed:
        block = "list_to_trim_of_default" if command.tenant == UNINDEXED else "list_to_trim"
        at = instant_of(command.after)
        seen = await self._db.rows(block, tenant=command.tenant, at=at, after=command.after, look=command.look)
        chosen, last, is_end = choose_to_trim([(str(id), may_go) for id, may_go in seen], command)
        if is_end and len(chosen) < command.number:
            left = command.number - len(chosen)
            chosen += [
                str(row[0]) for row in await self._db.rows("list_dead_to_trim", tenant=command.tenant, number=left)
            ]
        removed = 0
        if chosen:
            ats = [instant_of(execution_id) for execution_id in chosen]
            for tenant, state, day, count in await self._db.rows("trim_executions", ids=chosen, ats=ats):
                self._db.moved[tenant, state, day] -= count
                removed += count
        return c.Trimmed(removed, last, is_end)

    async def prune_audit(self, command: c.PruneAudit) -> int:
        found = await self._db.value("lock_audit_link", chain=command.chain, link=command.link)
        if found != command.hash:
            pruned = await self._db.value("get_audit_checkpoint", chain=command.chain)
            check_pruned(command.chain, command.link, found, pruned)
            return 0
        return await self._db.remove(
            "prune_audit", chain=command.chain, link=command.link, hash=command.hash, now=command.now
        )
