"""Notes the worst jobs of this node as their attempts end. A subscriber of telemetry: nothing waits for it."""

from __future__ import annotations

from duetime.domain.troubles import JobTrouble, Troubles
from duetime.telemetry.emitted import AttemptsEnded
from duetime.telemetry.hub import Telemetry


class TroubleNotes:
    def __init__(self, telemetry: Telemetry) -> None:
        self._troubles = Troubles()
        telemetry.subscribe(AttemptsEnded, self._note)

    def worst(self, now: int) -> tuple[JobTrouble, ...]:
        return self._troubles.worst(now)

    def _note(self, ended: AttemptsEnded) -> None:
        self._troubles.add(ended.at, ended.results, ended.refused)
