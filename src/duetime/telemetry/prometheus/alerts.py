"""Metrics of Duetime's own alerts: only the node that evaluates the rules has values."""

from __future__ import annotations

from duetime.domain.alerts import AlertState
from duetime.telemetry.emitted import AlertsEvaluated, AlertsMoved
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Counter, Distribution, Gauge

TURN = range(-10, 6)


class AlertMetrics:
    def __init__(self, telemetry: Telemetry) -> None:
        self.moved = Counter(
            "alerts_moved", "Alerts that began to fire or were resolved, by severity.", ["state", "severity"],
            starts=[(state, severity) for state in (AlertState.FIRING, AlertState.RESOLVED)
                    for severity in ("info", "warning", "critical")],
        )  # fmt: skip
        self.firing = Gauge("alerts_firing", "Alerts that fire now, of all tenants.")
        self.omitted = Gauge("alerts_omitted", "Subjects beyond the most alerts of one rule, at the last evaluation.")
        self.turns = Distribution(
            "alerts_evaluation_seconds", "How long it took to evaluate all rules.", exponents=TURN
        )
        telemetry.subscribe(AlertsMoved, self._note_moved)
        telemetry.subscribe(AlertsEvaluated, self._note_turn)

    def _note_moved(self, moved: AlertsMoved) -> None:
        for alert in moved.alerts:
            self.moved.add(1, str(alert.state), str(alert.severity))

    def _note_turn(self, turn: AlertsEvaluated) -> None:
        self.firing.set(turn.firing)
        self.omitted.set(turn.omitted)
        self.turns.of().observe(turn.seconds)
