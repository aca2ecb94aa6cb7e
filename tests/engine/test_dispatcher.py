"""The dispatcher alone: each offered claim runs or is returned, in any order of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from duetime.domain.execution import Claim
from duetime.domain.fairness import MOST_OVER
from duetime.domain.ids import execution_id
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
from duetime.domain.states import Trigger
from duetime.engine.dispatcher import Dispatcher, Limits, Target
from duetime.ports.executor import NotSent
from engine.stage import until
from samples import NOW, TENANT, new_id, spec


def claim_of(number: int, endpoint: int = 1, tenant: str = TENANT, priority: int = 5) -> Claim:
    id = execution_id(NOW, number)
    return Claim(id, new_id(), tenant, NOW, Trigger.SCHEDULE, priority, endpoint, 1, 1, False, spec())


class Attempts:
    """Attempts that end at once, or when the test releases one or all of them."""

    def __init__(self, limits: Limits, *, hold: bool = False) -> None:
        self.begun: list[Claim] = []
        self.dropped: list[Claim] = []
        self._go = asyncio.Event()
        self._let_go: set[str] = set()
        if not hold:
            self._go.set()
        self.is_trusted = True
        self.is_held = False  # the breaker ends all of them without a request
        self.dispatcher = Dispatcher(
            limits, self._attempt, self.dropped.append, set(),
            is_held=lambda claim: self.is_held, is_trusted=lambda: self.is_trusted,
        )  # fmt: skip

    async def _attempt(self, claim: Claim) -> None:
        self.begun.append(claim)
        while not self._go.is_set() and claim.execution_id not in self._let_go:  # noqa: ASYNC110 (one of many, or all)
            await asyncio.sleep(0)
        if not self.is_trusted:
            raise NotSent
        self.dispatcher.recorded([claim])

    def let_go(self, *claims: Claim) -> None:
        self._let_go |= {claim.execution_id for claim in claims}
        if not claims:
            self._go.set()


async def test_a_claim_offered_while_the_last_slot_ends_starts():
    attempts = Attempts(Limits(concurrency=1))
    later = claim_of(2)
    attempts.dispatcher.offer([claim_of(1)])
    (slot,) = asyncio.all_tasks() - {asyncio.current_task()}
    # Runs in the same turn of the loop in which the slot has ended and its callbacks are called.
    slot.add_done_callback(lambda _: attempts.dispatcher.offer([later]))
    await until(lambda: len(attempts.begun) == 2 and attempts.dispatcher.room() == Limits().capacity)
    assert attempts.begun[-1] is later


async def test_a_cancelled_waiting_claim_ends_at_once_and_never_starts():
    attempts = Attempts(Limits(concurrency=1), hold=True)
    first, second, third = claims = [claim_of(number) for number in range(3)]
    attempts.dispatcher.offer(claims)
    await asyncio.sleep(0)
    assert attempts.dispatcher.cancel(second.execution_id)
    assert attempts.dropped == [second], "before anything else has ended"
    attempts.let_go()
    await until(lambda: len(attempts.begun) == 2)
    assert attempts.begun == [first, third]
    assert not attempts.dispatcher.cancel(second.execution_id)


async def test_a_node_without_room_waits_once_for_all_endpoints():
    attempts = Attempts(Limits(capacity=4), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=number) for number in range(4)])
    assert (TENANT, 100) in await attempts.dispatcher.admit({(TENANT, 100): 1}, 0.05)
    for endpoint in range(101, 120):
        target = (TENANT, endpoint)
        assert target in without_waiting(attempts.dispatcher.admit({target: 1}, 0.05))
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == 4)
    assert await attempts.dispatcher.admit({(TENANT, 100): 1}, 0.05) == frozenset()


def without_waiting(asked: Coroutine[Any, Any, frozenset[Target]]) -> frozenset[Target]:
    """Returns the result, if it comes in the same turn of the event loop."""
    try:
        asked.send(None)
    except StopIteration as answered:
        found: frozenset[Target] = answered.value
        return found
    asked.close()
    raise AssertionError("it waited")


@pytest.mark.parametrize("held", [True, False])
async def test_a_shortened_drain_returns_the_claims_that_have_not_started(held: bool):
    attempts = Attempts(Limits(concurrency=1), hold=held)
    first, second = claim_of(1), claim_of(2)
    attempts.dispatcher.offer([first, second])
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(attempts.dispatcher.stop_waiting)
    never_started, running = await attempts.dispatcher.drain(60)
    assert never_started == ([second] if held else [])
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


# What waits for a place


async def test_when_the_first_waiting_claim_is_cancelled_the_next_one_gets_its_place():
    attempts = Attempts(Limits(endpoint=1), hold=True)
    first, cancelled, last = claims = [claim_of(number) for number in range(3)]
    attempts.dispatcher.offer(claims)
    await until(lambda: attempts.begun == [first])
    assert attempts.dispatcher.cancel(cancelled.execution_id)
    attempts.let_go()
    await until(lambda: attempts.begun == [first, last])


async def test_when_all_waiting_claims_of_a_tenant_are_cancelled_another_tenant_gets_the_place():
    attempts = Attempts(Limits(endpoint=1), hold=True)
    first, others = claim_of(0, tenant="a"), [claim_of(1, tenant="b"), claim_of(2, tenant="c")]
    waiting = [claim_of(number, tenant=tenant) for number, tenant in enumerate("abcab", 10)]
    attempts.dispatcher.offer([first, *others, *waiting])
    await until(lambda: len(attempts.begun) == 3)
    for claim in waiting:
        if claim.tenant != "c":
            attempts.dispatcher.cancel(claim.execution_id)
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() + len(attempts.dropped) == Limits().capacity)
    assert attempts.begun[3:] == [claim for claim in waiting if claim.tenant == "c"]


async def test_cancelled_waiting_claims_do_not_keep_memory():
    attempts = Attempts(Limits(endpoint=1), hold=True)
    attempts.dispatcher.offer([claim_of(0)])
    for number in range(1, 2000):
        claim = claim_of(number)
        attempts.dispatcher.offer([claim])
        attempts.dispatcher.cancel(claim.execution_id)
        attempts.dispatcher.recorded([claim])
    (queue,) = attempts.dispatcher._queue.tenants[TENANT].queues.values()
    assert sum(len(waiting or ()) for waiting in queue.waiting) < 200
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert not attempts.dispatcher._queue.tenants
    assert not attempts.dispatcher._queue.endpoints


# Tenants and endpoints take turns


async def test_tenants_take_turns_whatever_the_number_of_their_claims():
    attempts = Attempts(Limits(concurrency=1, endpoint=1))
    many = [claim_of(number, endpoint=number % 7, tenant="many") for number in range(100)]
    few = [claim_of(1000 + number, endpoint=50, tenant="few", priority=0) for number in range(3)]
    attempts.dispatcher.offer([*many, *few])
    await until(lambda: len(attempts.begun) == 103)
    assert [place for place, claim in enumerate(attempts.begun) if claim.tenant == "few"][-1] <= 6


async def test_a_tenants_endpoints_take_turns():
    attempts = Attempts(Limits(concurrency=1))
    claims = [claim_of(number, endpoint=1) for number in range(50)] + [claim_of(100 + n, endpoint=2) for n in range(3)]
    attempts.dispatcher.offer(claims)
    await until(lambda: len(attempts.begun) == 53)
    assert [place for place, claim in enumerate(attempts.begun) if claim.endpoint == 2][-1] <= 6


async def test_priority_orders_claims_within_a_tenant_only():
    attempts = Attempts(Limits(concurrency=1))
    loud = [claim_of(number, tenant="loud", priority=9) for number in range(20)]
    quiet = [claim_of(100 + number, tenant="quiet", priority=number) for number in range(3)]
    attempts.dispatcher.offer([*loud, *quiet])
    await until(lambda: len(attempts.begun) == 23)
    assert [claim.priority for claim in attempts.begun if claim.tenant == "quiet"] == [2, 1, 0]
    assert [place for place, claim in enumerate(attempts.begun) if claim.tenant == "quiet"][-1] <= 6


async def test_a_tenant_with_hanging_attempts_leaves_other_tenants_their_share():
    """One tenant holds all places, at eight endpoints. Later tenants get their share beyond the limit, and no more."""
    limits = Limits(concurrency=64, endpoint=8)
    attempts = Attempts(limits, hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=number % 8, tenant="hangs") for number in range(500)])
    await until(lambda: len(attempts.begun) == 64)
    for place, tenant in enumerate(("b", "c"), 2):
        begun = len(attempts.begun)
        attempts.dispatcher.offer(
            [claim_of(1000 * place + n, endpoint=100 * place + n % 20, tenant=tenant) for n in range(200)]
        )
        await until(lambda begun=begun: attempts.dispatcher.running() > begun)
        await all_slots_begin(attempts)
        assert attempts.dispatcher.running() == begun + 64 // place
        assert {claim.tenant for claim in attempts.begun[begun:]} == {tenant}


async def test_after_the_extra_attempts_have_ended_the_limit_holds():
    attempts = Attempts(Limits(concurrency=8, endpoint=8), hold=True)
    attempts.dispatcher.offer([claim_of(number, tenant="a") for number in range(40)])
    await until(lambda: len(attempts.begun) == 8)
    attempts.dispatcher.offer([claim_of(100 + number, endpoint=2, tenant="b") for number in range(40)])
    await until(lambda: len(attempts.begun) == 12)
    attempts.let_go(*attempts.begun[:8])  # those of a
    await until(lambda: attempts.dispatcher.running() == 8 and len(attempts.begun) > 12)
    running = attempts.begun[8:]
    assert [claim.tenant for claim in running].count("b") == 4, "which is its share"


async def test_scripts_of_one_tenant_leave_another_tenant_its_share():
    """The scripts of all tenants share one limit."""
    attempts = Attempts(Limits(special={7: 4}), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=7, tenant="a") for number in range(20)])
    await until(lambda: len(attempts.begun) == 4)
    attempts.dispatcher.offer([claim_of(100 + number, endpoint=7, tenant="b") for number in range(20)])
    await until(lambda: len(attempts.begun) == 6)
    await all_slots_begin(attempts)
    assert [claim.tenant for claim in attempts.begun] == ["a"] * 4 + ["b"] * 2


async def test_any_number_of_tenants_stays_below_a_multiple_of_the_limit():
    attempts = Attempts(Limits(concurrency=10, endpoint=10), hold=True)
    for tenant in range(200):
        claims = [claim_of(100 * tenant + n, endpoint=tenant, tenant=f"t{tenant}") for n in range(20)]
        attempts.dispatcher.offer(claims)
        await all_slots_begin(attempts)
    assert attempts.dispatcher.running() == 10 * MOST_OVER


async def all_slots_begin(attempts: Attempts) -> None:
    await until(
        lambda: attempts.dispatcher.running() == sum(task is not None for task in attempts.dispatcher._running.values())
    )


# The memory is shared


async def test_a_single_tenant_may_hold_most_of_the_memory_until_others_come():
    attempts = Attempts(Limits(capacity=400), hold=True)
    dispatcher = attempts.dispatcher
    assert await dispatcher.admit({("a", 1): 225}, 0.01) == frozenset()
    dispatcher.offer([claim_of(number, tenant="a") for number in range(150)])
    assert dispatcher.full_tenants() == frozenset()
    dispatcher.offer([claim_of(1000, tenant="b")])
    assert dispatcher.full_tenants() == {"a"}, "its share is now half of the memory"
    assert ("a", 1) in await dispatcher.admit({("a", 1): 1, ("b", 1): 1}, 0.01)
    assert ("b", 1) not in await dispatcher.admit({("a", 1): 1, ("b", 1): 1}, 0.01)


async def test_one_endpoint_leaves_room_for_the_other_endpoints_of_its_tenant():
    attempts = Attempts(Limits(capacity=400), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=1) for number in range(225)])
    assert attempts.dispatcher.full_endpoints() == ((TENANT, 1),)
    assert attempts.dispatcher.full_tenants() == frozenset()
    assert await attempts.dispatcher.admit({(TENANT, 1): 1, (TENANT, 2): 1}, 0.01) == {(TENANT, 1)}


async def test_with_full_memory_the_largest_tenant_releases_the_claims_that_would_start_last():
    attempts = Attempts(Limits(capacity=20, concurrency=2), hold=True)
    dispatcher = attempts.dispatcher
    most = [claim_of(number, tenant="most", priority=number % 2) for number in range(16)]
    dispatcher.offer([*most, *(claim_of(100 + number, tenant="other") for number in range(4))])
    await all_slots_begin(attempts)
    assert dispatcher.lacks(["most", "other", "new"]) == {"other": 1, "new": 5}, "of a share of five"
    returned = dispatcher.make_room(3, ["new"])
    assert returned == [claim for claim in reversed(most) if claim.priority == 0][:3]
    assert dispatcher.room() == 0, "until it is written"
    dispatcher.recorded(returned)
    assert dispatcher.room() == 3
    attempts.let_go()
    await until(lambda: dispatcher.room() == 20)
    assert not {claim.execution_id for claim in returned} & {claim.execution_id for claim in attempts.begun}


async def test_a_tenant_that_releases_claims_keeps_its_share():
    attempts = Attempts(Limits(capacity=20, concurrency=1), hold=True)
    attempts.dispatcher.offer([claim_of(number, tenant="a") for number in range(20)])
    await all_slots_begin(attempts)
    returned = attempts.dispatcher.make_room(100, ["b"])
    assert len(returned) == 20 - 7, "half of three quarters is its own"


async def test_a_claim_that_was_released_and_claimed_again_is_sent_with_the_new_token():
    attempts = Attempts(Limits(concurrency=1), hold=True)
    first, given_back, last = (claim_of(number) for number in range(3))
    attempts.dispatcher.offer([first, given_back, last])
    await all_slots_begin(attempts)
    attempts.dispatcher._queue.remove(given_back)
    attempts.dispatcher.recorded([given_back])
    anew = msgspec.structs.replace(given_back, token=2)
    attempts.dispatcher.offer([anew])
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert attempts.begun == [first, last, anew]


async def test_hanging_endpoints_of_a_tenant_leave_a_place_for_its_other_endpoints():
    attempts = Attempts(Limits(concurrency=64, endpoint=8), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=number % 8) for number in range(500)])
    await until(lambda: len(attempts.begun) == 64)
    idle = [claim_of(1000 + number, endpoint=99) for number in range(20)]
    attempts.dispatcher.offer(idle)
    await all_slots_begin(attempts)
    assert [claim.endpoint for claim in attempts.begun[64:]] == [99] * (64 // 9)


async def test_many_endpoints_with_one_attempt_each_do_not_exceed_the_limit():
    attempts = Attempts(Limits(concurrency=16), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=number % 50) for number in range(200)])
    await all_slots_begin(attempts)
    assert attempts.dispatcher.running() == 16


# The lease in doubt


async def test_slots_opened_before_the_lease_was_in_doubt_start_no_attempt():
    """A process may be suspended between a claim and the first turn of its slots."""
    attempts, claims = Attempts(Limits()), [claim_of(number) for number in range(5)]
    attempts.dispatcher.offer(claims)
    attempts.is_trusted = False
    await all_slots_end(attempts)
    assert attempts.begun == []
    assert attempts.dispatcher.waiting() == 5
    attempts.is_trusted = True
    attempts.dispatcher.resume()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert {claim.execution_id for claim in attempts.begun} == {claim.execution_id for claim in claims}


async def test_a_claim_that_was_not_sent_starts_when_the_lease_is_trusted_again():
    attempts, claim = Attempts(Limits(endpoint=1), hold=True), claim_of(1)
    attempts.dispatcher.offer([claim, claim_of(2)])
    await until(lambda: attempts.begun == [claim])
    attempts.is_trusted = False
    attempts.let_go()
    await all_slots_end(attempts)
    assert (attempts.begun, attempts.dispatcher.waiting(), attempts.dispatcher.running()) == ([claim], 2, 0)
    attempts.is_trusted = True
    attempts.dispatcher.resume()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)
    assert len(attempts.begun) == 3


async def test_a_drain_returns_the_claims_that_were_not_sent():
    attempts, claim = Attempts(Limits()), claim_of(1)
    attempts.dispatcher.offer([claim])
    attempts.is_trusted = False
    await all_slots_end(attempts)
    assert await attempts.dispatcher.drain(0) == ([claim], [])


async def test_an_execution_cancelled_before_its_slot_started_ends_although_the_lease_is_in_doubt():
    """Nothing is sent for it. If the claim were put back, the cancellation would be lost."""
    attempts, claim = Attempts(Limits(), hold=True), claim_of(1)
    attempts.dispatcher.offer([claim])
    attempts.is_trusted = False
    assert attempts.dispatcher.cancel(claim.execution_id)
    await until(lambda: attempts.begun == [claim])
    attempts.is_trusted = True
    attempts.let_go()
    await until(lambda: attempts.dispatcher.room() == Limits().capacity)


async def all_slots_end(attempts: Attempts) -> None:
    await until(lambda: not attempts.dispatcher.running())


# How often an endpoint is called


class Paced(Attempts):
    """Attempts with the seconds at which each of them started."""

    def __init__(self, limits: Limits, *, hold: bool = False) -> None:
        super().__init__(limits, hold=hold)
        self.at: dict[int, list[float]] = {}

    async def _attempt(self, claim: Claim) -> None:
        self.at.setdefault(claim.endpoint, []).append(asyncio.get_running_loop().time())
        await super()._attempt(claim)


@pytest.mark.parametrize(("rate", "count"), [(40.0, 9), (300.0, 91)])
async def test_an_endpoint_is_not_called_more_often_than_its_rate(rate: float, count: int):
    attempts = Paced(Limits(rate=rate))
    claims = [claim_of(number) for number in range(count)]
    begun = asyncio.get_running_loop().time()
    attempts.dispatcher.offer(claims)
    await until(lambda: len(attempts.begun) == count)
    assert attempts.begun == claims, "in their order"
    at_once = max(1, rate // 10)
    for place, at in enumerate(attempts.at[1], 1):  # a busy machine makes them later, and never earlier
        assert at - begun >= (place - at_once) / rate - 0.002


async def test_an_endpoint_with_a_used_up_rate_limit_delays_no_other():
    attempts = Paced(Limits(concurrency=4, rate=0.01))
    attempts.dispatcher.offer([claim_of(number) for number in range(100)])
    attempts.dispatcher.offer([claim_of(1000 + endpoint, endpoint) for endpoint in range(2, 52)])
    await until(lambda: len(attempts.at) == 51)
    assert len(attempts.at[1]) == 1, "its second may start in 100 seconds, and others did not wait for that"
    never_started, _ = await attempts.dispatcher.drain(0)
    assert len(never_started) + len(attempts.begun) == 150


async def test_a_rate_below_one_sends_one_request_and_delays_the_next():
    attempts = Attempts(Limits(rate=0.01))
    claims = [claim_of(number) for number in range(3)]
    attempts.dispatcher.offer(claims)
    await until(lambda: attempts.dispatcher.waiting() == 2 and not attempts.dispatcher.running())
    assert attempts.begun == claims[:1]
    assert await attempts.dispatcher.drain(0) == (claims[1:], [])
    assert not any(handle for handle in attempts.dispatcher._clocks.values()), "no timer is left behind"


async def test_a_claim_cancelled_while_it_waits_for_the_rate_limit_takes_no_token(monkeypatch: pytest.MonkeyPatch):
    attempts = Attempts(Limits(rate=9.0))
    pace = attempts.dispatcher._rate_limiter
    assert pace is not None
    taken: list[bool] = []
    take = pace.take
    monkeypatch.setattr(pace, "take", lambda endpoint, now: taken.append(is_taken := take(endpoint, now)) or is_taken)
    claims = [claim_of(number) for number in range(4)]
    attempts.dispatcher.offer(claims)
    assert attempts.dispatcher.cancel(claims[1].execution_id)
    assert attempts.dispatcher.cancel(claims[2].execution_id)
    await until(lambda: len(attempts.begun) == 2)
    assert attempts.begun == [claims[0], claims[3]]
    assert attempts.dropped == [claims[1], claims[2]]
    assert sum(taken) == 2


async def test_blocked_claims_start_when_the_claim_before_them_waits_for_its_rate_limit():
    """One tenant has one place. The claim that could take it must wait for its rate limit: the next claim takes it."""
    attempts = Attempts(Limits(tenant=1, rate=0.01), hold=True)
    first, same, other = claim_of(1, endpoint=1), claim_of(2, endpoint=1), claim_of(3, endpoint=2)
    attempts.dispatcher.offer([first, same, other])
    await until(lambda: attempts.begun == [first])
    attempts.let_go()
    await until(lambda: attempts.begun == [first, other])
    assert (await attempts.dispatcher.drain(0))[0] == [same]


async def test_a_later_claim_does_not_overtake_waiting_ones(monkeypatch: pytest.MonkeyPatch):
    attempts = Attempts(Limits(rate=0.01))
    pace = attempts.dispatcher._rate_limiter
    assert pace is not None
    claims = [claim_of(number) for number in range(4)]
    attempts.dispatcher.offer(claims[:2])
    await until(lambda: attempts.begun == claims[:1] and not attempts.dispatcher.running())
    monkeypatch.setattr(pace, "take", lambda endpoint, now: True)  # there is a token again, and no queue was woken yet
    attempts.dispatcher.offer(claims[2:])
    assert attempts.dispatcher.running() == 0
    attempts.dispatcher._clocks[1].cancel()
    attempts.dispatcher._ring(1)
    await until(lambda: attempts.begun == claims)


async def test_claims_that_end_without_a_request_wait_for_no_rate_limit():
    attempts = Attempts(Limits(rate=0.01))
    attempts.is_held = True
    claims = [claim_of(number) for number in range(20)]
    attempts.dispatcher.offer(claims)
    await until(lambda: attempts.begun == claims)


async def test_only_webhooks_have_a_rate_limit():
    attempts = Attempts(Limits(rate=0.01))
    job = PythonJob(name="f", schedule="every 1m", payload=PythonCall("f"))
    claims = [msgspec.structs.replace(claim_of(number), spec=job) for number in range(5)]
    attempts.dispatcher.offer(claims)
    await until(lambda: attempts.begun == claims)
