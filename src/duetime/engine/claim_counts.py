"""What a `ClaimQueue` keeps by tenant, by endpoint, and by both: waiting claims, and how many run and are held."""

from __future__ import annotations

from collections import deque

from duetime.domain.execution import Claim
from duetime.domain.job import JobType

PRIORITIES = 10


class TenantQueue:
    """The claims that a node holds for one tenant."""

    __slots__ = ("held", "is_in_turns", "queues", "ready", "rings", "running", "several", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.queues: dict[int, EndpointQueue] = {}
        self.rings: list[deque[EndpointQueue]] = [deque() for _ in range(PRIORITIES)]  # not blocked, by priority
        self.ready = 0  # bits: ring `p` is not empty
        self.is_in_turns = False
        self.running = 0
        self.several = 0  # endpoints with more than one running attempt
        self.held = 0  # places of claims: waiting, running, or ended and not yet recorded


class Endpoint:
    """The attempts that a node runs against one endpoint, for all tenants."""

    __slots__ = ("blocked", "kind", "limit", "number", "running", "tenants")

    def __init__(self, number: int, kind: JobType, limit: int) -> None:
        self.number = number
        self.kind = kind  # the type of all jobs for it
        self.limit = limit
        self.running = 0
        self.tenants = 0  # that have claims for it
        self.blocked: deque[EndpointQueue] = deque()  # queues that found no free place


class EndpointQueue:
    """The claims that a node holds for one tenant and one endpoint."""

    __slots__ = ("cancelled", "endpoint", "held", "is_blocked", "owner", "ringed", "running", "waiting")

    def __init__(self, owner: TenantQueue, endpoint: Endpoint) -> None:
        self.owner = owner
        self.endpoint = endpoint
        self.waiting: list[deque[Claim] | None] = [None] * PRIORITIES
        self.ringed = 0  # bits: ring `p` of its owner contains this queue
        self.is_blocked = False
        self.running = 0
        self.held = 0
        self.cancelled = 0  # places of cancelled claims that are still in `waiting`
