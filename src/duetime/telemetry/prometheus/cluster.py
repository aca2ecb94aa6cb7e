"""Metrics of the node in its cluster, of its services, and of the interpreter that runs them."""

from __future__ import annotations

from duetime.telemetry.emitted import Fenced, GarbageCollected, LoopLagged, ShardsMoved, TakenOver, TurnFailed
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import Counter, Distribution

SHORT = range(-11, 5)


class ClusterMetrics:
    def __init__(self, telemetry: Telemetry) -> None:
        self.handovers = Counter(
            "shard_handovers", "Shards that this node gained or lost.", ["direction"], starts=[("gained",), ("lost",)]
        )
        self.leases_lost = Counter("leases_lost", "How often this node lost its lease and joined again.")
        self.cycles = Counter("reconciler_cycles", "Searches for executions of expired nodes and workers.")
        self.orphans = Counter(
            "orphans_returned", "Executions of expired nodes and workers that were returned or ended."
        )
        self.turn_failures = Counter(
            "service_turn_failures", "Turns of a service that failed and were retried, by service; timer: the loop "
            "that fires due jobs.", ["service"], starts=[("timer",), ("recorder",), ("claimer",), ("membership",)],
        )  # fmt: skip
        self.lag = Distribution(
            "event_loop_lag_seconds", "By how much a short sleep of the event loop was longer than asked for.",
            exponents=SHORT,
        )  # fmt: skip
        self.gc_pauses = Distribution(
            "gc_pause_seconds", "Pauses for the garbage collector, by generation.", ["generation"], exponents=SHORT,
            starts=[("0",), ("1",), ("2",)],
        )  # fmt: skip
        telemetry.subscribe(ShardsMoved, self._note_shards)
        telemetry.subscribe(Fenced, lambda _: self.leases_lost.add(1))
        telemetry.subscribe(TakenOver, self._note_cycle)
        telemetry.subscribe(TurnFailed, lambda failed: self.turn_failures.add(1, failed.service))
        telemetry.subscribe(LoopLagged, lambda lagged: self.lag.of().observe(lagged.seconds))
        telemetry.subscribe(
            GarbageCollected, lambda paused: self.gc_pauses.of(str(paused.generation)).observe(paused.seconds)
        )

    def _note_shards(self, moved: ShardsMoved) -> None:
        self.handovers.add(moved.gained, "gained")
        self.handovers.add(moved.lost, "lost")

    def _note_cycle(self, cycle: TakenOver) -> None:
        self.cycles.add(1)
        self.orphans.add(cycle.returned)
