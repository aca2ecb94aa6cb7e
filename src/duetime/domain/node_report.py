"""What each node tells the others about itself, every two seconds, so that any node can tell about all nodes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from duetime.domain.instants import DAY, SECOND
from duetime.domain.troubles import JobTrouble, PlaceUse

EVERY = 2 * SECOND
FRESH = 10 * SECOND  # an older report is of a node that has stopped, or that can't write
FORGOTTEN = 3600 * SECOND  # older reports are removed


class CertificateFact(msgspec.Struct, frozen=True, array_like=True):
    """When the certificate of a target, https://host:port, ends."""

    tenant: str
    target: str
    ends_at: int


ENDS_SOON = 60 * DAY
MOST_CERTIFICATES = 50  # in a report


def ending_soon(certificates: Iterable[CertificateFact], now: int) -> tuple[CertificateFact, ...]:
    """Returns those that a report tells of: the first that end."""
    soon = [it for it in certificates if it.ends_at - now < ENDS_SOON]
    return tuple(sorted(soon, key=lambda it: it.ends_at)[:MOST_CERTIFICATES])


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
    troubles: tuple[JobTrouble, ...] = ()  # the worst jobs of the last minutes
    certificates: tuple[CertificateFact, ...] = ()  # of targets that it calls, those that end soon
    places: tuple[PlaceUse, ...] = ()  # the tenants and targets with most executions here


class NodeReport(msgspec.Struct, frozen=True, array_like=True):
    node: int
    at: int
    facts: NodeFacts

    def is_fresh(self, now: int) -> bool:
        return abs(now - self.at) <= FRESH
