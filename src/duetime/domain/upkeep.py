"""How long idle connections to the database are kept, and which are closed. Pure: time is an argument.

Proxies and load balancers cut old connections. A connection that is replaced in time is not cut during a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

SURPLUS_SECONDS = 10.0  # how long a connection beyond `most_idle` is still kept: reads come in bursts


class Idle(NamedTuple):
    since: float  # when it was last used
    ends_at: float  # when it is too old


class Upkeep(msgspec.Struct, frozen=True):
    """Seconds; None: no such bound."""

    most_idle: int
    idle_seconds: float | None = None
    lifetime_seconds: float | None = None

    def ends_at(self, opened_at: float, jitter: float) -> float:
        """Returns when a connection is too old: up to a tenth before its lifetime, so that not all end at once."""
        if self.lifetime_seconds is None:
            return float("inf")
        return opened_at + self.lifetime_seconds * (1 - jitter / 10)

    def unneeded(self, idle: Sequence[Idle], now: float) -> list[int]:
        """Returns the positions in `idle` of the connections to close. `idle` is in the order of last use."""
        beyond = len(idle) - self.most_idle
        return [
            place
            for place, (since, ends_at) in enumerate(idle)
            if now >= ends_at
            or (self.idle_seconds is not None and now - since >= self.idle_seconds)
            or (place < beyond and now - since >= SURPLUS_SECONDS)
        ]
