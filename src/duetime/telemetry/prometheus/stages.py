"""How long executions wait at each stage between their instant and the ledger."""

from __future__ import annotations

from duetime.domain.histogram import Histogram
from duetime.telemetry.prometheus.families import Distribution, Durations
from duetime.telemetry.readings import DUE, RECORDING

PARKED = "parked"  # in the ledger, until a node has room
SECONDS = range(-9, 13)  # from 2 ms to 68 minutes


class StageWaits:
    def __init__(self) -> None:
        self.waits = Durations(
            "stage_wait_seconds", "Time at a stage: due (from the instant until the page is planned for the ledger), "
            "parked (from the instant until a first attempt is claimed from the ledger), recording (from the end of an "
            "attempt until its page is written).",
            ["stage"], exponents=SECONDS, starts=[(DUE,), (PARKED,), (RECORDING,)],
        )  # fmt: skip
        self.queue_wait = Distribution(
            "execution_queue_wait_seconds", "Wait on this node between the claim and a free place, of the last "
            "execution of each page that was claimed.", exponents=SECONDS,
        )  # fmt: skip
        self.due: Histogram = self.waits.of(DUE)
        self.parked: Histogram = self.waits.of(PARKED)
        self.recording: Histogram = self.waits.of(RECORDING)
        self.queued = self.queue_wait.of()
