"""How often an endpoint is called: so many requests a second, spread evenly, by the bucket of `domain.limits`."""

from __future__ import annotations

import math

from duetime.domain.instants import SECOND
from duetime.domain.limits import MICRO, Limit, take

MOST_KEPT = 4096  # endpoints; beyond, those whose bucket is full again are forgotten
AT_ONCE = 10  # the bucket holds what comes in a tenth of a second, and one at least


def limit_of(per_second: float) -> Limit:
    """Never more than that; a little less where it does not come out even."""
    most = max(1, int(per_second / AT_ONCE))
    return Limit("endpoint", most, math.ceil(most * SECOND / per_second))


class RateLimiter:
    """`now` is in seconds, of a clock that never jumps."""

    def __init__(self, per_second: float) -> None:
        self._limit = limit_of(per_second)
        self._full_at: dict[int, int] = {}

    def take(self, endpoint: int, now: float) -> bool:
        """One request, if there is one left."""
        if len(self._full_at) > MOST_KEPT:
            self._full_at = {one: at for one, at in self._full_at.items() if at > now * SECOND * MICRO}
        moved = take(self._limit, self._full_at.get(endpoint, 0), int(now * SECOND), 1)
        if moved is None:
            return False
        self._full_at[endpoint] = moved
        return True

    def wait(self, endpoint: int, now: float) -> float:
        """Seconds until there is one."""
        limit = self._limit
        wait = self._full_at.get(endpoint, 0) + limit.emission - limit.bucket - int(now * SECOND) * MICRO
        return max(wait / (SECOND * MICRO), 0.0) + 1 / SECOND  # `take` counts in whole ms
