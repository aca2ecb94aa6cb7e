"""Objectives of jobs: what counts as good, the error budget that is left, how fast it burns, and when that is an alert.

What counts
- Lateness: an execution is good if its first attempt started within `lateness_seconds` of its scheduled instant. An
  execution whose first attempt was lost with its node is late. A redriven dead letter has no instant to be late for.
- Success: an execution is good if it ended COMPLETED, bad if it ended FAILED or TIMEOUT.
- An instant that was skipped through a fault (`missed`: no node could run it; `circuit_open`: its target fails) is bad
  for both. One that was skipped or cancelled by choice (pause, change, overlap policy) counts for neither.

Budget: of `total` executions of the window, `total * (1 - target)` may be bad. The burn rate of a span is the share of
bad executions in it, divided by that allowance: at 1 the budget lasts exactly for the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from duetime.domain.durations import parse_duration
from duetime.domain.errors import Conflict
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import JobSpec, Slo
from duetime.domain.states import ErrorType, Trigger

WINDOWS = (HOUR, 30 * DAY)  # bounds of `slo.window`; statistics are kept for longer
EXPECTED = (SECOND, 400 * DAY)  # bounds of `expect_every`
MOST_WITH_SLO = 100  # jobs of a tenant
MOST_EXPECTED = 1000  # jobs of a tenant with `expect_every`
FAULTS = frozenset({"missed", "circuit_open"})  # reasons of skips that nobody chose

BURN_SPANS = {"5m": 5 * MINUTE, "30m": 30 * MINUTE, "1h": HOUR, "6h": 6 * HOUR, "3d": 3 * DAY}
LEAST_BAD = 2  # in the longer span of a rule: one failure of a job that runs once a day is no rate


class ObjectiveKind(StrEnum):
    LATENESS = "lateness"
    SUCCESS = "success"


class Objective(NamedTuple):
    kind: ObjectiveKind
    target: float  # percent
    window: int  # ms
    lateness_seconds: float | None = None

    @property
    def allowance(self) -> float:
        """Returns the share of executions that may be bad."""
        return (100 - self.target) / 100


class Counted(NamedTuple):
    """Executions of a span."""

    good: int = 0
    total: int = 0

    @property
    def bad(self) -> int:
        return self.total - self.good


class Sample(NamedTuple):
    """Executions that ended in the `span` ms from `at` on, as one bucket of the statistics has them."""

    at: int
    span: int
    good: int
    total: int


class Budget(msgspec.Struct, frozen=True):
    """How an objective is met. `left` is 1 while no execution was bad, 0 when the budget is used up, less when it is
    overspent. `errors_left`: how many more of the window's executions may be bad, below 0 if too many were."""

    good: int
    total: int
    compliance: float | None  # the share of good executions; None: there was none
    left: float
    errors_left: int
    burn_rate: dict[str, float]  # by the names of BURN_SPANS


class BurnRule(NamedTuple):
    """The budget burns at `rate` or faster over both spans. The short one ends the alert soon after the fault ends."""

    severity: str
    rate: float
    long: str
    short: str


# The rules of the Site Reliability Workbook. In a window of 30 days, the first one sees 2 % of the budget spent within
# an hour, the second 5 % within 6 hours, and the third 10 % within 3 days. Of a shorter window they see more.
BURN_RULES = (
    BurnRule("critical", 14.4, "1h", "5m"),
    BurnRule("critical", 6.0, "6h", "30m"),
    BurnRule("warning", 1.0, "3d", "6h"),
)


class Burning(NamedTuple):
    """The worst rule that holds, with the burn rates over its spans."""

    rule: BurnRule
    long_rate: float
    short_rate: float


def objectives_of(slo: Slo | None) -> list[Objective]:
    """Returns the objectives that a valid `slo` states."""
    if slo is None:
        return []
    window = parse_duration(slo.window, *WINDOWS)
    found = []
    if slo.lateness_seconds is not None:
        found.append(Objective(ObjectiveKind.LATENESS, slo.on_time, window, slo.lateness_seconds))
    if slo.success is not None:
        found.append(Objective(ObjectiveKind.SUCCESS, slo.success, window))
    return found


