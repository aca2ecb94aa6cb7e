"""The checker: every due instant has exactly one decision, and every decision to run was carried out.

It is independent of the engine. Its input: the jobs whose creation was acknowledged, the receiver's log, and the
responses of the API after the last execution has ended. It computes due instants with cronsim or plain arithmetic.

    MISSED         an instant without a decision, or a run recorded as done that no receiver got
    EXTRA          a run for an instant that no schedule has, of an unknown job, or that was never recorded
    DUP-EXECUTION  two execution ids for one instant
    EARLY          a request before its instant
    ORPHAN         an execution that is still open after all others have ended
    STALE          a replaced attempt was accepted: its request or its end came after its successor's; or the database
                   recorded a write of a node that no longer owned the shard
    LOST           an acknowledged job is missing
    DUP-ATTEMPT    more requests for one execution than its bound allows, more repeated ones than `most_repeated`, or
                   one repeated that a target had accepted longer than `unrecorded_ms` before the crash
    LATE           the 99th percentile of lateness, or the latest first request of all, exceeds the objective

A repeated request alone is no fault: attempts are at least once. It is counted and bounded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

VERDICTS = (
    "MISSED", "EXTRA", "DUP-EXECUTION", "EARLY", "ORPHAN", "STALE", "LOST", "DUP-ATTEMPT", "LATE",
)  # fmt: skip
TERMINAL = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "SKIPPED"})
ANSWERED = frozenset({"COMPLETED"})  # states that only a response of a target leads to
PLANNED = frozenset({"schedule", "catch_up"})
SHOWN = 5

_EVERY = re.compile(r"every (\d+)([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class AcknowledgedJob:
    """A job that the server has acknowledged. Instants are ms since the epoch."""

    job_id: str
    schedule: str
    created_at: int
    timezone: str = "UTC"
    start_at: int | None = None
    end_at: int | None = None
    max_runs: int | None = None
    most_attempts: int = 4


@dataclass(frozen=True)
class History:
    """The recorded facts: lines of the receiver and responses of the API, unchanged."""

    jobs: Sequence[AcknowledgedJob]
    requests: Sequence[dict[str, Any]]
    executions: Sequence[dict[str, Any]]
    skipped: dict[str, list[dict[str, Any]]]  # spans by job
    stored_jobs: frozenset[str]
    until: int  # instants up to here must have a decision
    crashes: Sequence[int] = ()  # when the server was killed
    stale_writes: Sequence[str] = ()  # as recorded by the database, if it was configured to


@dataclass(frozen=True)
class Objectives:
    most_repeated: int | None = None  # executions that may have been requested more than once
    # A result is written a moment after its arrival. The rate affects the number of unwritten ones, and not their age.
    unrecorded_ms: int | None = None
    lateness_p99_ms: int | None = None
    # Of every planned run, by the attempt that first reached its target: the cost of a handover.
    lateness_most_ms: int | None = None


@dataclass
class Report:
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=lambda: {verdict: [] for verdict in VERDICTS})

    @property
    def green(self) -> bool:
        return not any(self.faults.values())

    @property
    def verdicts(self) -> set[str]:
        return {verdict for verdict, found in self.faults.items() if found}

    def add(self, verdict: str, sentence: str) -> None:
        self.faults[verdict].append(sentence)

    def __str__(self) -> str:
        lines = ["green" if self.green else "RED"]
        lines += [f"  {name:<22}{count}" for name, count in self.counts.items()]
        for verdict, found in self.faults.items():
            if found:
                lines.append(f"  {verdict}: {len(found)}")
                lines += [f"    {sentence}" for sentence in found[:SHOWN]]
                lines += [f"    … and {len(found) - SHOWN} more"] * (len(found) > SHOWN)
        return "\n".join(lines)


def instant(text: str) -> int:
    """RFC 3339 to ms, without a float on the way."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def shown(at: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds")


def expected_instants(job: AcknowledgedJob, until: int) -> list[int]:
    """The instants of a job up to `until`, by arithmetic or by cronsim."""
    end = until if job.end_at is None else min(until, job.end_at)
    found: list[int] = []
    for at in _instants(job):
        if at > end or (job.max_runs is not None and len(found) >= job.max_runs):
            break
        found.append(at)
    return found


