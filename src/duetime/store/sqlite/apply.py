"""Commands to SQL. Runs on the writer's thread, inside its transaction; each command in a savepoint of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

import apsw
import msgspec

from duetime.domain import commands as c
from duetime.domain.errors import (
    Conflict,
    DuetimeError,
    IdempotencyKeyReused,
    NotFound,
    PreconditionFailed,
    StaleWrite,
)
from duetime.domain.execution import Attempted, Run
from duetime.domain.ids import endpoint_of, make_id
from duetime.domain.job import JobStatus
from duetime.domain.plan import PlannedRun, TimerMove
from duetime.domain.states import OPEN, State, Trigger
from duetime.store.sqlite.blocks import load_blocks

_encode = msgspec.json.Encoder().encode
_decode_runs = msgspec.json.Decoder(list[Run]).decode
_JOBS = "jobs"


def page(rows: object) -> str:
    """Rows as one JSON parameter. (Bytes would be taken for SQLite's own binary JSON.)"""
    return _encode(rows).decode()


class Applier:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = load_blocks("commands.sql")
        self._run("create_finishing")
        self._apply: dict[type[c.Command], Callable[[Any], Any]] = {
            c.CreateJobs: self._create_jobs,
            c.ChangeJob: self._change_job,
            c.PauseJob: self._pause_job,
            c.ResumeJob: self._resume_job,
            c.CancelJob: self._cancel_job,
            c.PurgeJob: self._purge_job,
            c.Fire: self._fire,
            c.AddRun: self._add_run,
            c.Claim: self._claim,
            c.Finish: self._finish,
            c.Release: self._release,
            c.CancelExecution: self._cancel_execution,
            c.Redrive: self._redrive,
            c.StartNode: self._start_node,
            c.StopNode: self._stop_node,
            c.Prune: self._prune,
        }

    def apply(self, command: c.Command) -> Any:
        """The command's answer, or the error that refuses it; then it has changed nothing."""
        self._connection.execute("SAVEPOINT command")
        try:
            answer = self._apply[type(command)](command)
        except DuetimeError as error:
            self._connection.execute("ROLLBACK TO command")
            answer = error
        except (apsw.ConstraintError, ValueError, OverflowError) as error:
            # What is wrong is this command, not the database: whoever shares its commit is not to suffer for it.
            self._connection.execute("ROLLBACK TO command")
            answer = Conflict(f"this can't be written as it is: {error}")
        self._connection.execute("RELEASE command")
        return answer

    def create_together(self, creates: Sequence[c.Command]) -> bool:
        """Many creates as few pages; False, and nothing changed, if one of them can't be written."""
        self._connection.execute("SAVEPOINT command")
        try:
            # A page for each instant: what a job is must not depend on who shared its commit.
            for now, page_of in groupby(cast("Sequence[c.CreateJobs]", creates), key=attrgetter("now")):
                self._create_jobs(c.CreateJobs(now, tuple(job for create in page_of for job in create.jobs)))
        except (DuetimeError, ValueError, OverflowError):
            self._connection.execute("ROLLBACK TO command")
            self._connection.execute("RELEASE command")
            return False
        self._connection.execute("RELEASE command")
        return True

    # Jobs

    def _create_jobs(self, command: c.CreateJobs) -> str | None:
        record = command.idempotency
        if record is not None:
            stored = self._row("get_idempotency_key", tenant=record.tenant, key=record.key)
            if stored is not None:
                if stored[0] != record.fingerprint:
                    raise IdempotencyKeyReused(
                        f"Idempotency-Key '{record.key}' was used with another body; send a new key for a new request"
                    )
                return cast(str, stored[1])
        jobs = page(command.jobs)
        try:
            self._run("create_jobs", jobs=jobs, now=command.now)
        except apsw.ConstraintError:
            raise _key_taken(command.jobs[0].key if len(command.jobs) == 1 else None) from None
        # A page of its own, without the specs: the wide rows would be parsed a second time.
        timers = [(job.job_id, job.tenant, job.shard, job.recurs, job.due_at) for job in command.jobs]
        self._run("create_timers", timers=page(timers))
        self._count(Counter((job.tenant, _JOBS) for job in command.jobs))
        if record is not None:
            self._run(
                "add_idempotency_key", tenant=record.tenant, key=record.key, fingerprint=record.fingerprint,
                response=record.response, now=command.now,
            )  # fmt: skip
        return None

    def _change_job(self, command: c.ChangeJob) -> int:
        status, version, _, _ = self._timer(command.tenant, command.job_id)
        if version != command.version:
            raise PreconditionFailed(
                f"job {command.job_id} has version {version}, not {command.version}; read it again and repeat"
            )
        if status == JobStatus.CANCELLED:
            raise Conflict(f"job {command.job_id} is CANCELLED and can't be changed; create a new one")
        try:
            self._run(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, spec=page(command.spec),
            )  # fmt: skip
        except apsw.ConstraintError:
            raise _key_taken(command.key) from None
        revived = status == JobStatus.COMPLETED and command.due_at is not None
        self._run(
            "change_timer", job=command.job_id, recurs=command.recurs, due_at=command.due_at, restart=revived,
            status=JobStatus.PENDING if revived else status,
        )  # fmt: skip
        return cast(int, version) + 1

    def _pause_job(self, command: c.PauseJob) -> JobStatus:
        status, _, due_at, _ = self._timer(command.tenant, command.job_id)
        if status == JobStatus.PAUSED:
            return JobStatus.PAUSED
        if status != JobStatus.PENDING:
            raise Conflict(f"job {command.job_id} is {status}; only a PENDING job can be paused")
        self._run("set_timer", job=command.job_id, status=JobStatus.PAUSED, due_at=None, resume_at=due_at)
        self._run(
            "set_pause",
            job=command.job_id,
            by=command.by,
            at=command.now,
            reason=command.reason,
            now=command.now,
        )
        return JobStatus.PAUSED

    def _resume_job(self, command: c.ResumeJob) -> JobStatus:
        status, version, _, _ = self._timer(command.tenant, command.job_id)
        if status != JobStatus.PAUSED:
            raise Conflict(f"job {command.job_id} is {status}; only a PAUSED job can be resumed")
        if version != command.version:
            raise Conflict(f"job {command.job_id} was changed meanwhile; read it again and repeat")
        self._run("set_timer", job=command.job_id, status=JobStatus.PENDING, due_at=command.due_at, resume_at=None)
        self._run("set_pause", job=command.job_id, by=None, at=None, reason=None, now=command.now)
        if command.skipped is not None:
            self._run("add_skips", skips=page([command.skipped]), now=command.now)
        self._run("complete_jobs", jobs=page([command.job_id]))
        return JobStatus(self._timer(command.tenant, command.job_id)[0])

    def _cancel_job(self, command: c.CancelJob) -> list[str]:
        status, _, _, _ = self._timer(command.tenant, command.job_id)
        if status != JobStatus.CANCELLED:
            self._run("set_timer", job=command.job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
        waiting = self._states_of(command.job_id, {State.QUEUED, State.RETRYING})
        self._run("cancel_waiting", job=command.job_id, now=command.now)
        moved = {(command.tenant, state): -count for state, count in waiting.items()}
        self._count({**moved, (command.tenant, State.CANCELLED): sum(waiting.values())})
        self._run("request_cancel_of_running", job=command.job_id)
        return [row[0] for row in self._rows("list_running_of_job", job=command.job_id)]

    def _purge_job(self, command: c.PurgeJob) -> None:
        self._timer(command.tenant, command.job_id)
        if self._row("list_running_of_job", job=command.job_id) is not None:
            raise Conflict(f"job {command.job_id} has a running execution; cancel it first, then purge")
        states = self._states_of(command.job_id, set(State))
        for name in ("purge_attempts", "purge_executions", "purge_skips", "purge_timer", "purge_job"):
            self._run(name, job=command.job_id)
        self._count({(command.tenant, state): -count for state, count in states.items()})
        self._count({(command.tenant, _JOBS): -1})

    # Firing

    def _fire(self, command: c.Fire) -> c.Fired:
        self._check_node(command.node)
        stale: frozenset[str] = frozenset()
        if not self._move_timers(command.moves):
            stale = frozenset(row[0] for row in self._rows("fire_stale", moves=page(command.moves)))
            self._move_timers(tuple(move for move in command.moves if move.job_id not in stale))
        runs = tuple(run for run in command.runs if run.job_id not in stale) if stale else command.runs
        special, to_cancel = self._settle_overlaps(command, runs) if runs else (frozenset[str](), ())
        free = tuple(run for run in runs if run.execution_id not in special) if special else runs
        state = State.RUNNING if command.claim else State.QUEUED
        decided = self._insert_runs(
            free, state, node=command.node if command.claim else None, attempt=int(command.claim)
        )
        if special or decided:
            job_ids = {run.job_id for run in runs if run.execution_id in special or run.execution_id in decided}
            self._release_held(job_ids)  # one that was to follow an instant decided long ago has nobody to wait for
            self._run("complete_jobs", jobs=page(list(job_ids)))
        if skips := [skip for skip in command.skips if skip.job_id not in stale]:
            self._run("add_skips", skips=page(skips), now=command.now)
        return c.Fired(stale, special | decided, to_cancel)

    def _move_timers(self, moves: Sequence[TimerMove]) -> bool:
        """False, and nothing moved, if one of them is not as it was planned from."""
        self._connection.execute("SAVEPOINT moves")
        self._run("fire_timers", moves=page(moves))
        moved = self._connection.changes() == len(moves)
        if not moved:
            self._connection.execute("ROLLBACK TO moves")
        self._connection.execute("RELEASE moves")
        return moved

    def _settle_overlaps(self, command: c.Fire, runs: Sequence[PlannedRun]) -> tuple[frozenset[str], tuple[str, ...]]:
        """Write the runs whose job has an open execution as their policy says. Mostly there are none."""
        overlapping = {row[0]: (row[1], row[2]) for row in self._rows("fire_overlapping", runs=page(runs))}
        if not overlapping:
            return frozenset(), ()
        skipped, held, replacing = [], [], []
        for run in runs:
            if run.execution_id not in overlapping:
                continue
            choice, has_held = overlapping[run.execution_id]
            if choice == "cancel":
                replacing.append(run)
            elif choice == "skip" or (choice == "hold_one" and has_held):
                skipped.append(run)
            else:
                held.append(run)
        self._insert_runs(skipped, State.SKIPPED, reason="overlap", ended_at=command.now)
        self._insert_runs(held, State.QUEUED, held=1)
        to_cancel = self._cancel_open(replacing, command.now)
        special = overlapping.keys() - {run.execution_id for run in replacing}
        return frozenset(special), to_cancel

    def _cancel_open(self, replacing: Sequence[PlannedRun], now: int) -> tuple[str, ...]:
        if not replacing:
            return ()
        rows = self._rows("list_open_of_runs", runs=page(replacing))
        ids = page([execution_id for execution_id, _ in rows])
        before = self._states(ids)
        self._run("cancel_waiting_by_id", ids=ids, reason="replaced by a newer run", now=now)
        self._count_change(before, self._states(ids))
        self._run("request_cancel", ids=ids)
        return tuple(execution_id for execution_id, state in rows if state == State.RUNNING)

    def _insert_runs(
        self, runs: Sequence[PlannedRun], state: State, *, reason: str | None = None, held: int = 0,
        node: int | None = None, attempt: int = 0, ended_at: int | None = None,
    ) -> frozenset[str]:  # fmt: skip
        """Answers the ids of those whose instant has an execution already (a clock that went back, say)."""
        if not runs:
            return frozenset()
        values = {
            "state": state, "reason": reason, "held": held, "node": node, "attempt": attempt, "ended_at": ended_at
        }  # fmt: skip
        self._connection.execute("SAVEPOINT runs")
        self._run("fire_runs", runs=page(runs), **values)
        decided: frozenset[str] = frozenset()
        if self._connection.changes() != len(runs):
            # Which rows were there before can't be told from the rows: undo the page, look, and write the rest.
            self._connection.execute("ROLLBACK TO runs")
            decided = frozenset(row[0] for row in self._rows("fire_decided", runs=page(runs)))
            runs = [run for run in runs if run.execution_id not in decided]
            self._run("fire_runs", runs=page(runs), **values)
        self._connection.execute("RELEASE runs")
        self._count(Counter((run.tenant, str(state)) for run in runs))
        return decided

    def _add_run(self, command: c.AddRun) -> str:
        row = self._row("get_job_for_run", job=command.job_id, tenant=command.tenant)
        if row is None:
            raise _no_job(command.job_id)
        tenant, priority, url = row
        self._run(
            "add_run", id=command.execution_id, job=command.job_id, tenant=tenant, now=command.now,
            trigger=command.trigger, priority=5 if priority is None else priority, endpoint=endpoint_of(url),
        )  # fmt: skip
        self._count({(tenant, State.QUEUED): 1})
        return command.execution_id

    # Running

    def _claim(self, command: c.Claim) -> list[Run]:
        self._check_node(command.node)
        row = self._row("list_claimable", now=command.now, limit=command.limit, full=page(command.full_endpoints))
        if row is None or row[0] is None:
            return []
        ids = row[0]
        before = self._states(ids)
        self._run("claim", ids=ids, node=command.node)
        self._count_change(before, self._states(ids))
        claimed = self._row("list_claimed", ids=ids)
        return _decode_runs(claimed[0]) if claimed and claimed[0] else []

    def _finish(self, command: c.Finish) -> list[str]:
        attempts = command.attempts
        refused: set[tuple[Any, ...]] = set()
        if not self._finish_executions(attempts):
            refused = set(self._rows("finish_refused"))
            # By claim, not by id: the page may hold the right result of an execution beside a stale one, or twice.
            by_claim = {(a.execution_id, a.attempt, a.token): a for a in attempts}
            attempts = tuple(attempt for claim, attempt in by_claim.items() if claim not in refused)
            self._finish_executions(attempts)
        if attempts:
            self._run("finish_attempts", node=command.node)
            self._run("finish_timers")
            moved = Counter((attempt.tenant, str(attempt.state)) for attempt in attempts)
            moved.subtract(Counter((attempt.tenant, str(State.RUNNING)) for attempt in attempts))
            self._count(moved)
            self._release_held({attempt.job_id for attempt in attempts if attempt.state not in OPEN})
        return [execution_id for execution_id, _, _ in refused]

    def _finish_executions(self, attempts: Sequence[Attempted]) -> bool:
        """False, and nothing written, if one of them is refused."""
        self._run("clear_finishing")
        self._run("read_finishing", attempts=page(attempts))
        self._connection.execute("SAVEPOINT finishes")
        self._run("finish_executions")
        written = self._connection.changes() == len(attempts)
        if not written:
            self._connection.execute("ROLLBACK TO finishes")
        self._connection.execute("RELEASE finishes")
        return written

    def _release_held(self, job_ids: Iterable[str]) -> None:
        if self._row("has_held") is not None:
            self._run("release_held", jobs=page(list(job_ids)))

    def _release(self, command: c.Release) -> None:
        ids = page([run.execution_id for run in command.runs])
        before = self._states(ids)
        self._run("release_runs", runs=page(command.runs), now=command.now)
        self._count_change(before, self._states(ids))

    def _cancel_execution(self, command: c.CancelExecution) -> State:
        row = self._row("get_execution_state", id=command.execution_id, tenant=command.tenant)
        if row is None:
            raise NotFound(f"there is no execution {command.execution_id}")
        state, job_id = State(row[0]), row[1]
        if state not in OPEN:
            raise Conflict(f"execution {command.execution_id} is {state}; what has ended can't be cancelled")
        ids = page([command.execution_id])
        if state is State.RUNNING:
            self._run("request_cancel", ids=ids)
            return State.RUNNING
        self._run("cancel_waiting_by_id", ids=ids, reason="cancelled", now=command.now)
        self._count({(command.tenant, state): -1, (command.tenant, State.CANCELLED): 1})
        self._release_held([job_id])
        self._run("complete_jobs", jobs=page([job_id]))
        return State.CANCELLED

    def _redrive(self, command: c.Redrive) -> int:
        pairs = {dead_id: (dead_id, new_id) for dead_id, new_id in command.pairs}  # one named twice is driven once
        rows = self._rows("list_redrivable", pairs=page(list(pairs.values())), tenant=command.tenant)
        for job_id, dead_id, new_id in rows:
            self._add_run(c.AddRun(command.now, command.tenant, job_id, new_id, Trigger.RETRY))
            self._run("clear_dead", id=dead_id)
        return len(rows)

    # Nodes and housekeeping

    def _check_node(self, node: int) -> None:
        row = self._row("get_node", node=node)
        if row is None or not row[0]:
            raise StaleWrite(f"node {node} is void: another process has taken its place")

    def _start_node(self, command: c.StartNode) -> int:
        self._run("void_nodes", name=command.name, now=command.now)
        row = self._row("start_node", name=command.name, now=command.now)
        assert row is not None
        return cast(int, row[0])

    def _stop_node(self, command: c.StopNode) -> None:
        self._run("stop_node", node=command.node, now=command.now)

    def _prune(self, command: c.Prune) -> int:
        before = make_id(max(command.before, 0), bytes(10))
        row = self._row("list_prunable", before=before, limit=command.limit)
        count = 0
        if row is not None and row[0] is not None:
            ids = row[0]
            states = self._states(ids)
            self._run("prune_attempts", ids=ids)
            self._run("prune_executions", ids=ids)
            self._count({key: -number for key, number in states.items()})
            count = sum(states.values())
        self._run("prune_skips", before=command.skips_before, limit=command.limit)
        self._run("prune_idempotency_keys", before=command.keys_before, limit=command.limit)
        return count

    # Pieces

    def _run(self, block: str, **values: Any) -> None:
        self._connection.execute(self._sql[block], values)

    def _rows(self, block: str, **values: Any) -> list[tuple[Any, ...]]:
        return cast("list[tuple[Any, ...]]", self._connection.execute(self._sql[block], values).fetchall())

    def _row(self, block: str, **values: Any) -> tuple[Any, ...] | None:
        rows = self._rows(block, **values)
        return rows[0] if rows else None

    def _timer(self, tenant: str, job_id: str) -> tuple[Any, ...]:
        row = self._row("get_timer", job=job_id, tenant=tenant)
        if row is None:
            raise _no_job(job_id)
        return row

    def _states_of(self, job_id: str, wanted: set[State]) -> dict[str, int]:
        return {state: count for state, count in self._rows("count_states_of_job", job=job_id) if state in wanted}

    def _states(self, ids: str) -> dict[tuple[str, str], int]:
        return {(tenant, state): count for tenant, state, count in self._rows("count_states", ids=ids)}

    def _count_change(self, before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> None:
        moved = Counter(after)
        moved.subtract(before)
        self._count(moved)

    def _count(self, deltas: dict[tuple[str, str], int]) -> None:
        """Totals are counters, in the same transaction as what they count."""
        for (tenant, name), delta in deltas.items():
            if delta:
                self._run("add_to_counter", tenant=tenant, name=name, delta=delta)


def _no_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job {job_id}")


def _key_taken(key: str | None) -> Conflict:
    return Conflict(
        f"a job with key '{key}' exists already; change it with PUT /api/v1/jobs/by-key/{key}, or choose another key"
        if key
        else "a job with one of these keys exists already; keys are unique in a tenant"
    )
