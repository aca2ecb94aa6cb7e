"""Metrics of objectives: of the jobs with the least error budget left, a bounded number of them.

Only the node that reads the objectives has values: one node of the cluster.
"""

from __future__ import annotations

from duetime.domain.budgets import worst_of
from duetime.telemetry.emitted import ObjectivesRead
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Gauge, Labels

MOST_OBJECTIVES = 20
LABELS = ("tenant", "job_id", "objective")


class ObjectiveMetrics:
    def __init__(self, telemetry: Telemetry) -> None:
        self.left = Gauge(
            "slo_error_budget_left_ratio",
            f"Share of the error budget left, of the {MOST_OBJECTIVES} objectives with least; below 0: overspent.",
            LABELS,
        )
        self.burn = Gauge(
            "slo_burn_rate_ratio",
            "How fast these objectives burn their budget: at 1 it lasts exactly for the objective's window.",
            (*LABELS, "over"),
        )
        telemetry.subscribe(ObjectivesRead, self._set)

    def _set(self, read: ObjectivesRead) -> None:
        left: dict[Labels, float] = {}
        burn: dict[Labels, float] = {}
        for one in worst_of(read.standings, MOST_OBJECTIVES):
            labels = one.tenant, one.job_id, str(one.standing.objective.kind)
            left[labels] = one.standing.budget.left
            burn |= {(*labels, span): rate for span, rate in one.standing.budget.burn_rate.items()}
        self.left.replace(left)
        self.burn.replace(burn)
