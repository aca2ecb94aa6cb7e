"""Fair shares of what attempts need: by tenant first, then by endpoint. `domain.shares` has the rule for all else.

A tenant that is alone may use everything. As soon as another has work, both have the same share. Two kinds of things
are shared. A place that an attempt occupies can't be taken back before the attempt ends; memory for waiting claims can.
"""

from __future__ import annotations

from collections.abc import Mapping

from duetime.domain.shares import may_have_more, share_of

# How far the tenants that come late may exceed a limit on places together. The n-th tenant gets 1/n of the limit, so 30
# tenants that each hold all they can reach it.
MOST_OVER = 4
FEW_DUE = 256  # timers of a tenant: fired in some ten milliseconds


def has_place(taken: int, limit: int, own: int, tenants: int) -> bool:
    """Returns whether a tenant that occupies `own` of the `taken` places may occupy another.

    Every tenant may while a place is free. When none is, a tenant below its share gets a place beyond the limit:
    others hold more than theirs, and nobody knows when their attempts end. `tenants` counts those that have work.
    """
    return taken < limit * MOST_OVER and may_have_more(own, taken, limit, tenants)


def memory_share(capacity: int, tenants: int) -> int:
    """Returns how many claims one of so many tenants may hold in memory.

    A quarter stays free for a tenant that holds none yet: it must not wait until room was made.
    """
    return share_of(capacity * 3 // 4, tenants)


def endpoint_share(tenant_share: int) -> int:
    """Returns how many claims of its tenant's share may be for one endpoint: a target that hangs leaves a quarter."""
    return max(1, tenant_share * 3 // 4)


def crowding(due: Mapping[str, int]) -> frozenset[str]:
    """Returns the tenants that others must not wait for, by how many timers of each are due and not fired yet.

    They are those that have more than half an even share, and more than a few. Where all have about the same, all are:
    then nobody has few enough to go before the others.
    """
    even = sum(due.values()) // max(1, len(due))
    return frozenset(tenant for tenant, count in due.items() if count > max(FEW_DUE, even // 2))
