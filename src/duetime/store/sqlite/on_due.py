"""Commands that create executions: fire, manual executions, redrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from duetime.domain import audit, overlap
from duetime.domain import commands as c
from duetime.domain.errors import Conflict, no_job
from duetime.domain.plan import NewExecution, TimerMove
from duetime.domain.states import State, Trigger
from duetime.domain.stored_jobs import check_run
from duetime.store.decoding import read_target
from duetime.store.sqlite.statements import Statements, page

# Ids of skipped executions, ids of held executions, and ids of running executions to stop.
_Overlaps = tuple[frozenset[str], frozenset[str], tuple[str, ...]]
_NO_OVERLAPS: _Overlaps = (frozenset(), frozenset(), ())

_tenant = attrgetter("tenant")


def _without(executions: Sequence[NewExecution], ids: frozenset[str]) -> tuple[Sequence[NewExecution], str]:
    """Returns the executions that are not among `ids`, and their page."""
    others = tuple(execution for execution in executions if execution.execution_id not in ids)
    return others, page(others)


class DueCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def fire(self, command: c.Fire) -> c.Fired:
        self._db.check_node(command.node)
        if command.epochs:
            self._db.check_epochs("get_stale_epoch", epochs=page(command.epochs))
        stale: frozenset[str] = frozenset()
        if not self._move_timers(command.moves):
            stale = frozenset(row[0] for row in self._db.rows("fire_stale", moves=page(command.moves)))
            self._move_timers(tuple(move for move in command.moves if move.job_id not in stale))
        executions = (
            tuple(execution for execution in command.executions if execution.job_id not in stale)
            if stale
            else command.executions
        )
        rows = page(executions)  # encoded once: two statements read it
        skipped, held, to_cancel = self._settle_overlaps(command, executions, rows) if executions else _NO_OVERLAPS
        special = skipped | held
        free, rows = _without(executions, special) if special else (executions, rows)
        state = State.RUNNING if command.claim else State.QUEUED
        decided = self._insert_executions(
            free, state, rows, node=command.node if command.claim else None, attempt=int(command.claim)
        )
        not_run = overlap.NotRun(skipped, held, decided)
        if special or decided:
            self._db.uncount(not_run.uncounted(executions, command.moves))
            self._db.run("complete_jobs", jobs=page(not_run.jobs(executions)))
        self._db.add_skips([skip for skip in command.skips if skip.job_id not in stale], command.now)
        return c.Fired(stale, not_run.ids, to_cancel, not_run.skipped)

    def _move_timers(self, moves: Sequence[TimerMove]) -> bool:
        """Moves the timers. Returns False and moves none if one has changed since it was planned."""
        self._db.connection.execute("SAVEPOINT moves")
        self._db.run("fire_timers", moves=page(moves))
        moved = self._db.connection.changes() == len(moves)
        if not moved:
            self._db.connection.execute("ROLLBACK TO moves")
        self._db.connection.execute("RELEASE moves")
        return moved

    def _settle_overlaps(self, command: c.Fire, executions: Sequence[NewExecution], rows: str) -> _Overlaps:
        """Writes the executions that overlap others of their job, as its policy says. Mostly there are none."""
        overlapping = {row[0] for row in self._db.rows("fire_overlapping", executions=rows)}
        if not overlapping:
            return _NO_OVERLAPS
        together = [execution for execution in executions if execution.execution_id in overlapping]
        jobs = page(list({execution.job_id for execution in together}))
        opened = self._db.rows("list_open_of_page", jobs=jobs, most=overlap.MOST_WAITING)
        found = {job_id: overlap.Open(bool(is_open), waiting) for job_id, is_open, waiting in opened}
        _, held, skipped, replaced = overlap.settle(together, found)
        to_cancel = self._cancel_open(replaced, command.now)
        self._insert_executions(skipped, State.SKIPPED, page(skipped), reason="overlap", ended_at=command.now)
        self._insert_executions(held, State.QUEUED, page(held), held=1)
        return overlap.ids_of(skipped), overlap.ids_of(held), to_cancel

    def _cancel_open(self, jobs: Sequence[str], now: int) -> tuple[str, ...]:
        """Cancels all open executions of these jobs. Returns the running ones, which have to be stopped."""
        if not jobs:
            return ()
        rows = self._db.rows("list_open_of_jobs", jobs=page(jobs))
        ids = page([execution_id for execution_id, _ in rows])
        before = self._db.states(ids)
        self._db.run("cancel_waiting_by_id", ids=ids, reason="replaced by a newer run", now=now)
        self._db.count_change(before, self._db.states(ids))
        self._db.run("request_cancel", ids=ids)
        return tuple(execution_id for execution_id, state in rows if state == State.RUNNING)

    def _insert_executions(
        self, executions: Sequence[NewExecution], state: State, rows: str, *, reason: str | None = None, held: int = 0,
        node: int | None = None, attempt: int = 0, ended_at: int | None = None,
    ) -> frozenset[str]:  # fmt: skip
        """Writes executions; `rows` is `page(executions)`. Returns the ids whose instant has one already.

        That happens after a clock was set back, for example.
        """
        if not executions:
            return frozenset()
        values = {
            "state": state, "reason": reason, "held": held, "node": node, "attempt": attempt, "ended_at": ended_at
        }  # fmt: skip
        self._db.connection.execute("SAVEPOINT fires")
        self._db.run("fire_executions", executions=rows, **values)
        decided: frozenset[str] = frozenset()
        if self._db.connection.changes() != len(executions):
            # After the insert, old and new rows look the same: undo the page, find the old ones, write the others.
            self._db.connection.execute("ROLLBACK TO fires")
            decided = frozenset(row[0] for row in self._db.rows("list_decided", executions=rows))
            executions = [execution for execution in executions if execution.execution_id not in decided]
            self._db.run("fire_executions", executions=page(executions), **values)
            if self._db.connection.changes() != len(executions):
                raise Conflict("an execution's id is taken; the page is planned again")
        self._db.connection.execute("RELEASE fires")
        self._db.count({(tenant, str(state)): number for tenant, number in Counter(map(_tenant, executions)).items()})
        return decided

    def add_execution(self, command: c.AddExecution) -> str:
        row = self._db.row("get_job_for_execution", job=command.job_id, tenant=command.tenant)
        if row is None:
            raise no_job(command.job_id)
        status, spec = row
        check_run(command.job_id, status)
        priority, endpoint = read_target(spec, command.tenant)
        execution = (command.execution_id, command.job_id, priority, endpoint, command.now)
        self._add_executions(command.now, command.tenant, command.trigger, [execution])
        self._db.note(command.audit)
        return command.execution_id

    def redrive(self, command: c.Redrive) -> list[tuple[str, str]]:
        pairs = dict(command.pairs)  # an id given twice is redriven once
        rows = self._db.rows("list_redrivable", pairs=page(list(pairs.items())), tenant=command.tenant)
        driven = [(dead_id, new_id) for dead_id, new_id, *_ in rows]
        if rows:
            executions = [
                (new_id, job_id, *read_target(spec, command.tenant), command.due_at(number))
                for number, (_, new_id, job_id, spec) in enumerate(rows)
            ]
            self._add_executions(command.now, command.tenant, Trigger.RETRY, executions)
            self._db.run("clear_dead", ids=page([dead_id for dead_id, _ in driven]))
            self._db.note(command.audit, None, audit.redriven(driven))
        return driven

    def _add_executions(
        self, now: int, tenant: str, trigger: Trigger, executions: Sequence[tuple[str, str, int, int, int]]
    ) -> None:
        """`executions` are (execution id, job id, priority, endpoint, due at)."""
        self._db.run("add_executions", executions=page(executions), tenant=tenant, now=now, trigger=trigger)
        self._db.count({(tenant, State.QUEUED): len(executions)})
