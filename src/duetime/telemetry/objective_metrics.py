"""The metrics of objectives: of the jobs with the least error budget left, a bounded number of them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from duetime.domain.budgets import worst_of
from duetime.telemetry.emitted import ObjectivesRead
from duetime.telemetry.hub import Telemetry

MOST_OBJECTIVES = 20
LABELS = ("tenant", "job_id", "objective")


class ObjectiveMetrics:
    """Only the node that reads the objectives has values: one node of the cluster."""

    def __init__(self, registry: CollectorRegistry, telemetry: Telemetry) -> None:
        self._left = Gauge(
            "duetime_slo_error_budget_left_ratio",
            f"share of the error budget left, of the {MOST_OBJECTIVES} objectives with least; below 0: overspent",
            LABELS, registry=registry,
        )  # fmt: skip
        self._burn = Gauge(
            "duetime_slo_burn_rate_ratio",
            "how fast these objectives burn their budget: at 1 it lasts exactly for the objective's window",
            (*LABELS, "over"), registry=registry,
        )  # fmt: skip
        telemetry.subscribe(ObjectivesRead, self._set)

    def _set(self, read: ObjectivesRead) -> None:
        self._left.clear()
        self._burn.clear()
        for one in worst_of(read.standings, MOST_OBJECTIVES):
            labels = one.tenant, one.job_id, str(one.standing.objective.kind)
            self._left.labels(*labels).set(one.standing.budget.left)
            for span, rate in one.standing.budget.burn_rate.items():
                self._burn.labels(*labels, span).set(rate)
