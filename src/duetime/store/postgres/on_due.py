"""Commands that create executions: fire, manual executions, redrive."""

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
from duetime.domain.plan import NewExecution, TimerMove
from duetime.domain.states import State, Trigger
from duetime.domain.stored_jobs import check_run
from duetime.store.decoding import read_target
from duetime.store.postgres.columns import columns
from duetime.store.postgres.statements import SlowPathNeeded, Statements


def _columns(executions: Sequence[NewExecution]) -> dict[str, list[Any]]:
    return {
        "ids": [execution.execution_id for execution in executions],
        "jobs": [execution.job_id for execution in executions],
        "tenants": [execution.tenant for execution in executions],
        "scheduled_ats": [execution.scheduled_at for execution in executions],
        "triggers": [execution.trigger for execution in executions],
        "priorities": [execution.priority for execution in executions],
        "endpoints": [execution.endpoint for execution in executions],
    }


class DueCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def fire(self, command: c.Fire) -> c.Fired:
        await self._db.check_node(command.node)
        if command.epochs:
            await self._check_epochs(command.epochs)
        stale = await self._move_timers(command.moves) if command.moves else frozenset()
        executions = (
            [execution for execution in command.executions if execution.job_id not in stale]
            if stale
            else command.executions
        )
        fired = c.Fired(stale)
        if executions:
            fired = await self._write_executions(command, executions, stale)
        if ended := [
            m.job_id for m in command.moves if m.next_due_at is None and not m.executions and m.job_id not in stale
        ]:
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
                next_due_ats=[move.next_due_at for move in moves], executions=[move.executions for move in moves],
            ),
        )  # fmt: skip
        return frozenset() if moved is None else frozenset(jobs) - frozenset(moved)

    async def _write_executions(
        self, command: c.Fire, executions: Sequence[NewExecution], stale: frozenset[str]
    ) -> c.Fired:
        decided, together = await self._insert_executions(command, executions)
        if not decided and not together:
            return c.Fired(stale)
        settled = await self._decide(together) if together else overlap.Settled([], [], [], [])
        to_cancel = await self._settle(command, settled)
        not_run = overlap.NotRun(overlap.ids_of(settled.skipped), overlap.ids_of(settled.held), decided)
        if job_ids := not_run.jobs(executions):
            await self._db.uncount(not_run.uncounted(executions, command.moves))
            await self._db.complete_jobs(job_ids)
        return c.Fired(stale, not_run.ids, to_cancel, not_run.skipped)

    async def _insert_executions(
        self, command: c.Fire, executions: Sequence[NewExecution], if_open: str | None = None
    ) -> tuple[frozenset[str], list[NewExecution]]:
        """Writes the executions without overlap. Returns ids with a decision already, and those that overlap."""
        decided: frozenset[str] = frozenset()
        if self._db.on_slow_path:
            decided = await self._find_decided(executions)
            executions = [execution for execution in executions if execution.execution_id not in decided]
            if not executions:
                return decided, []
        values = _columns(executions)
        ids, jobs = values.pop("ids"), values.pop("jobs")
        values["if_opens"] = [if_open or _if_open(execution) for execution in executions]
        state = State.RUNNING if command.claim else State.QUEUED
        try:
            # (Skipping existing rows one by one would cost a second lookup for each new row.)
            overlapping = await self._db.rows(
                "fire_executions", ids=ids, jobs=jobs, **columns(**values), state=state, attempt=int(command.claim),
                node=command.node if command.claim else None,
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            if self._db.on_slow_path:
                raise
            raise SlowPathNeeded from None
        together = []
        if overlapping:
            left = {row[0] for row in overlapping}
            together = [execution for execution in executions if execution.execution_id in left]
            executions = [execution for execution in executions if execution.execution_id not in left]
        for (tenant, day), number in Counter(
            [(execution.tenant, execution.scheduled_at // DAY) for execution in executions]
        ).items():
            self._db.moved[tenant, state, day] += number
        return decided, together

    async def _find_decided(self, executions: Sequence[NewExecution]) -> frozenset[str]:
        """Returns the ids whose instant has a decision already, also by another execution of the page."""
        await self._db.run("lock_timers", jobs=sorted({execution.job_id for execution in executions}))
        rows = await self._db.rows(
            "list_decided", ids=[execution.execution_id for execution in executions],
            jobs=[execution.job_id for execution in executions],
            scheduled_ats=[execution.scheduled_at for execution in executions],
        )  # fmt: skip
        first = {
            (execution.job_id, execution.scheduled_at): execution.execution_id for execution in reversed(executions)
        }
        return frozenset(row[0] for row in rows) | (overlap.ids_of(executions) - frozenset(first.values()))

    async def _decide(self, together: Sequence[NewExecution]) -> overlap.Settled:
        jobs = sorted({execution.job_id for execution in together})
        rows = await self._db.rows("list_open_of_page", jobs=jobs, most=overlap.MOST_WAITING)
        return overlap.settle(together, {job_id: overlap.Open(is_open, waiting) for job_id, is_open, waiting in rows})

    async def _settle(self, command: c.Fire, settled: overlap.Settled) -> tuple[str, ...]:
        """Writes overlapping executions as their policy says. Returns the running executions to stop."""
        to_run, held, skipped, replaced = settled
        to_cancel = await self._cancel_open(replaced, command.now) if replaced else ()
        if skipped:
            await self._db.run("skip_executions", **_columns(skipped), reason="overlap", now=command.now)
        if held:
            await self._db.run("hold_executions", **_columns(held))
        for name, some in ((State.SKIPPED, skipped), (State.QUEUED, held)):
            self._db.moved.update((execution.tenant, name, execution.scheduled_at // DAY) for execution in some)
        if to_run:
            await self._insert_executions(command, to_run, if_open="run")
        return to_cancel

    async def _cancel_open(self, replaced: Sequence[str], now: int) -> tuple[str, ...]:
        """Cancels all open executions of these jobs. Returns the running ones, which have to be stopped."""
        opened = await self._db.rows("list_open_of_jobs", jobs=sorted(replaced))
        jobs, ids = [row[0] for row in opened], [row[1] for row in opened]
        await self._db.cancel_waiting(jobs, ids, "replaced by a newer run", now)
        await self._db.run("request_cancel", jobs=jobs, ids=ids)
        return tuple(execution_id for _, execution_id, state in opened if state == State.RUNNING)

    async def add_execution(self, command: c.AddExecution) -> str:
        row = await self._db.row("get_job_for_execution", job=command.job_id, tenant=command.tenant)
        if row is None:
            raise no_job(command.job_id)
        check_run(command.job_id, row["status"])
        execution = (command.execution_id, command.job_id, row["spec"], command.now)
        await self._add_executions(command.now, command.tenant, command.trigger, [execution])
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
            executions = [
                (new_id, found[dead_id]["job"], found[dead_id]["spec"], command.due_at(number))
                for number, (dead_id, new_id) in enumerate(driven)
            ]
            await self._add_executions(command.now, command.tenant, Trigger.RETRY, executions)
            dead_ids = [dead_id for dead_id, _ in driven]
            await self._db.run("clear_dead", ids=dead_ids, ats=[instant_of(dead_id) for dead_id in dead_ids])
            self._db.note(command.audit, None, audit.redriven(driven))
        return driven

    async def _add_executions(
        self, now: int, tenant: str, trigger: Trigger, executions: Sequence[tuple[str, str, str, int]]
    ) -> None:
        """`executions` are (execution id, job id, spec, due at)."""
        if any(instant_of(execution[0]) != now for execution in executions):
            raise ValueError("an execution's id begins with its instant")  # by which its row is found
        targets = [read_target(spec, tenant) for _, _, spec, _ in executions]
        await self._db.run(
            "add_executions", now=now, tenant=tenant, trigger=trigger, ids=[execution[0] for execution in executions],
            jobs=[execution[1] for execution in executions], priorities=[priority for priority, _ in targets],
            endpoints=[endpoint for _, endpoint in targets], due_ats=[execution[3] for execution in executions],
        )  # fmt: skip
        self._db.moved[tenant, State.QUEUED, now // DAY] += len(executions)


def _if_open(execution: NewExecution) -> str:
    """Returns the policy as fire_executions expects it: it never writes executions that are decided with siblings."""
    return "settle" if execution.has_siblings and execution.if_open != "run" else execution.if_open
