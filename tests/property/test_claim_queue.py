"""The dispatcher under random work: claims arrive, end, are cancelled, returned or not sent.

After each step its counters equal a recount, and no claim waits that could start.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from duetime.domain.execution import Claim
from duetime.domain.fairness import MOST_OVER, has_place
from duetime.domain.ids import execution_id
from duetime.domain.shares import share_of
from duetime.domain.states import Trigger
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.ports.executor import NotSent
from samples import NOW, new_id, spec

JOB = spec()
TURNS = 12  # of the loop: more than any chain of callbacks


class World:
    """A dispatcher, its running attempts, and the expected claims, by execution."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.limits = Limits(
            capacity=rng.choice([8, 40, 200]), concurrency=rng.choice([1, 2, 5, 12]),
            endpoint=rng.choice([1, 2, 4]), tenant=rng.choice([1, 3, 12, 100]),
            special={1: rng.choice([1, 3])} if rng.random() < 0.5 else {},
        )  # fmt: skip
        self.tenants, self.endpoints = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 5])
        self.under_way: dict[str, asyncio.Future[str]] = {}
        self.ended: list[Claim] = []
        self.given_back: list[Claim] = []
        self.held: dict[str, Claim] = {}
        self.is_trusted = True
        self.dispatcher = Dispatcher(
            self.limits, self._attempt, self.ended.append, set(),
            is_held=lambda claim: False, is_trusted=lambda: self.is_trusted,
        )  # fmt: skip
        self._number = 0

    async def _attempt(self, claim: Claim) -> None:
        assert self.held[claim.execution_id] is claim, "a claim that was given back is not started"
        done = self.under_way[claim.execution_id] = asyncio.get_running_loop().create_future()
        try:
            if claim.execution_id not in self.dispatcher.cancelled and await done == "not sent":
                raise NotSent
            self.ended.append(claim)
        except asyncio.CancelledError:
            self.ended.append(claim)
        finally:
            del self.under_way[claim.execution_id]

    def record(self, claims: list[Claim]) -> None:
        for claim in claims:
            del self.held[claim.execution_id]
        self.dispatcher.recorded(claims)

    # Events

    def step(self) -> None:
        deeds = (self.offer, self.offer, self.offer, self.end, self.end, self.end, self.cancel, self.write, self.doubt)
        self.rng.choice((*deeds, self.give_back, self.release))()

    def offer(self) -> None:
        rng, claims = self.rng, []
        tenant = rng.randrange(self.tenants)
        for _ in range(rng.choice([1, 3, 6, 80])):
            self._number += 1
            tenant = tenant if rng.random() < 0.7 else rng.randrange(self.tenants)
            claim = Claim(
                execution_id(NOW, self._number), new_id(), f"t{tenant}", NOW, Trigger.SCHEDULE,
                rng.choice([0, 5, 5, 9]), rng.randrange(self.endpoints), 1, 1, False, JOB,
            )  # fmt: skip
            self.held[claim.execution_id] = claim
            claims.append(claim)
        self.dispatcher.offer(claims)

    def end(self, how: str = "ok") -> None:
        for id in self.rng.sample(sorted(self.under_way), min(len(self.under_way), self.rng.choice([1, 1, 3]))):
            if not self.under_way[id].done():
                self.under_way[id].set_result(how)

    def cancel(self) -> None:
        for id in self.rng.sample(sorted(self.held), min(len(self.held), self.rng.choice([1, 1, 5, 70]))):
            self.dispatcher.cancel(id)

    def write(self) -> None:
        self.rng.shuffle(self.ended)
        count = self.rng.randint(0, len(self.ended))
        written, self.ended[:] = self.ended[:count], self.ended[count:]
        self.record(written)

    def doubt(self) -> None:
        self.is_trusted = not self.is_trusted
        if self.is_trusted:
            self.dispatcher.resume()
        else:
            self.end("not sent")

    def give_back(self) -> None:
        self.given_back += self.dispatcher.make_room(self.rng.choice([1, 5, 100]), ["newcomer"])

    def release(self) -> None:
        claims, self.given_back = self.given_back, []
        self.record(claims)
        if self.rng.random() < 0.6:  # claimed again by this node: the same executions, with later tokens
            again = [msgspec.structs.replace(claim, token=claim.token + 1) for claim in claims]
            self.held |= {claim.execution_id: claim for claim in again}
            self.dispatcher.offer(again)

    # Invariants

    def check(self) -> None:
        queue = self.dispatcher._queue
        running = [self.held[id] for id in self.under_way]
        assert len(self.held) == len(queue.waiting) + len(running) + len(self.ended) + len(self.given_back)
        assert (queue.held, queue.running) == (len(self.held), len(running))
        assert queue.running <= self.limits.concurrency * MOST_OVER
        held = Counter((claim.tenant, claim.endpoint) for claim in self.held.values())
        at = Counter((claim.tenant, claim.endpoint) for claim in running)
        assert queue.queues == len(held)
        assert {(t.tenant, e): q.held for t in queue.tenants.values() for e, q in t.queues.items()} == held
        for tenant in queue.tenants.values():
            assert tenant.running == sum(count for (name, _), count in at.items() if name == tenant.tenant)
            assert tenant.several == sum(count > 1 for (name, _), count in at.items() if name == tenant.tenant)
            for number, one in tenant.queues.items():
                assert one.running == at[tenant.tenant, number]
        for number, endpoint in queue.endpoints.items():
            assert endpoint.running == sum(count for (_, other), count in at.items() if other == number)
            assert endpoint.tenants == sum(other == number for _, other in held)
        if self.is_trusted:
            for claim in queue.waiting.values():
                assert not self._could_start(claim), claim

    def _could_start(self, claim: Claim) -> bool:
        queue, limits = self.dispatcher._queue, self.limits
        tenant, endpoint = queue.tenants[claim.tenant], queue.endpoints[claim.endpoint]
        share = share_of(limits.concurrency, len(queue.tenants))
        return (
            tenant.running < min(limits.tenant, limits.concurrency)
            and (queue.running < limits.concurrency or tenant.running < share)
            and queue.running < limits.concurrency * MOST_OVER
            and has_place(endpoint.running, endpoint.limit, tenant.queues[claim.endpoint].running, endpoint.tenants)
        )

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(40))
async def test_counters_equal_a_recount_and_no_claim_that_could_start_waits(seed: int):
    world = World(random.Random(seed))
    for _ in range(60):
        world.step()
        if world.rng.random() < 0.7:
            await world.settle()
            world.check()
    world.is_trusted = True
    world.dispatcher.resume()
    for _ in range(5000):
        world.release()
        await world.settle()
        if not world.held:
            break
        for done in world.under_way.values():
            if not done.done():
                done.set_result("ok")
        await world.settle()
        world.write()
    queue = world.dispatcher._queue
    assert (len(world.held), queue.held, queue.running, queue.queues) == (0, 0, 0, 0)
    assert not queue.tenants
    assert not queue.endpoints
