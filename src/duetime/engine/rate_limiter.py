"""Limits the requests per second to an endpoint, spread evenly, with the token bucket of `domain.limits`."""

from __future__ import annotations

import math

from duetime.domain.instants import SECOND
from duetime.domain.limits import MICRO, Limit, take

MOST_KEPT = 4096  # endpoints; beyond that, those whose bucket is full again are forgotten
AT_ONCE = 10  # the bucket holds the requests of a tenth of a second, and at least one


def limit_of(per_second: float) -> Limit:
    """Returns a limit that never exceeds `per_second`. Rounding may make it slightly lower."""
    most = max(1, int(per_second / AT_ONCE))
    return Limit("endpoint", most, math.ceil(most * SECOND / per_second))


class RateLimiter:
    """`now` is in seconds of a monotonic clock."""

    def __init__(self, per_second: float) -> None:
        self._limit = limit_of(per_second)
        self._full_at: dict[int, int] = {}

    def take(self, endpoint: int, now: float) -> bool:
        """Takes one token from the endpoint's bucket. Returns False if there is none."""
        if len(self._full_at) > MOST_KEPT:
            self._full_at = {one: at for one, at in self._full_at.items() if at > now * SECOND * MICRO}
        moved = take(self._limit, self._full_at.get(endpoint, 0), int(now * SECOND), 1)
        if moved is None:
            return False
        self._full_at[endpoint] = moved
        return True

    def wait(self, endpoint: int, now: float) -> float:
        """Returns the seconds until `take` succeeds."""
        limit = self._limit
        wait = self._full_at.get(endpoint, 0) + limit.emission - limit.bucket - int(now * SECOND) * MICRO
        return max(wait / (SECOND * MICRO), 0.0) + 1 / SECOND  # `take` counts in whole ms
