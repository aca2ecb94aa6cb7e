"""Fair shares of places and memory for attempts: by tenant, then by endpoint. `domain.shares` has the general rule.

A tenant that is alone may use everything. As soon as another has work, both have the same share. Two resources are
shared. A place that an attempt occupies can't be taken back before the attempt ends; memory for waiting claims can.
"""

from __future__ import annotations

from collections.abc import Mapping

from duetime.domain.shares import may_have_more, share_of

# How far tenants that come late may together exceed the limit on places. The n-th tenant gets 1/n of the limit, so 30
# tenants that each hold as many as they can reach this bound.
MOST_OVER = 4
FEW_DUE = 256  # timers of a tenant: fired in some ten milliseconds


def has_place(taken: int, limit: int, own: int, tenants: int) -> bool:
    """Returns whether a tenant that occupies `own` of the `taken` places may occupy another.

    Every tenant may while a place is free. When none is, a tenant below its share gets a place beyond the limit:
    others hold more than their share, and it is unknown when their attempts end. `tenants` counts those with work.
    """
    return taken < limit * MOST_OVER and may_have_more(own, taken, limit, tenants)


def memory_share(capacity: int, tenants: int) -> int:
    """Returns how many claims each of `tenants` tenants may hold in memory.

    A quarter stays free for a tenant that holds none yet: it must not wait until others make room.
    """
    return share_of(capacity * 3 // 4, tenants)


def endpoint_share(tenant_share: int) -> int:
    """Returns how many claims of its tenant's share may be for one endpoint: a target that hangs leaves a quarter."""
    return max(1, tenant_share * 3 // 4)


def crowding(due: Mapping[str, int]) -> frozenset[str]:
    """Returns the tenants that others must not wait for, by how many timers of each are due and not fired yet.

    These tenants have more than half an even share, and more than `FEW_DUE`. If all tenants have about the same number,
    all are returned: then no tenant has few enough to go first.
    """
    even = sum(due.values()) // max(1, len(due))
    return frozenset(tenant for tenant, count in due.items() if count > max(FEW_DUE, even // 2))
