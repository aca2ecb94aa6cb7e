"""Metrics of what is written (jobs created and removed, pages fired, instants skipped, writes refused).

A batch costs one lookup for each of its commands. A page costs work in C on whole columns.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from duetime.domain import commands as c
from duetime.domain.endpoints import needs_worker
from duetime.domain.errors import DuetimeError, StaleWrite
from duetime.domain.plan import MOST_COUNTED, Skipped
from duetime.domain.states import Trigger
from duetime.telemetry.emitted import Committed, Read, WriteFailed, Written
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Counter, Distribution
from duetime.telemetry.prometheus.stages import StageWaits

SHORT = range(-11, 5)  # from 0.5 ms to 16 s
SIZES = range(0, 13)
MOST_FUNCTIONS = 10_000

_type, _trigger, _scheduled = attrgetter("type"), attrgetter("trigger"), attrgetter("scheduled_at")
_endpoint = attrgetter("endpoint")


class WriteMetrics:
    """`functions`: the (tenant, endpoint) of functions that had an execution on this node, while one may wait."""

    def __init__(self, telemetry: Telemetry, stages: StageWaits) -> None:
        self.created = Counter(
            "jobs_created", "Jobs that were created, by type and by who made them (api, notification).",
            ["type", "source"], starts=[("http_request", "api"), ("http_request", "notification")],
        )  # fmt: skip
        self.changed = Counter(
            "jobs_changed", "Changes of jobs: changed, paused, resumed.", ["change"],
            starts=[("changed",), ("paused",), ("resumed",)],
        )  # fmt: skip
        self.removed = Counter(
            "jobs_removed", "Jobs that were ended or removed: cancelled, purged, swept (after their retention).",
            ["how"], starts=[("cancelled",), ("purged",), ("swept",)],
        )  # fmt: skip
        self.pages = Counter("pages_fired", "Pages of due timers that were written.")
        self.executions = Counter(
            "executions_created", "Executions that were created, by trigger.", ["trigger"],
            starts=[(str(trigger),) for trigger in Trigger],
        )  # fmt: skip
        self.claimed = Counter("executions_claimed", "Executions that were claimed from the ledger.")
        self.released = Counter("executions_released", "Claims that were given back unstarted.")
        self.skipped = Counter(
            "instants_skipped", "Due instants that were decided against, by reason. A span too long to be counted "
            f"counts as {MOST_COUNTED:,}.", ["reason"],
            starts=[("missed",), ("overlap",), ("paused",), ("cancelled",), ("circuit_open",)],
        )  # fmt: skip
        self.fenced = Counter(
            "fenced_writes_refused", "Writes that the store refused, because this node or worker had lost its lease or "
            "the shard, by command.", ["command"], starts=[("Fire",), ("Finish",)],
        )  # fmt: skip
        self.write_seconds = Distribution(
            "store_write_seconds", "Time of a batch of commands from the call to the answer, by its first command.",
            ["command"], exponents=SHORT, starts=[("Fire",), ("Finish",), ("CreateJobs",)],
        )  # fmt: skip
        self.write_errors = Counter(
            "store_write_errors", "Batches of commands that failed as a whole, by the first command.", ["command"],
            starts=[("Fire",), ("Finish",), ("CreateJobs",)],
        )  # fmt: skip
        self.read_seconds = Distribution(
            "store_read_seconds", "Time of reads from the store, by method.", ["method"], exponents=SHORT,
            starts=[("list_due_timers",)],
        )  # fmt: skip
        self.read_errors = Counter("store_read_errors", "Reads from the store that failed, by method.", ["method"])
        self.commit_seconds = Distribution(
            "store_commit_seconds", "Time of a transaction of the writer, with the wait for the disk.", exponents=SHORT
        )
        self.commit_size = Distribution(
            "store_commit_commands", "Commands that one transaction of the writer wrote together.", exponents=SIZES
        )
        self.functions: set[tuple[str, int]] = set()
        self._stages = stages
        # By type of command: called with the command and its answer, if that is no error.
        self._handlers: dict[type[c.Command], Callable[[Any, Any], None]] = {
            c.CreateJobs: self._created, c.WithNotifications: self._carried, c.OnFinish: self._on_finish,
            c.ChangeJob: self._job_changed, c.PauseJob: lambda *_: self.changed.add(1, "paused"),
            c.ResumeJob: self._resumed, c.CancelJob: self._cancelled, c.PurgeJob: self._purged,
            c.SweepJobs: self._swept, c.Fire: self._fired, c.AddExecution: self._added, c.Redrive: self._redriven,
            c.ClaimExecutions: self._claimed, c.Release: self._released,
        }  # fmt: skip
        telemetry.subscribe(Written, self._note)
        telemetry.subscribe(WriteFailed, self._note_failure)
        telemetry.subscribe(Read, self._note_read)
        telemetry.subscribe(Committed, self._note_commit)

    def _note(self, written: Written) -> None:
        commands = written.commands
        if commands:
            self.write_seconds.of(type(commands[0]).__name__).observe(written.seconds)
        handlers = self._handlers
        for command, answer in zip(commands, written.answers, strict=True):
            if isinstance(answer, DuetimeError):
                if isinstance(answer, StaleWrite):
                    self.fenced.add(1, type(command).__name__)
            elif (handle := handlers.get(type(command))) is not None:
                handle(command, answer)

    def _note_failure(self, failed: WriteFailed) -> None:
        if failed.commands:
            self.write_errors.add(1, type(failed.commands[0]).__name__)

    def _note_read(self, read: Read) -> None:
        self.read_seconds.of(read.name).observe(read.seconds)
        if read.error is not None:
            self.read_errors.add(1, read.name)

    def _note_commit(self, committed: Committed) -> None:
        self.commit_seconds.of().observe(committed.seconds)
        self.commit_size.of().observe(committed.commands)

    # Jobs

    def _created(self, command: c.CreateJobs, answer: object, source: str = "api") -> None:
        if answer is not None:  # a repeated request: it created nothing
            return
        if len(command.jobs) == 1:
            self.created.add(1, command.jobs[0].type, source)
            return
        for kind, number in Counted(map(_type, command.jobs)).items():
            self.created.add(number, kind, source)

    def _carried(self, command: c.WithNotifications[object], carried: c.Carried[object]) -> None:
        if (handle := self._handlers.get(type(command.first))) is not None:
            handle(command.first, carried.answer)
        self.created.add(len(command.then) - len(carried.refused), "http_request", "notification")

    def _on_finish(self, command: c.OnFinish, answer: object) -> None:
        following = command.command
        if isinstance(following, c.CreateJobs):
            self._created(following, None, "notification")
        elif (handle := self._handlers.get(type(following))) is not None:
            handle(following, answer)

    def _job_changed(self, command: c.ChangeJob, _: object) -> None:
        self.changed.add(1, "changed")
        self._skip(command.skipped)

    def _resumed(self, command: c.ResumeJob, _: object) -> None:
        self.changed.add(1, "resumed")
        if command.skipped is not None:
            self._skip([command.skipped])

    def _cancelled(self, command: c.CancelJob, _: object) -> None:
        self.removed.add(1, "cancelled")
        self._skip(command.skipped)

    def _purged(self, _: c.PurgeJob, is_more: bool) -> None:
        self.removed.add(not is_more, "purged")

    def _swept(self, _: c.SweepJobs, swept: c.Swept) -> None:
        self.removed.add(swept.removed, "swept")

    def _skip(self, spans: Iterable[Skipped]) -> None:
        for span in spans:
            self.skipped.add(MOST_COUNTED if span.count is None else span.count, span.reason)

    # Executions

    def _fired(self, command: c.Fire, fired: c.Fired) -> None:
        self.pages.add(1)
        executions = command.executions
        if fired.stale_jobs:
            executions = tuple(one for one in executions if one.job_id not in fired.stale_jobs)
            self._skip(span for span in command.skips if span.job_id not in fired.stale_jobs)
        elif command.skips:
            self._skip(command.skips)
        if not executions:
            return
        for trigger, number in Counted(map(_trigger, executions)).items():
            self.executions.add(number, trigger)
        if fired.skipped:
            self.skipped.add(len(fired.skipped), "overlap")
        self._stages.due.add(map(command.now.__sub__, map(_scheduled, executions)))
        if needs_worker(min(map(_endpoint, executions))) and len(self.functions) < MOST_FUNCTIONS:
            self.functions.update((one.tenant, one.endpoint) for one in executions if needs_worker(one.endpoint))

    def _added(self, command: c.AddExecution, _: object) -> None:
        self.executions.add(1, command.trigger)

    def _redriven(self, _: c.Redrive, pairs: list[tuple[str, str]]) -> None:
        self.executions.add(len(pairs), Trigger.RETRY)

    def _claimed(self, command: c.ClaimExecutions, claims: list[Any]) -> None:
        if claims:
            self.claimed.add(len(claims))
            self._stages.parked.add(command.now - one.scheduled_at for one in claims if one.attempt == 1)

    def _released(self, command: c.Release, _: object) -> None:
        self.released.add(len(command.claims))
