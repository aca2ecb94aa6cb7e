"""Traces: makes the spans of sampled executions from what the parts emit, a page at a time, and submits them.

Executions that are not sampled cost one comparison of strings for each page that they are in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from duetime.domain.commands import AddExecution, CreateJobs, Fire, Fired
from duetime.domain.line_rate import LineRateLimiter
from duetime.domain.plan import NewExecution
from duetime.domain.sampling import LAST, Sampling
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.incoming import Incoming, incoming
from duetime.telemetry.spans import Span, span_of_request, spans_of_end, spans_of_fire
from duetime.telemetry.unwrapped import applied

MOST_ASKED = 10  # requests a second that are traced because their caller traces, beyond those that are sampled


class Traces:
    """`submit`: gets the spans of a page; it must not wait. `now_ms()`: of the wall clock."""

    def __init__(
        self, telemetry: Telemetry, sampling: Sampling, submit: Callable[[Sequence[Span]], None],
        now_ms: Callable[[], float],
    ) -> None:  # fmt: skip
        self._sampling = sampling
        self._submit = submit
        self._now_ms = now_ms
        self._asked = LineRateLimiter(MOST_ASKED)
        telemetry.subscribe(Written, self._note_written)
        telemetry.subscribe(AttemptsEnded, self._note_ended)

    def _note_written(self, written: Written) -> None:
        for command, answer in applied(written):
            match command:
                case Fire():
                    self._note_fired(command, answer, written.seconds)
                case CreateJobs():
                    self._note_created(command, answer)
                case AddExecution():
                    self._note_added(command, written.seconds)

    def _note_fired(self, fire: Fire, answer: object, seconds: float) -> None:
        bound = self._sampling.bound
        rows = [row for row in fire.executions if row.execution_id[:LAST:-1] < bound]
        if rows:
            stale: Collection[str] = answer.stale_jobs if isinstance(answer, Fired) else ()
            skipped: Collection[str] = answer.not_claimed if isinstance(answer, Fired) else ()
            self._fired(
                [
                    row
                    for row in rows
                    if row.job_id not in stale and (row.if_open != "skip" or row.execution_id not in skipped)
                ],
                fire.now, seconds,
            )  # fmt: skip

    def _note_added(self, added: AddExecution, seconds: float) -> None:
        if self._sampling.has(added.execution_id):
            row = NewExecution(
                added.execution_id, added.job_id, added.tenant, added.now, added.trigger, 0, 0, "run", False
            )
            self._fired([row], added.now, seconds)

    def _fired(self, rows: Sequence[NewExecution], now: int, seconds: float) -> None:
        self._submit(list(chain.from_iterable(spans_of_fire(row, now, seconds, self._sampling) for row in rows)))

    def _note_created(self, created: CreateJobs, answer: object) -> None:
        request = incoming.get()
        if request is None or answer is not None:  # not from a request, or a repeat of one
            return
        bound = self._sampling.bound
        jobs = [job for job in created.jobs if job.job_id[:LAST:-1] < bound]
        if not jobs and self._is_asked_for(request):
            jobs = list(created.jobs[:1])
        if jobs:
            now = self._now_ms()
            self._submit([span_of_request(job, request, now) for job in jobs])

    def _is_asked_for(self, request: Incoming) -> bool:
        """Returns whether the caller traces this request, and few others have asked for that in this second."""
        parent = request.parent
        return parent is not None and parent.is_sampled and self._asked.admit(time.monotonic())

    def _note_ended(self, ended: AttemptsEnded) -> None:
        bound = self._sampling.bound
        sampled = [pair for pair in ended.results if pair[1].execution_id[:LAST:-1] < bound]
        if sampled:
            self._submit(
                [
                    span
                    for claim, end in sampled
                    if end.execution_id not in ended.refused
                    for span in spans_of_end(claim, end, ended.at, ended.seconds, self._sampling)
                ]
            )
