"""Log lines of what happens to jobs and executions, made from what the parts emit.

A line holds ids, names, times and kinds of errors: no URL, header, body, response or message, which may hold secrets.
A page costs a few lines and a count by tenant, however many executions it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from duetime.domain.commands import (
    AddExecution,
    CancelExecution,
    CancelJob,
    ChangeJob,
    ClaimExecutions,
    Command,
    CreateJobs,
    Fire,
    Fired,
    PauseJob,
    PurgeJob,
    ResumeJob,
    SweepJobs,
    Swept,
)
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import format_instant
from duetime.domain.log_levels import EXECUTIONS, JOBS, LogLevels
from duetime.domain.sampling import Sampling, trace_id
from duetime.domain.states import State
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.limited_lines import LimitedLines
from duetime.telemetry.unwrapped import applied

Facts = dict[str, object]
Pair = tuple[Claim, AttemptEnd]

# The facts that each line may have, besides time and level. docs/reference/traces-and-logs.md lists the same.
_JOB = ("job_id", "tenant")
_EXECUTION = ("execution_id", "job_id", "tenant")
_END = (
    *_EXECUTION, "job", "attempt", "lateness_ms", "duration_ms", "http_status", "exit_code", "error_type", "reason",
    "trace_id",
)  # fmt: skip
LINES: dict[str, tuple[str, ...]] = {
    "job created": (*_JOB, "name", "type", "due_at"),
    "job changed": (*_JOB, "name", "version"),
    "job paused": (*_JOB, "by", "reason"),
    "job resumed": _JOB,
    "job cancelled": _JOB,
    "job removed": _JOB,
    "old jobs removed": ("count",),
    "execution requested": (*_EXECUTION, "trigger"),
    "executions claimed": ("count", "node"),
    "execution completed": _END,
    "execution retrying": (*_END, "next_at", "dead"),
    "execution failed": (*_END, "dead"),
    "execution timed out": (*_END, "dead"),
    "execution cancelled": _END,
    "execution skipped": _END,
    "execution lost": (*_END, "next_at"),
    "instants skipped": (*_JOB, "reason", "count", "first_at", "until_at"),
}
_ENDS = {
    State.COMPLETED: "execution completed", State.RETRYING: "execution retrying", State.FAILED: "execution failed",
    State.TIMEOUT: "execution timed out", State.CANCELLED: "execution cancelled", State.SKIPPED: "execution skipped",
    State.QUEUED: "execution lost",
}  # fmt: skip

_tenant = attrgetter("tenant")


def _tenants(rows: Sequence[Any]) -> Iterable[str]:
    return map(_tenant, rows)


def _tenants_of_pairs(pairs: Sequence[Pair]) -> Iterable[str]:
    return [end.tenant for _, end in pairs]


class Lifecycle:
    """`sampling`: the executions whose lines have a trace id."""

    def __init__(self, telemetry: Telemetry, levels: LogLevels, lines: LimitedLines, sampling: Sampling) -> None:
        self._lines = lines
        self._sampling = sampling
        self._of_jobs = levels.shows(JOBS, "info")
        self._of_executions = levels.shows(EXECUTIONS, "info")
        self._debugs_executions = levels.shows(EXECUTIONS, "debug")
        if self._of_jobs or self._of_executions:
            telemetry.subscribe(Written, self._note_written)
        if self._of_executions:
            telemetry.subscribe(AttemptsEnded, self._note_ended)

    # Jobs, and executions that are requested, skipped or cancelled while they wait

    def _note_written(self, written: Written) -> None:
        commands, answers = written.commands, written.answers
        if len(commands) == 1 and type(commands[0]) is CreateJobs:  # as most requests of a busy API write
            if self._of_jobs and answers[0] is None:
                self._lines.write("job created", commands[0].jobs, _facts_of_new, _tenants)
            return
        for command, answer in applied(written):
            if self._of_executions:
                self._note_of_execution(command, answer)
            if self._of_jobs:
                self._note_of_job(command, answer)

    def _note_of_execution(self, command: Command, answer: object) -> None:
        match command:
            case Fire():
                self._note_fired(command, answer)
            case AddExecution():
                facts = {**_ids(command), "trigger": str(command.trigger)}
                self._one("execution requested", command.tenant, facts)
            case CancelExecution() if answer is State.CANCELLED:
                facts = {"execution_id": command.execution_id, "tenant": command.tenant}
                self._one("execution cancelled", command.tenant, facts)
            case ClaimExecutions() if self._debugs_executions and isinstance(answer, list) and answer:
                self._one("executions claimed", "", {"count": len(answer), "node": command.node}, "debug")

    def _note_fired(self, fire: Fire, answer: object) -> None:
        if not isinstance(answer, Fired):
            return
        if self._debugs_executions and fire.claim:
            self._one("executions claimed", "", {"count": len(fire.executions), "node": fire.node}, "debug")
        stale, kept_back = answer.stale_jobs, answer.not_claimed
        if fire.skips and (skips := [span for span in fire.skips if span.job_id not in stale]):
            self._lines.write("instants skipped", skips, _facts_of_skip, _tenants)
        if kept_back and (
            skipped := [row for row in fire.executions if row.execution_id in kept_back and row.if_open == "skip"]
        ):
            self._lines.write(
                "execution skipped", skipped, lambda row: {**_ids(row), "reason": "overlap"}, _tenants
            )  # fmt: skip

    def _note_of_job(self, command: Command, answer: object) -> None:
        match command:
            case CreateJobs() if answer is None:  # else it is the repeat of a request
                self._lines.write("job created", command.jobs, _facts_of_new, _tenants)
            case ChangeJob():
                self._one("job changed", command.tenant, {**_job(command), "name": command.name, "version": answer})
            case PauseJob():
                self._one("job paused", command.tenant, {**_job(command), "by": command.by, "reason": command.reason})
            case ResumeJob():
                self._one("job resumed", command.tenant, _job(command))
            case CancelJob():
                self._one("job cancelled", command.tenant, _job(command))
            case PurgeJob() if answer is False:  # nothing of it is left
                self._one("job removed", command.tenant, _job(command))
            case SweepJobs() if isinstance(answer, Swept) and answer.removed:
                self._one("old jobs removed", "", {"count": answer.removed})

    def _one(self, event: str, tenant: str, facts: Facts, level: str = "info") -> None:
        self._lines.write(event, (facts,), lambda facts: facts, lambda _: (tenant,), level)

    # Ends of attempts

    def _note_ended(self, ended: AttemptsEnded) -> None:
        results = ended.results
        if refused := ended.refused:
            results = [pair for pair in results if pair[1].execution_id not in refused]
        completed = [end.state for _, end in results].count(State.COMPLETED)
        if completed == len(results):  # nearly all pages
            if results:
                self._write_ends(State.COMPLETED, results)
            return
        for state in _ENDS:
            if some := [pair for pair in results if pair[1].state is state]:
                self._write_ends(state, some)

    def _write_ends(self, state: State, pairs: Sequence[Pair]) -> None:
        self._lines.write(_ENDS[state], pairs, self._facts_of_end, _tenants_of_pairs)

    def _facts_of_end(self, pair: Pair) -> Facts:
        claim, end = pair
        facts: Facts = {**_ids(end), "job": claim.spec.name, "attempt": end.attempt}
        if end.started_at is not None:
            if end.attempt == 1:
                facts["lateness_ms"] = end.started_at - claim.scheduled_at
            facts["duration_ms"] = end.ended_at - end.started_at
        for name in ("http_status", "exit_code", "error_type", "reason"):
            if (value := getattr(end, name)) is not None:
                facts[name] = str(value) if isinstance(value, str) else value
        if end.state in (State.RETRYING, State.QUEUED):
            facts["next_at"] = format_instant(end.due_at)
        if end.dead:
            facts["dead"] = True
        if self._sampling.has(end.execution_id):
            facts["trace_id"] = trace_id(end.execution_id)
        return facts


def _ids(row: Any) -> Facts:
    return {"execution_id": row.execution_id, "job_id": row.job_id, "tenant": row.tenant}


def _job(command: Any) -> Facts:
    return {"job_id": command.job_id, "tenant": command.tenant}


def _facts_of_new(job: Any) -> Facts:
    return {**_job(job), "name": job.name, "type": job.type, "due_at": format_instant(job.due_at)}


def _facts_of_skip(span: Any) -> Facts:
    return {
        **_job(span), "reason": span.reason, "count": span.count, "first_at": format_instant(span.first_at),
        "until_at": format_instant(span.until_at),
    }  # fmt: skip


def later(seconds: float, call: Callable[[], None]) -> object:
    """Calls a function after some time, in the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)
