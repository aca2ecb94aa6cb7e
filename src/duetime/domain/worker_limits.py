"""Limits of a tenant's workers: their number, the bytes of their function names, and their joins. Pure.

A worker joins once in its life. The quota of joins allows several restarts of all workers. Names of functions count
towards it, too, because each join and each heartbeat writes them.
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
FULL_SECONDS = 5  # after which a refused worker may try again: dead workers have ended by then


class WorkerLimits(msgspec.Struct, frozen=True):
    """The limits of one tenant."""

    workers: int
    name_bytes: int = MOST_NAME_BYTES

    def quota(self, tenant: str) -> Quota:
        """Returns the quota for the joins of a tenant."""
        most = max(LEAST_JOINS, JOINS_A_WORKER * self.workers)
        return Quota(tenant, ALL_USERS, Limit("joins", most, HOUR))

    def check(self, workers: int, name_bytes: int, more_bytes: int) -> None:
        """Raises RateLimited if a tenant with these workers and bytes of names can't add one with `more_bytes`."""
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
