"""How many workers a tenant may have, how much they may say of themselves, and how often they may join. Pure.

A worker joins once in its life. The bucket of joins holds several restarts of a whole fleet; names of functions count
in it, too, for they are written with each join and each sign of life.
"""

from __future__ import annotations

import msgspec

from duetime.domain.errors import RateLimited
from duetime.domain.instants import HOUR
from duetime.domain.limits import ALL_USERS, Limit, Quota

MOST_NAME_BYTES = 4 * 1024 * 1024  # of the names of functions of all workers of a tenant
PAGE_BYTES = 1024 * 1024  # of names, in a page of workers
LEAST_JOINS = 2000  # an hour, however few workers a tenant may have
JOINS_A_WORKER = 10  # an hour
JOIN_BYTES = 4096  # of names: as much as one join more
FULL_SECONDS = 5  # after which a worker that found no place may ask again: those that died have ended by then


class WorkerLimits(msgspec.Struct, frozen=True):
    """Of one tenant."""

    workers: int
    name_bytes: int = MOST_NAME_BYTES

    def quota(self, tenant: str) -> Quota:
        """For the joins of a tenant."""
        most = max(LEAST_JOINS, JOINS_A_WORKER * self.workers)
        return Quota(tenant, ALL_USERS, Limit("joins", most, HOUR))

    def check(self, workers: int, name_bytes: int, more_bytes: int) -> None:
        """Raises RateLimited if a tenant with so many workers, and so many bytes of names, can't have one more."""
        if workers >= self.workers:
            raise RateLimited(
                f"your tenant has {workers:,} workers, which is the most it may have; start fewer workers with more "
                "slots each, or ask the operator (TENANT_WORKERS_LIMIT). A place is free when a worker leaves, or was "
                "silent for its lease",
                FULL_SECONDS,
            )
        if name_bytes + more_bytes > self.name_bytes:
            raise RateLimited(
                f"the names of the functions of your tenant's workers have {name_bytes:,} of {self.name_bytes:,} bytes "
                f"at most: {more_bytes:,} more are too many; give functions shorter names, or workers fewer functions",
                FULL_SECONDS,
            )


def cost_of_join(name_bytes: int) -> int:
    """Returns how much a join counts in the tenant's quota."""
    return 1 + name_bytes // JOIN_BYTES
