"""Metrics of ended attempts and executions: outcomes, lateness, durations.

A page is grouped by what its ends have in common. Most pages are one group. Within a group all work is done in C, on
whole columns: a page of a thousand ends costs less than a millisecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter, sub

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.job import JobType
from duetime.domain.states import TERMINAL, ErrorType, State, Trigger
from duetime.telemetry.emitted import AttemptsEnded, QueueWaited
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Counter, Distribution, Durations
from duetime.telemetry.prometheus.stages import StageWaits

SECONDS = range(-7, 13)  # from 8 ms to 68 minutes
SIZES = range(0, 8)  # up to 128

_END_KEY = attrgetter("state", "error_type", "attempt", "dead")
_CLAIM_KEY = attrgetter("spec.type", "trigger")
_started, _ended, _scheduled = attrgetter("started_at"), attrgetter("ended_at"), attrgetter("scheduled_at")

Result = tuple[Claim, AttemptEnd]
Key = tuple[tuple[State, ErrorType | None, int, bool], tuple[JobType, Trigger]]


class AttemptMetrics:
    """`note_skipped(number, reason)`: executions became SKIPPED because nothing was to be sent."""

    def __init__(self, telemetry: Telemetry, stages: StageWaits, note_skipped: Callable[[int, str], None]) -> None:
        types = [(str(kind),) for kind in JobType]
        self.executions = Counter(
            "executions_ended", "Executions that reached a final state, by type of job, state, and error of the last "
            "attempt (none: it succeeded).", ["type", "state", "error_type"],
            starts=[("http_request", "COMPLETED", "none"), ("http_request", "FAILED", "http_error")],
        )  # fmt: skip
        self.attempts = Counter(
            "attempts_ended", "Attempts that ended, by type of job and error (none: it succeeded; timeout; cancelled).",
            ["type", "error_type"], starts=[("http_request", "none")],
        )  # fmt: skip
        self.retries = Counter("retries", "Attempts that ended and will be tried again, by type of job.", ["type"])
        self.dead = Counter(
            "dead_letters_added", "Executions that became dead letters, by type of job.", ["type"], starts=types
        )
        self.refused = Counter(
            "results_refused", "Results that the store refused, because the claim was no longer valid."
        )
        self.lateness = Durations(
            "execution_lateness_seconds", "From the scheduled instant to the start of the first attempt.", ["type"],
            exponents=SECONDS, starts=types,
        )  # fmt: skip
        self.duration = Durations(
            "attempt_duration_seconds", "From the start of an attempt to its end.", ["type"], exponents=SECONDS,
            starts=types,
        )  # fmt: skip
        self.end_to_end = Durations(
            "execution_end_to_end_seconds", "From the scheduled instant to the final state, with all retries.",
            ["type"], exponents=SECONDS, starts=types,
        )  # fmt: skip
        self.tries = Distribution(
            "execution_attempts", "Attempts of an execution that reached a final state.", ["type"], exponents=SIZES,
            starts=types,
        )  # fmt: skip
        self._stages = stages
        self._note_skipped = note_skipped
        telemetry.subscribe(AttemptsEnded, self._note)
        telemetry.subscribe(QueueWaited, lambda waited: stages.queued.observe(waited.seconds))

    def _note(self, page: AttemptsEnded) -> None:
        results: Sequence[Result] = page.results
        if refused := page.refused:
            self.refused.add(len(refused))
            results = [result for result in results if result[1].execution_id not in refused]
        if not results:
            return
        claims, ends = [claim for claim, _ in results], [end for _, end in results]
        self._stages.recording.add(map(page.at.__sub__, map(_ended, ends)))
        if _are_alike(claims, ends):
            self._note_group((_END_KEY(ends[0]), _CLAIM_KEY(claims[0])), claims, ends)
            return
        keys: list[Key] = list(zip(map(_END_KEY, ends), map(_CLAIM_KEY, claims), strict=True))
        groups = defaultdict[Key, tuple[list[Claim], list[AttemptEnd]]](lambda: ([], []))
        for key, claim, end in zip(keys, claims, ends, strict=True):
            group = groups[key]
            group[0].append(claim)
            group[1].append(end)
        for key, (some_claims, some_ends) in groups.items():
            self._note_group(key, some_claims, some_ends)

    def _note_group(self, key: Key, claims: Sequence[Claim], ends: Sequence[AttemptEnd]) -> None:
        (state, error, attempt, dead), (kind, trigger) = key
        count, is_final, error_type = len(ends), state in TERMINAL, error or "none"
        if is_final:
            self.executions.add(count, kind, state, error_type)
            self.tries.of(kind).observe_all([attempt] * count)
        else:
            self.retries.add(count, kind)
        if dead:
            self.dead.add(count, kind)
        if error is not ErrorType.CIRCUIT_OPEN:  # then nothing was sent
            self.attempts.add(count, kind, error_type)
        elif state is State.SKIPPED:
            self._note_skipped(count, "circuit_open")
        scheduled, started, ended = list(map(_scheduled, claims)), list(map(_started, ends)), list(map(_ended, ends))
        if is_final and state is not State.SKIPPED and trigger is not Trigger.RETRY:
            self.end_to_end.of(kind).add(map(sub, ended, scheduled))
        if None in started:  # lost with their node, or never sent
            rows = [row for row in zip(scheduled, started, ended, strict=True) if row[1] is not None]
            if not rows:
                return
            scheduled, started, ended = map(list, zip(*rows, strict=True))
        self.duration.of(kind).add(map(sub, ended, started))
        if attempt == 1 and trigger is not Trigger.RETRY:  # a redriven one may have waited for its turn
            self.lateness.of(kind).add(map(sub, started, scheduled))


def _are_alike(claims: Sequence[Claim], ends: Sequence[AttemptEnd]) -> bool:
    """Returns whether all have the same key. Column by column: a key for each end costs more than all else."""
    columns: list[list[object]] = [
        [end.state for end in ends], [end.attempt for end in ends], [claim.trigger for claim in claims],
        [claim.spec.__class__ for claim in claims],
    ]  # fmt: skip
    if ends[0].state is not State.COMPLETED:  # those have no error
        columns += [[end.error_type for end in ends], [end.dead for end in ends]]
    return all(column.count(column[0]) == len(column) for column in columns)