def expected_by(expect_every: str, since: int, last_success_at: int | None) -> int:
    """Returns the instant by which the next execution must have succeeded.

    `since`: when the job got this `expect_every`, or was resumed: a pause is no silence.
    """
    return max(since, last_success_at or 0) + parse_duration(expect_every, *EXPECTED)


def is_watched(spec: JobSpec) -> bool:
    return spec.slo is not None or spec.expect_every is not None


def watched_row(job_id: str, tenant: str, now: int, spec: JobSpec) -> tuple[str, str, int, str | None, str | None]:
    """Returns what the store keeps of a watched job beside its definition."""
    slo = None if spec.slo is None else msgspec.json.encode(spec.slo).decode()
    return job_id, tenant, now, spec.expect_every, slo


def check_watched(tenant: str, with_slo: int, expected: int) -> None:
    """Raises Conflict if a tenant has too many such jobs: each of them is watched all the time."""
    for number, most, field in ((with_slo, MOST_WITH_SLO, "slo"), (expected, MOST_EXPECTED, "expect_every")):
        if number > most:
            raise Conflict(
                f"tenant {tenant} may have {most:,} jobs with `{field}`; remove the field from jobs that need it less"
            )


def is_on_time(lateness: int, slo: Slo) -> bool:
    """Returns whether a first attempt that started `lateness` ms after its instant met the lateness objective."""
    return slo.lateness_seconds is None or lateness <= slo.lateness_seconds * SECOND


def punctuality(results: Iterable[tuple[Claim, AttemptEnd]]) -> tuple[int, int]:
    """Returns how many first attempts met the lateness objective of their job, and how many did not."""
    on_time = late = 0
    for claim, end in results:
        slo = claim.spec.slo
        if slo is None or slo.lateness_seconds is None or claim.attempt != 1 or claim.trigger is Trigger.RETRY:
            continue
        if end.started_at is None:
            late += end.error_type is ErrorType.LEASE_LOST
        elif is_on_time(end.started_at - claim.scheduled_at, slo):
            on_time += 1
        else:
            late += 1
    return on_time, late


def counted(samples: Iterable[Sample], span: int, now: int) -> Counted:
    """Returns the executions of the last `span` ms. A bucket that lies partly in the span counts whole."""
    good = total = 0
    for sample in samples:
        if sample.at + sample.span > now - span and sample.at <= now:
            good += sample.good
            total += sample.total
    return Counted(good, total)


def burn_rate(counts: Counted, objective: Objective) -> float:
    return counts.bad / counts.total / objective.allowance if counts.total else 0.0


def budget_of(objective: Objective, samples: Sequence[Sample], now: int) -> Budget:
    whole = counted(samples, objective.window, now)
    allowed = whole.total * objective.allowance
    burns = {name: burn_rate(counted(samples, span, now), objective) for name, span in BURN_SPANS.items()}
    return Budget(
        whole.good, whole.total,
        compliance=whole.good / whole.total if whole.total else None,
        left=1 - whole.bad / allowed if whole.total else 1.0,
        errors_left=_whole_errors(allowed) - whole.bad,
        burn_rate=burns,
    )  # fmt: skip


def _whole_errors(allowed: float) -> int:
    """Returns how many errors are allowed. 0.5 % of 200 is 1, though a float may be a hair below it."""
    return int(allowed + 1e-6)


def burning(objective: Objective, samples: Sequence[Sample], now: int) -> Burning | None:
    """Returns the worst rule that holds; None if none does. Spans longer than the objective's window are left out."""
    for rule in BURN_RULES:
        long, short = BURN_SPANS[rule.long], BURN_SPANS[rule.short]
        if long > objective.window:
            continue
        over_long = counted(samples, long, now)
        if over_long.bad < LEAST_BAD:
            continue
        rates = burn_rate(over_long, objective), burn_rate(counted(samples, short, now), objective)
        if min(rates) >= rule.rate:
            return Burning(rule, *rates)
    return None
