"""What each node tells the others about itself, every two seconds, so that any node can tell about all nodes."""

from __future__ import annotations

import msgspec

from duetime.domain.instants import SECOND

EVERY = 2 * SECOND
FRESH = 10 * SECOND  # an older report is of a node that has stopped, or that can't write
FORGOTTEN = 3600 * SECOND  # older reports are removed


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts are from memory. `loop_lag_ms`: the longest delay of the event loop since the last report."""

    name: str = ""
    version: str = ""
    roles: tuple[str, ...] = ()
    started_at: int = 0
    standing: str = ""
    shards: int = 0
    loop_lag_ms: float = 0.0
    clock_offset_ms: int | None = None
    in_flight: int = 0  # attempts that run
    limit: int = 0  # attempts that may run at once
    queued: int = 0  # claimed executions that wait for a slot
    parked: int = 0  # of these, those whose target or tenant has no free slot
    due_buffer: int = 0  # timers that were read ahead
    unwritten: int = 0  # results that wait for the recorder
    failing: tuple[str, ...] = ()  # services whose last turn failed


class NodeReport(msgspec.Struct, frozen=True, array_like=True):
    node: int
    at: int
    facts: NodeFacts

    def is_fresh(self, now: int) -> bool:
        return abs(now - self.at) <= FRESH
