"""Housekeeping commands: prune what is old, trim a tenant's history, and sweep rows that no index finds by age, such as
jobs that ended long ago, limits that are full again and totals that are zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from duetime.domain import commands as c
from duetime.domain.audit import PROMOTED, check_pruned, sweep_entries
from duetime.domain.capacity import loads
from duetime.domain.ids import make_id
from duetime.domain.limits import MICRO
from duetime.domain.subscriptions import EVENT_TAG
from duetime.store.sqlite.statements import Statements, page
from duetime.store.trimming import UNINDEXED, choose_to_trim, pruned_by_age


class HousekeepingCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def prune(self, command: c.Prune) -> int:
        before = make_id(max(command.before, 0), bytes(10))
        ids = self._db.value("list_prunable", before=before, limit=command.limit)
        count = self._db.remove_executions(ids) if ids is not None else 0
        others = pruned_by_age(command, count)
        return max(count, *(self._db.remove(block, before=at, limit=command.limit) for block, at in others.items()))

    def sweep_jobs(self, command: c.SweepJobs) -> c.Swept:
        seen = self._db.row("list_swept_page", after=command.after_job_id, limit=command.limit)
        assert seen is not None
        last, number = seen
        if not number:
            return c.Swept(0, None)
        here = {"after": command.after_job_id, "last": last, "tag": EVENT_TAG}
        delivered = self._db.rows("list_delivered", before=command.delivered_before, **here)
        if delivered:
            ids = self._db.value("list_history", jobs=page([row[0] for row in delivered]))
            if ids is not None:
                self._db.remove_executions(ids)
        over = self._db.rows("list_to_sweep", before=command.before, **here)
        rows = list({row[0]: row for row in delivered + over}.values())
        if rows:
            self._remove(rows, command.now)
        return c.Swept(len(rows), last if number == command.limit else None)

    def _remove(self, rows: Sequence[tuple[Any, ...]], now: int) -> None:
        ids = page([row[0] for row in rows])
        for name in ("sweep_links", "drop_watched", "sweep_timers", "sweep_jobs"):
            self._db.run(name, jobs=ids)
        self._db.make_room(loads([row[1] for row in rows], [row[2] for row in rows], -1))
        for (tenant, status), number in Counter((row[1], row[4]) for row in rows).items():
            self._db.count_jobs(tenant, status, None, number)
        removed = [(job_id, tenant) for job_id, tenant, _, is_notification, _ in rows if not is_notification]
        self._db.entries.extend(sweep_entries(removed, now))

    def sweep_limits(self, command: c.SweepLimits) -> c.SweptRows:
        tenant, user_id, name = command.after
        here = {"tenant": tenant, "user_id": user_id, "name": name}
        row = self._db.row("get_last_limit", limit=command.limit, **here)
        if row is None:
            return c.SweptRows(0, None)
        *last, number = row
        until = dict(zip(("last_tenant", "last_user", "last_name"), last, strict=True))
        removed = self._db.remove("sweep_limits", before=command.before * MICRO, **here, **until)
        return c.SweptRows(removed, (last[0], last[1], last[2]) if number == command.limit else None)

    def sweep_counters(self, command: c.SweepCounters) -> c.SweptRows:
        """(SQLite has one total a name; PostgreSQL has one a name and day.)"""
        tenant, name, _ = command.after
        if not tenant:
            self._db.run("prune_job_totals", limit=command.limit)
        row = self._db.row("get_last_counter", tenant=tenant, name=name, limit=command.limit)
        if row is None:
            return c.SweptRows(0, None)
        *last, number = row
        removed = self._db.remove("sweep_counters", tenant=tenant, name=name, last_tenant=last[0], last_name=last[1])
        return c.SweptRows(removed, (last[0], last[1], 0) if number == command.limit else None)

    def trim_history(self, command: c.TrimHistory) -> c.Trimmed:
        block = "list_to_trim_of_default" if command.tenant == UNINDEXED else "list_to_trim"
        seen = self._db.rows(block, tenant=command.tenant, after=command.after, look=command.look)
        chosen, last, is_end = choose_to_trim(seen, command)
        if is_end and len(chosen) < command.number:
            dead = self._db.rows("list_dead_to_trim", tenant=command.tenant, number=command.number - len(chosen))
            chosen += [row[0] for row in dead]
        removed = self._db.remove_executions(page(chosen)) if chosen else 0
        return c.Trimmed(removed, last, is_end)

    def prune_audit(self, command: c.PruneAudit) -> int:
        found = self._db.value("get_audit_link", link=command.link) if command.chain == PROMOTED else None
        if found != command.hash:
            pruned = self._db.value("get_audit_checkpoint", chain=command.chain)
            check_pruned(command.chain, command.link, found, pruned)
            return 0
        self._db.run("set_audit_checkpoint", chain=command.chain, link=command.link, hash=command.hash, now=command.now)
        self._db.run("prune_audit_links", link=command.link)
        return self._db.remove("prune_audit", link=command.link)
