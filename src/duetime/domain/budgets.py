"""The error budgets of a job's objectives, from the rows that the statistics have of the job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from duetime.domain.instants import HOUR
from duetime.domain.job import Slo
from duetime.domain.objectives import (
    BURN_SPANS,
    FAULTS,
    Budget,
    Burning,
    Objective,
    ObjectiveKind,
    Sample,
    budget_of,
    burning,
    objectives_of,
)
from duetime.domain.statistics import StatisticsQuery, StatisticsRow, Tally


class Standing(NamedTuple):
    """How a job meets an objective now. `burning`: the burn-rate rule that holds; None: none does."""

    objective: Objective
    budget: Budget
    burning: Burning | None


class JobStanding(NamedTuple):
    tenant: str
    job_id: str
    name: str
    standing: Standing


def worst_of(standings: Iterable[JobStanding], limit: int) -> list[JobStanding]:
    """Returns those with the least budget left; among equals those that burn fastest."""
    return sorted(standings, key=_left)[:limit]


def _left(one: JobStanding) -> tuple[float, float, str, str]:
    budget = one.standing.budget
    return budget.left, -max(budget.burn_rate.values()), one.job_id, one.standing.objective.kind


def subject_of(job_id: str) -> str:
    return f"job:{job_id}"


def rows_wanted(tenant: str, job_id: str, slo: Slo, now: int) -> StatisticsQuery:
    """Returns the query for the rows that `standings` needs."""
    window = max((objective.window for objective in objectives_of(slo)), default=0)
    since = now - max(window, *BURN_SPANS.values())
    return StatisticsQuery(since=since - since % HOUR, until=now + 1, tenant=tenant, subject=subject_of(job_id))


def standings(slo: Slo | None, rows: Sequence[StatisticsRow], now: int) -> list[Standing]:
    """Returns how each objective is met. `rows`: those of the job, of any spans; none is counted twice."""
    found = []
    for objective in objectives_of(slo):
        samples = [sample_of(objective.kind, row) for row in rows]
        found.append(Standing(objective, budget_of(objective, samples, now), burning(objective, samples, now)))
    return found


def sample_of(kind: ObjectiveKind, row: StatisticsRow) -> Sample:
    tally = row.tally
    faults = _faults(tally)
    if kind is ObjectiveKind.LATENESS:
        good, bad = tally.on_time, tally.late + faults
    else:
        good, bad = tally.completed, tally.failures + faults
    return Sample(row.bucket_at, row.span, good, good + bad)


def _faults(tally: Tally) -> int:
    """Returns the instants that were skipped although nobody chose that."""
    return sum(number for reason, number in tally.skipped.items() if reason in FAULTS)
