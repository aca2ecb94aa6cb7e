"""The queue of claims that wait for a place: tenants take turns, and the endpoints within a tenant take turns.

A tenant's highest priority comes first. Endpoints with claims of that priority start one claim each in turn. An
endpoint without a free place, or with a used-up rate limit, is blocked: its claims do not delay others. Blocking only
saves repeated checks. `unblock_all` may be called at any time: an endpoint that still has no place is blocked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from duetime.domain.execution import Claim
from duetime.domain.fairness import MOST_OVER, endpoint_share, has_place
from duetime.domain.shares import share_of
from duetime.engine.claim_counts import PRIORITIES, Endpoint, EndpointQueue, TenantQueue

MOST_WOKEN = 16  # queues per freed place: most of them can't use it, and thousands may wait for it
MOST_LOOKED_AT = 16  # tenants, and endpoints of each, for a place beyond the limit: the others get their turn later
MOST_CANCELLED = 64  # places of cancelled claims left in a queue; more are removed once they are most of it


class ClaimQueue:
    """`limit_of(endpoint)`: its concurrency limit. `may_call(queue, claim)`: False blocks the queue until `unblock`.

    `reserved`: an endpoint whose claims start up to its own limit even if no other place is free.
    """

    def __init__(
        self, concurrency: int, tenant_limit: int, limit_of: Callable[[int], int],
        may_call: Callable[[EndpointQueue, Claim], bool] | None = None, reserved: int | None = None,
    ) -> None:  # fmt: skip
        self._concurrency = concurrency
        self._most = concurrency * MOST_OVER
        self._tenant_limit = tenant_limit
        self._limit_of = limit_of
        self._may_call = may_call
        self._reserved = reserved
        self._reserved_turns: deque[EndpointQueue] = deque()  # of the reserved endpoint: one for each tenant
        self._turns: deque[TenantQueue] = deque()
        self.tenants: dict[str, TenantQueue] = {}
        self.endpoints: dict[int, Endpoint] = {}
        self.waiting: dict[str, Claim] = {}  # by execution id; a claim in a queue that is not in here was removed
        self.queues = 0  # number of EndpointQueues
        self.running = 0
        self.held = 0

    # Adding claims

    def add(self, claim: Claim) -> None:
        """Adds a claim that was not held before. `put_back` is for one that was."""
        tenant = self.tenants.get(claim.tenant)
        is_new = tenant is None
        if tenant is None:
            tenant = self.tenants[claim.tenant] = TenantQueue(claim.tenant)
        queue = tenant.queues.get(claim.endpoint)
        if queue is None:
            queue = self._open(tenant, claim)
        places = claim.places
        self.held += places
        tenant.held += places
        queue.held += places
        self.waiting[claim.execution_id] = claim
        waiting = queue.waiting[claim.priority]
        if waiting is None:
            waiting = queue.waiting[claim.priority] = deque()
        waiting.append(claim)
        if not queue.is_blocked and not queue.ringed >> claim.priority & 1:
            self._ring(queue, claim.priority, is_new)

    def put_back(self, claim: Claim) -> None:
        """Puts a claim that was taken, but did not start, back at the front of its queue."""
        queue = self.tenants[claim.tenant].queues[claim.endpoint]
        self.waiting[claim.execution_id] = claim
        waiting = queue.waiting[claim.priority]
        assert waiting is not None
        waiting.appendleft(claim)
        if not queue.is_blocked and not queue.ringed >> claim.priority & 1:
            self._ring(queue, claim.priority)

    def _open(self, tenant: TenantQueue, claim: Claim) -> EndpointQueue:
        number = claim.endpoint
        endpoint = self.endpoints.get(number)
        if endpoint is None:
            endpoint = self.endpoints[number] = Endpoint(number, claim.spec.type, self._limit_of(number))
        endpoint.tenants += 1
        self.queues += 1
        queue = tenant.queues[number] = EndpointQueue(tenant, endpoint)
        if number == self._reserved:
            self._reserved_turns.append(queue)
        return queue

    def _ring(self, queue: EndpointQueue, priority: int, is_new: bool = False) -> None:
        queue.ringed |= 1 << priority
        tenant = queue.owner
        tenant.rings[priority].append(queue)
        tenant.ready |= 1 << priority
        if not tenant.is_in_turns:
            tenant.is_in_turns = True
            # A tenant that held no claims comes first. One that was only blocked does not: otherwise each end of one
            # of its attempts would put it before all others.
            (self._turns.appendleft if is_new else self._turns.append)(tenant)

    # Starting claims

    def take(self) -> Claim | None:
        """Returns the next claim for which its tenant and endpoint have a free place, and occupies that place.

        Tenants below their share come first, and may exceed the limit (`domain.fairness`). The others get the places
        that are left. The reserved endpoint has places of its own besides.
        """
        turns = self._turns
        if not turns or self.running >= self._most:
            return self._take_reserved() if self._reserved_turns else None
        if self.queues == 1 and len(turns) == 1:
            return self._take_alone(turns[0])
        share = share_of(self._concurrency, len(self.tenants))
        claim = self._take_of_tenants_below(share)
        if claim is None and self.running < self._concurrency and share < self._concurrency:
            claim = self._take_of_tenants_below(self._concurrency)
        if claim is None and self.running >= self._concurrency:
            claim = self._take_of_endpoints_below(share)
        if claim is None and self._reserved_turns:
            claim = self._take_reserved()
        return claim

    def _take_reserved(self) -> Claim | None:
        """Returns a claim for the reserved endpoint, if fewer run there than its limit. Tenants take turns."""
        turns = self._reserved_turns
        for _ in range(min(len(turns), MOST_LOOKED_AT)):
            queue = turns[0]
            turns.rotate(-1)
            if queue.endpoint.running >= queue.endpoint.limit:
                return None
            for waiting in reversed(queue.waiting):
                while waiting and not self._waits(waiting[0]):
                    queue.cancelled -= waiting.popleft().places
                if waiting:
                    return self._start(queue, waiting.popleft())
        return None

    def _take_alone(self, tenant: TenantQueue) -> Claim | None:
        """Returns the next claim of the only tenant, which has one endpoint: the same as below, without the shares.

        Most bursts are of this kind, and each of their claims comes through here.
        """
        claim = None
        if self.running < self._concurrency and tenant.running < self._tenant_limit:
            claim = self._next_of(tenant)
        if not tenant.ready:
            self._turns.popleft()
            tenant.is_in_turns = False
        return claim

    def _take_of_tenants_below(self, most: int) -> Claim | None:
        turns, most = self._turns, min(most, self._tenant_limit)
        for _ in range(len(turns)):
            tenant = turns[0]
            claim = self._next_of(tenant) if tenant.running < most else None
            if not tenant.ready:
                turns.popleft()
                tenant.is_in_turns = False
            elif len(turns) > 1:
                turns.rotate(-1)
            if claim is not None:
                return claim
        return None

    def _take_of_endpoints_below(self, share: int) -> Claim | None:
        """Returns a claim of a tenant that has its share already, for an endpoint that has less than its part of it.

        Otherwise an endpoint that hangs would block the other endpoints of its tenant.
        """
        for tenant in islice(self._turns, MOST_LOOKED_AT):
            if tenant.running >= self._tenant_limit or not tenant.several:
                continue
            part = share_of(share, len(tenant.queues))
            priority = tenant.ready.bit_length() - 1
            ring = tenant.rings[priority]
            for _ in range(min(len(ring), MOST_LOOKED_AT)):
                queue = ring[0]
                ring.rotate(-1)
                waiting = queue.waiting[priority]
                if not waiting or queue.is_blocked or queue.running >= part or not self._waits(waiting[0]):
                    continue
                if self._may_start(queue, waiting[0]):
                    return self._start(queue, waiting.popleft())
        return None

    def _next_of(self, tenant: TenantQueue) -> Claim | None:
        known = self.waiting
        while tenant.ready:
            priority = tenant.ready.bit_length() - 1
            ring = tenant.rings[priority]
            queue = ring[0]
            waiting = queue.waiting[priority]
            while waiting and known.get(waiting[0].execution_id) is not waiting[0]:  # `_waits`, without a call
                queue.cancelled -= waiting.popleft().places
            if waiting and not queue.is_blocked:
                endpoint = queue.endpoint
                if self.queues == 1 and endpoint.running >= endpoint.limit:
                    return None  # there is no other queue: blocking this one would only slow down a burst
                is_free = endpoint.running < endpoint.limit and self._may_call is None
                if is_free or self._may_start(queue, waiting[0]):
                    if len(ring) > 1:
                        ring.rotate(-1)
                    return self._start(queue, waiting.popleft())
            ring.popleft()
            queue.ringed &= ~(1 << priority)
            if not ring:
                tenant.ready &= ~(1 << priority)
        return None

    def _may_start(self, queue: EndpointQueue, claim: Claim) -> bool:
        """Returns whether the endpoint has a free place and may be called now. If not, blocks the queue."""
        endpoint = queue.endpoint
        if endpoint.running >= endpoint.limit and not has_place(
            endpoint.running, endpoint.limit, queue.running, endpoint.tenants
        ):
            queue.is_blocked = True
            endpoint.blocked.append(queue)
        elif self._may_call is not None and not self._may_call(queue, claim):
            queue.is_blocked = True
        return not queue.is_blocked

    def _start(self, queue: EndpointQueue, claim: Claim) -> Claim:
        del self.waiting[claim.execution_id]
        tenant = queue.owner
        queue.running += 1
        if queue.running == 2:
            tenant.several += 1
        tenant.running += 1
        queue.endpoint.running += 1
        self.running += 1
        return claim

    # Ending claims

    def end(self, claim: Claim) -> None:
        """Frees the place of an attempt that has ended."""
        tenant = self.tenants[claim.tenant]
        queue = tenant.queues[claim.endpoint]
        queue.running -= 1
        if queue.running == 1:
            tenant.several -= 1
        tenant.running -= 1
        endpoint = queue.endpoint
        endpoint.running -= 1
        self.running -= 1
        if endpoint.blocked:
            for _ in range(min(MOST_WOKEN, len(endpoint.blocked))):
                self.unblock(endpoint.blocked.popleft())
        if not queue.held and not queue.running:
            self._close(queue)

    def unblock(self, queue: EndpointQueue) -> None:
        queue.is_blocked = False
        for priority, waiting in enumerate(queue.waiting):
            if waiting and not queue.ringed >> priority & 1:
                self._ring(queue, priority)

    def unblock_all(self) -> None:
        """Unblocks every queue that waits for a place."""
        for endpoint in self.endpoints.values():
            while endpoint.blocked:
                self.unblock(endpoint.blocked.popleft())

    def remove(self, claim: Claim) -> bool:
        """Removes a waiting claim. Returns False if it is not waiting. Its memory counts as held until `forget`."""
        if not self._waits(claim):
            return False
        del self.waiting[claim.execution_id]
        queue = self.tenants[claim.tenant].queues[claim.endpoint]
        queue.cancelled += claim.places
        if queue.cancelled > MOST_CANCELLED and queue.cancelled * 2 > queue.held:
            queue.cancelled = 0
            queue.waiting = [waiting and deque(one for one in waiting if self._waits(one)) for waiting in queue.waiting]
        return True

    def forget(self, claim: Claim) -> None:
        """Frees the memory of a claim that is recorded."""
        places = claim.places
        self.held -= places
        tenant = self.tenants[claim.tenant]
        queue = tenant.queues[claim.endpoint]
        tenant.held -= places
        queue.held -= places
        if not queue.held and not queue.running:
            self._close(queue)

    def _close(self, queue: EndpointQueue) -> None:
        endpoint, tenant = queue.endpoint, queue.owner
        self.queues -= 1
        del tenant.queues[endpoint.number]
        if endpoint.number == self._reserved:
            self._reserved_turns.remove(queue)
        if not tenant.queues:
            del self.tenants[tenant.tenant]
        queue.waiting = [None] * PRIORITIES  # where it is still in a ring or blocked, it is skipped
        endpoint.tenants -= 1
        if not endpoint.tenants:
            del self.endpoints[endpoint.number]

    def _waits(self, claim: Claim) -> bool:
        """Returns whether this claim still waits. A later claim of the same execution is another `Claim` object."""
        return self.waiting.get(claim.execution_id) is claim

    # Held claims

    def latest_of(self, tenant: str, places: int) -> list[Claim]:
        """Returns waiting claims of a tenant that take `places` in total, from the one that would start last on."""
        found: list[Claim] = []
        for claim in self._backwards(self.tenants[tenant]):
            if places <= 0:
                break
            found.append(claim)
            places -= claim.places
        return found

    def _backwards(self, tenant: TenantQueue) -> Iterator[Claim]:
        for priority in range(PRIORITIES):
            for queue in sorted(tenant.queues.values(), key=lambda queue: -len(queue.waiting[priority] or ())):
                for claim in reversed(queue.waiting[priority] or ()):
                    if self._waits(claim):
                        yield claim

    @property
    def reserved_held(self) -> int:
        """Returns how many places the claims for the reserved endpoint take."""
        return sum(queue.held for queue in self._reserved_turns)

    def full_endpoints(self, share: int) -> list[tuple[str, int]]:
        """Returns (tenant, endpoint) where a tenant holds more for one endpoint than is fair to its other endpoints."""
        most = endpoint_share(share)
        return [
            (tenant.tenant, queue.endpoint.number)
            for tenant in self.tenants.values()
            if tenant.held >= most
            for queue in tenant.queues.values()
            if queue.held >= most
        ]

    def clear(self) -> list[Claim]:
        """Removes and returns all waiting claims. Their memory counts as held still."""
        waiting = list(self.waiting.values())
        self.waiting.clear()
        self._turns.clear()
        return waiting
