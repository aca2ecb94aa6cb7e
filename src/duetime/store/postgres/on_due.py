"""Commands that create executions: fire, manual runs, redrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import asyncpg

from duetime.domain import audit, overlap
from duetime.domain import commands as c
from duetime.domain.errors import StaleEpoch, no_job
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY
from duetime.domain.job import JobStatus
from duetime.domain.plan import PlannedRun, TimerMove
from duetime.domain.states import State, Trigger
from duetime.domain.stored_jobs import check_run
from duetime.store.decoding import read_target
from duetime.store.postgres.columns import columns
from duetime.store.postgres.statements import SlowPathNeeded, Statements


def _columns(runs: Sequence[PlannedRun]) -> dict[str, list[Any]]:
    return {
        "ids": [run.execution_id for run in runs],
        "jobs": [run.job_id for run in runs],
        "tenants": [run.tenant for run in runs],
        "scheduled_ats": [run.scheduled_at for run in runs],
        "triggers": [run.trigger for run in runs],
        "priorities": [run.priority for run in runs],
        "endpoints": [run.endpoint for run in runs],
    }


class DueCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def fire(self, command: c.Fire) -> c.Fired:
        await self._db.check_node(command.node)
        if command.epochs:
            await self._check_epochs(command.epochs)
        stale = await self._move_timers(command.moves) if command.moves else frozenset()
        runs = [run for run in command.runs if run.job_id not in stale] if stale else command.runs
        fired = c.Fired(stale)
        if runs:
            fired = await self._write_runs(command, runs, stale)
        if ended := [m.job_id for m in command.moves if m.next_due_at is None and not m.runs and m.job_id not in stale]:
            await self._db.complete_jobs(ended)
        await self._db.add_skips([skip for skip in command.skips if skip.job_id not in stale], command.now)
        return fired

    async def _check_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        stored = dict(await self._db.rows("list_epochs", shards=[shard for shard, _ in epochs]))
        for shard, epoch in epochs:
            if stored.get(shard, 0) != epoch:
                raise StaleEpoch(shard, epoch, stored.get(shard, 0))

    async def _move_timers(self, moves: Sequence[TimerMove]) -> frozenset[str]:
        """Moves the timers. Returns the jobs that have changed since they were planned; their timers stay."""
        jobs = [move.job_id for move in moves]
        moved = await self._db.value(
            "fire_timers", jobs=jobs, expected=len(moves),
            **columns(
                due_ats=[move.due_at for move in moves], versions=[move.version for move in moves],
                next_due_ats=[move.next_due_at for move in moves], runs=[move.runs for move in moves],
            ),
        )  # fmt: skip
        return frozenset() if moved is None else frozenset(jobs) - frozenset(moved)

    async def _write_runs(self, command: c.Fire, runs: Sequence[PlannedRun], stale: frozenset[str]) -> c.Fired:
        decided, together = await self._insert_runs(command, runs)
        if not decided and not together:
            return c.Fired(stale)
        settled = await self._decide(together) if together else overlap.Settled([], [], [], [])
        to_cancel = await self._settle(command, settled)
        not_run = overlap.NotRun(overlap.ids_of(settled.skipped), overlap.ids_of(settled.held), decided)
        if job_ids := not_run.jobs(runs):
            await self._db.uncount(not_run.uncounted(runs, command.moves))
            await self._db.complete_jobs(job_ids)
        return c.Fired(stale, not_run.ids, to_cancel)

    async def _insert_runs(
        self, command: c.Fire, runs: Sequence[PlannedRun], if_open: str | None = None
    ) -> tuple[frozenset[str], list[PlannedRun]]:
        """Writes the executions without overlap. Returns ids with a decision already, and those that overlap."""
        decided: frozenset[str] = frozenset()
        if self._db.on_slow_path:
            decided = await self._find_decided(runs)
            runs = [run for run in runs if run.execution_id not in decided]
            if not runs:
                return decided, []
        values = _columns(runs)
        ids, jobs = values.pop("ids"), values.pop("jobs")
        values["if_opens"] = [if_open or _if_open(run) for run in runs]
        state = State.RUNNING if command.claim else State.QUEUED
        try:
            # (Skipping existing rows one by one would cost a second lookup for each new row.)
            overlapping = await self._db.rows(
                "fire_runs", ids=ids, jobs=jobs, **columns(**values), state=state, attempt=int(command.claim),
                node=command.node if command.claim else None,
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            if self._db.on_slow_path:
                raise
            raise SlowPathNeeded from None
        together = []
        if overlapping:
            left = {row[0] for row in overlapping}
            together = [run for run in runs if run.execution_id in left]
            runs = [run for run in runs if run.execution_id not in left]
        for (tenant, day), number in Counter([(run.tenant, run.scheduled_at // DAY) for run in runs]).items():
            self._db.moved[tenant, state, day] += number
        return decided, together

    async def _find_decided(self, runs: Sequence[PlannedRun]) -> frozenset[str]:
        """Returns the ids whose instant has a decision already, also by another execution of the page."""
        await self._db.run("lock_timers", jobs=sorted({run.job_id for run in runs}))
        rows = await self._db.rows(
            "list_decided", ids=[run.execution_id for run in runs], jobs=[run.job_id for run in runs],
            scheduled_ats=[run.scheduled_at for run in runs],
        )  # fmt: skip
        first = {(run.job_id, run.scheduled_at): run.execution_id for run in reversed(runs)}
        return frozenset(row[0] for row in rows) | (overlap.ids_of(runs) - frozenset(first.values()))

    async def _decide(self, together: Sequence[PlannedRun]) -> overlap.Settled:
        jobs = sorted({run.job_id for run in together})
        rows = await self._db.rows("list_open_of_page", jobs=jobs, most=overlap.MOST_WAITING)
        return overlap.settle(together, {job_id: overlap.Open(is_open, waiting) for job_id, is_open, waiting in rows})

    async def _settle(self, command: c.Fire, settled: overlap.Settled) -> tuple[str, ...]:
        """Writes overlapping executions as their policy says. Returns the running executions to stop."""
        to_run, held, skipped, replaced = settled
        to_cancel = await self._cancel_open(replaced, command.now) if replaced else ()
        if skipped:
            await self._db.run("skip_runs", **_columns(skipped), reason="overlap", now=command.now)
        if held:
            await self._db.run("hold_runs", **_columns(held))
        for name, some in ((State.SKIPPED, skipped), (State.QUEUED, held)):
            self._db.moved.update((run.tenant, name, run.scheduled_at // DAY) for run in some)
        if to_run:
            await self._insert_runs(command, to_run, if_open="run")
        return to_cancel

    async def _cancel_open(self, replaced: Sequence[str], now: int) -> tuple[str, ...]:
        """Cancels all open executions of these jobs. Returns the running ones, which have to be stopped."""
        opened = await self._db.rows("list_open_of_jobs", jobs=sorted(replaced))
        jobs, ids = [row[0] for row in opened], [row[1] for row in opened]
        await self._db.cancel_waiting(jobs, ids, "replaced by a newer run", now)
        await self._db.run("request_cancel", jobs=jobs, ids=ids)
        return tuple(execution_id for _, execution_id, state in opened if state == State.RUNNING)

    async def add_run(self, command: c.AddRun) -> str:
        row = await self._db.row("get_job_for_run", job=command.job_id, tenant=command.tenant)
        if row is None:
            raise no_job(command.job_id)
        check_run(command.job_id, row["status"])
        run = (command.execution_id, command.job_id, row["spec"], command.now)
        await self._add_runs(command.now, command.tenant, command.trigger, [run])
        self._db.note(command.audit)
        return command.execution_id

    async def redrive(self, command: c.Redrive) -> list[tuple[str, str]]:
        pairs = dict(command.pairs)  # an id given twice is redriven once
        rows = await self._db.rows(
            "lock_redrivable", dead_ids=list(pairs), dead_ats=[instant_of(dead_id) for dead_id in pairs],
            new_ids=list(pairs.values()), tenant=command.tenant,
        )  # fmt: skip
        found = {row["dead_id"]: row for row in rows if row["status"] != JobStatus.CANCELLED}
        driven = [(dead_id, new_id) for dead_id, new_id in pairs.items() if dead_id in found]
        if driven:
            runs = [
                (new_id, found[dead_id]["job"], found[dead_id]["spec"], command.due_at(number))
                for number, (dead_id, new_id) in enumerate(driven)
            ]
            await self._add_runs(command.now, command.tenant, Trigger.RETRY, runs)
            dead_ids = [dead_id for dead_id, _ in driven]
            await self._db.run("clear_dead", ids=dead_ids, ats=[instant_of(dead_id) for dead_id in dead_ids])
            self._db.note(command.audit, None, audit.redriven(driven))
        return driven

    async def _add_runs(
        self, now: int, tenant: str, trigger: Trigger, runs: Sequence[tuple[str, str, str, int]]
    ) -> None:
        """`runs` are (execution id, job id, spec, due at)."""
        if any(instant_of(run[0]) != now for run in runs):
            raise ValueError("an execution's id begins with its instant")  # by which its row is found
        targets = [read_target(spec, tenant) for _, _, spec, _ in runs]
        await self._db.run(
            "add_runs", now=now, tenant=tenant, trigger=trigger, ids=[run[0] for run in runs],
            jobs=[run[1] for run in runs], priorities=[priority for priority, _ in targets],
            endpoints=[endpoint for _, endpoint in targets], due_ats=[run[3] for run in runs],
        )  # fmt: skip
        self._db.moved[tenant, State.QUEUED, now // DAY] += len(runs)


def _if_open(run: PlannedRun) -> str:
    """Returns the policy as fire_runs expects it: it never writes executions that are decided with siblings."""
    return "settle" if run.has_siblings and run.if_open != "run" else run.if_open
