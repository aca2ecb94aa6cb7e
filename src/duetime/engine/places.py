"""Who takes a node's places: the tenants and the targets with most executions here. For reports, not for decisions."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from operator import attrgetter

from duetime.domain.endpoints import target_of
from duetime.domain.execution import Claim
from duetime.domain.troubles import PlaceUse
from duetime.engine.claim_counts import EndpointQueue, TenantQueue
from duetime.engine.claim_queue import ClaimQueue

MOST_TENANTS = 10
MOST_TARGETS = 10  # of all tenants, and looked for among the largest tenants only

_held = attrgetter("held")


def place_uses(queue: ClaimQueue) -> tuple[PlaceUse, ...]:
    """Returns the tenants that hold most, and their targets that hold most. Large executions count more than once."""
    tenants = nlargest(MOST_TENANTS, queue.tenants.values(), key=_held)
    queues = nlargest(MOST_TARGETS, (one for tenant in tenants for one in tenant.queues.values()), key=_held)
    return (*map(_of_tenant, tenants), *_of_targets(queues, queue.waiting))


def _of_tenant(tenant: TenantQueue) -> PlaceUse:
    return PlaceUse(tenant.tenant, "", tenant.running, max(0, tenant.held - tenant.running))


def _of_targets(queues: Iterable[EndpointQueue], waiting: dict[str, Claim]) -> Iterable[PlaceUse]:
    """Yields the targets for which something waits: only a waiting claim knows the name of its target."""
    for queue in queues:
        claim = next((one for line in queue.waiting if line for one in line if one.execution_id in waiting), None)
        if claim is not None:
            held = max(0, queue.held - queue.running)
            yield PlaceUse(queue.owner.tenant, target_of(claim.spec), queue.running, held)