def _instants(job: AcknowledgedJob) -> Iterator[int]:
    if job.schedule == "immediate":
        yield job.created_at
    elif match := _EVERY.fullmatch(job.schedule):
        period = int(match[1]) * _UNIT_SECONDS[match[2]] * 1000
        at = job.created_at if job.start_at is None else job.start_at
        while True:
            at += period
            if at > job.created_at:
                yield at
    elif re.match(r"\d{4}-", job.schedule):
        yield instant(job.schedule)
    else:
        after = job.created_at if job.start_at is None else max(job.created_at, job.start_at - 1)
        begin = (_EPOCH + timedelta(milliseconds=after)).astimezone(ZoneInfo(job.timezone))
        for moment in CronSim(job.schedule, begin):
            yield (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def check(history: History, objectives: Objectives = Objectives()) -> Report:  # noqa: B008 (frozen)
    report = Report()
    jobs = {job.job_id: job for job in history.jobs}
    due = {job_id: expected_instants(job, history.until) for job_id, job in jobs.items()}
    by_execution = _by_execution(history.requests)
    _check_jobs(history, report)
    _check_decisions(history, jobs, due, report)
    _check_executions(history, by_execution, report)
    _check_requests(history, jobs, due, by_execution, report)
    for sentence in history.stale_writes:
        report.add("STALE", sentence)
    repeated = {id: lines for id, lines in by_execution.items() if len(lines) > 1}
    _check_repeats(repeated, jobs, objectives, report)
    oldest = _check_unrecorded(repeated, history.crashes, objectives, report)
    lateness = _check_lateness(history.requests, objectives, report)
    latest = _check_latest(by_execution, objectives, report)
    report.counts = {
        "jobs": len(jobs),
        "due instants": sum(map(len, due.values())),
        "executions": len(history.executions),
        "requests": len(history.requests),
        "repeated executions": len(repeated),
        "oldest repeated (ms)": oldest,
        **{f"lateness {name} (ms)": value for name, value in lateness.items()},
        "latest first request (ms)": latest,
    }
    return report


def _by_execution(requests: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in sorted(requests, key=lambda line: line["t_start"]):
        found[line["execution_id"]].append(line)
    return dict(found)


def _check_jobs(history: History, report: Report) -> None:
    for job in history.jobs:
        if job.job_id not in history.stored_jobs:
            report.add("LOST", f"job {job.job_id} was acknowledged and is gone")


def _check_decisions(
    history: History, jobs: dict[str, AcknowledgedJob], due: dict[str, list[int]], report: Report
) -> None:
    """Checks that each instant has one decision, and that each decision has an instant."""
    decided: dict[tuple[str, int], list[str]] = defaultdict(list)
    for execution in history.executions:
        if execution["trigger"] in PLANNED:
            decided[execution["job_id"], instant(execution["scheduled_at"])].append(execution["execution_id"])
    for (job_id, at), ids in decided.items():
        if len(set(ids)) > 1:
            report.add("DUP-EXECUTION", f"job {job_id} at {shown(at)} has {len(set(ids))} executions: {sorted(ids)}")
        if job_id not in jobs:
            report.add("EXTRA", f"execution {ids[0]} is of job {job_id}, which nobody created")
        elif at not in set(due[job_id]):
            report.add("EXTRA", f"job {job_id} ({jobs[job_id].schedule}) was not due at {shown(at)}: {ids[0]}")
    for job_id, instants in due.items():
        spans = [(instant(span["first_at"]), instant(span["until_at"])) for span in history.skipped.get(job_id, [])]
        for at in instants:
            if (job_id, at) not in decided and not any(first <= at < until for first, until in spans):
                report.add("MISSED", f"job {job_id} ({jobs[job_id].schedule}) at {shown(at)} has no decision")


def _check_executions(history: History, by_execution: dict[str, list[dict[str, Any]]], report: Report) -> None:
    for execution in history.executions:
        execution_id, state = execution["execution_id"], execution["state"]
        lines = by_execution.get(execution_id, [])
        if state not in TERMINAL:
            report.add("ORPHAN", f"execution {execution_id} is still {state}, attempt {execution['attempt']}")
            continue
        if state in ANSWERED and not lines:
            report.add("MISSED", f"execution {execution_id} is {state}, and the receiver never saw it")
        if state == "SKIPPED" and lines:
            report.add("EXTRA", f"execution {execution_id} is SKIPPED ({execution['reason']}) and was requested")
        for line in lines:
            if int(line["attempt"]) > execution["attempt"]:
                sentence = f"execution {execution_id} ended with attempt {execution['attempt']} after {line['attempt']}"
                report.add("STALE", f"{sentence} had begun")
            elif state != "SKIPPED" and line["t_start"] > instant(execution["end_time"]):
                sentence = f"execution {execution_id} was {state} at {execution['end_time']} and then requested"
                report.add("STALE", f"{sentence} at {shown(line['t_start'])}, attempt {line['attempt']}")


def _check_requests(
    history: History, jobs: dict[str, AcknowledgedJob], due: dict[str, list[int]],
    by_execution: dict[str, list[dict[str, Any]]], report: Report,
) -> None:  # fmt: skip
    recorded = {execution["execution_id"] for execution in history.executions}
    ids_of: dict[tuple[str, int], set[str]] = defaultdict(set)
    for execution_id, lines in by_execution.items():
        if execution_id not in recorded:
            report.add("EXTRA", f"execution {execution_id} was requested and is not recorded")
        latest = 0
        for line in lines:
            at, token = instant(line["scheduled_at"]), int(line["token"])
            if line["t_start"] < at:
                sentence = f"execution {execution_id} was due at {shown(at)}"
                report.add("EARLY", f"{sentence} and came {at - line['t_start']} ms before")
            if token < latest:
                report.add("STALE", f"execution {execution_id} came with token {token} after token {latest}")
            latest = max(latest, token)
            if line["trigger"] in PLANNED:
                ids_of[line["job_id"], at].add(execution_id)
    for (job_id, at), ids in ids_of.items():
        if len(ids) > 1:
            report.add("DUP-EXECUTION", f"job {job_id} at {shown(at)} was requested as {sorted(ids)}")
        if job_id not in jobs or at not in set(due[job_id]):
            report.add("EXTRA", f"job {job_id} was requested for {shown(at)}, when it was not due")


def _check_repeats(
    repeated: dict[str, list[dict[str, Any]]], jobs: dict[str, AcknowledgedJob], objectives: Objectives, report: Report
) -> None:
    for execution_id, lines in repeated.items():
        job = jobs.get(lines[0]["job_id"])
        if job is not None and len(lines) > job.most_attempts:
            sentence = f"execution {execution_id} was requested {len(lines)} times"
            report.add("DUP-ATTEMPT", f"{sentence}; its bound is {job.most_attempts}")
    if objectives.most_repeated is not None and len(repeated) > objectives.most_repeated:
        sentence = f"{len(repeated)} executions were requested more than once"
        report.add("DUP-ATTEMPT", f"{sentence}; {objectives.most_repeated} may be")


def _check_unrecorded(
    repeated: dict[str, list[dict[str, Any]]], crashes: Sequence[int], objectives: Objectives, report: Report
) -> int:
    """Returns how long before a crash the oldest of the accepted and then repeated requests had been answered."""
    oldest = 0
    for execution_id, lines in repeated.items():
        for line in lines[:-1]:
            if line["t_end"] is None or not 200 <= line["status"] < 300:
                continue
            # The first crash since it began: a response that arrived while the sender died belongs to that crash.
            age = min((at - line["t_end"] for at in crashes if at >= line["t_start"]), default=None)
            oldest = max(oldest, age or 0)
            if objectives.unrecorded_ms is not None and (age is None or age > objectives.unrecorded_ms):
                when = "with no crash after it" if age is None else f"{age} ms before the crash"
                report.add("DUP-ATTEMPT", f"execution {execution_id} was accepted {when}, and requested again")
    return oldest


def _check_lateness(requests: Iterable[dict[str, Any]], objectives: Objectives, report: Report) -> dict[str, int]:
    """Returns the lateness of first attempts. Instants that were caught up later do not count."""
    late = sorted(
        line["t_start"] - instant(line["scheduled_at"])
        for line in requests
        if line["trigger"] == "schedule" and int(line["attempt"]) == 1
    )
    if not late:
        return {}
    found = {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)], "max": late[-1]}
    wanted = objectives.lateness_p99_ms
    if wanted is not None and found["p99"] > wanted:
        report.add("LATE", f"p99 is {found['p99']} ms after the instant; the objective is {wanted} ms")
    return found


def _check_latest(by_execution: dict[str, list[dict[str, Any]]], objectives: Objectives, report: Report) -> int:
    latest, most = 0, objectives.lateness_most_ms
    for execution_id, (first, *_) in by_execution.items():
        if first["trigger"] not in PLANNED:
            continue
        late = first["t_start"] - instant(first["scheduled_at"])
        latest = max(latest, late)
        if most is not None and late > most:
            sentence = f"execution {execution_id} of {first['scheduled_at']} was first requested {late} ms after its"
            report.add("LATE", f"{sentence} instant, as attempt {first['attempt']}; {most} ms is the most allowed")
    return latest
