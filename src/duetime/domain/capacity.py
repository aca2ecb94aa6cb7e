"""The store's capacity: the number of jobs and the bytes of their definitions; and how tenants share it.

Jobs can't be taken back from a tenant that holds too many. So one tenant never gets all of the room. It may fill the
open part (`tenant_percent`); the rest is a reserve for tenants that hold less than what is still free. In the reserve
each tenant leaves at least as much free as it holds itself, so the next tenant always finds room.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duetime.domain.errors import InsufficientStorage

JOB_OVERHEAD_BYTES = 512  # of a job besides its definition: its timer, its columns and their indexes
DEGRADED_PERCENT = 90.0
# Writers that add at the same time don't see each other's jobs yet. This far from a limit they can't pass it together.
AMPLE = 50_000, 256 * 1024 * 1024  # jobs, bytes


class Load(msgspec.Struct, frozen=True, array_like=True):
    """The stored jobs and bytes, of all tenants or of one."""

    jobs: int = 0
    bytes: int = 0

    def plus(self, jobs: int, size: int) -> Load:
        return Load(self.jobs + jobs, self.bytes + size)


def open_part(most: int, tenant_percent: int) -> int:
    """Returns the most that one tenant may hold of `most`: at least one."""
    return max(1, most * tenant_percent // 100)


def may_add(held: int, total: int, more: int, most: int, tenant_percent: int) -> bool:
    """Returns whether a tenant that holds `held` of `total` may add `more`.

    Up to the open part all tenants add freely. Beyond it a tenant may add only while it holds no more than stays free.
    """
    opened = open_part(most, tenant_percent)
    held, total = held + more, total + more
    return held <= opened and total <= most and (total <= opened or held <= most - total)


class Capacity(msgspec.Struct, frozen=True):
    """The limits; None means no limit. `tenant_percent`: the part of each limit that one tenant may hold."""

    most_jobs: int | None = None
    most_bytes: int | None = None
    tenant_percent: int = 100

    def check(self, load: Load, held: Load, jobs: int, size: int) -> None:
        """Raises InsufficientStorage if a tenant that holds `held` of `load` may not add `jobs` jobs and `size` bytes.

        The error has the tenant's own figures: it must not reveal what other tenants hold.
        """
        figures = (
            ("memory", self.most_bytes, load.bytes, held.bytes, size),
            ("job_count", self.most_jobs, load.jobs, held.jobs, jobs),
        )
        for kind, most, total, own, more in figures:
            if most is not None and more > 0 and not may_add(own, total, more, most, self.tenant_percent):
                raise InsufficientStorage(kind, own, open_part(most, self.tenant_percent), more)

    def is_near(self, load: Load) -> bool:
        """Returns whether writers must add jobs one by one: no tenant is refused before the open part is full."""
        limits = zip((load.jobs, load.bytes), (self.most_jobs, self.most_bytes), AMPLE, strict=True)
        return any(
            most is not None and current > open_part(most, self.tenant_percent) - max(most // 10, ample)
            for current, most, ample in limits
        )

    def utilization_percent(self, load: Load) -> float:
        """Returns the utilization of the limit that is nearest."""
        limits = ((load.bytes, self.most_bytes), (load.jobs, self.most_jobs))
        return max((100.0 * current / most for current, most in limits if most is not None), default=0.0)

    def is_filling(self, load: Load) -> bool:
        """Returns whether creates will soon be refused: the open part is nearly full."""
        return self.utilization_percent(load) >= DEGRADED_PERCENT * self.tenant_percent / 100


UNBOUNDED = Capacity()


def size_of(definition: str | bytes) -> int:
    """Returns the bytes that a job counts for, by its stored definition."""
    return len(definition) + JOB_OVERHEAD_BYTES


def loads(tenants: Sequence[str], sizes: Sequence[int], sign: int = 1) -> dict[str, Load]:
    """Returns the load that jobs of these tenants and sizes add to each tenant; with `sign` -1, that they remove."""
    if len(set(tenants)) == 1:  # true of nearly every page: avoids work for each job
        return {tenants[0]: Load(sign * len(sizes), sign * sum(sizes))}
    numbers: dict[str, int] = {}
    totals: dict[str, int] = {}
    for tenant, size in zip(tenants, sizes, strict=True):
        numbers[tenant] = numbers.get(tenant, 0) + sign
        totals[tenant] = totals.get(tenant, 0) + sign * size
    return {tenant: Load(number, totals[tenant]) for tenant, number in numbers.items()}
