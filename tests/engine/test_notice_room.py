"""Notices of alerts have slots and memory of their own: whatever else is full, they start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from duetime.domain.commands import ClaimExecutions, Command
from duetime.domain.endpoints import NOTICES
from duetime.domain.execution import Claim
from duetime.engine.claimer import Claimer
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.engine.unanswered import Unanswered
from duetime.events import EventHub
from duetime.testing import HandClock
from engine.stage import until
from engine.test_dispatcher import Attempts, claim_of, without_waiting
from samples import NOW, TENANT

SLOTS = 3


def notice_of(number: int, tenant: str = TENANT) -> Claim:
    return claim_of(1000 + number, NOTICES, tenant, 9)


def saturated(**limits: int) -> Attempts:
    """All slots and all memory are taken by attempts that hang."""
    attempts = Attempts(Limits(**{"concurrency": 2, "capacity": 8, "notices": SLOTS} | limits), hold=True)
    attempts.dispatcher.offer([claim_of(number, endpoint=number) for number in range(8)])
    return attempts


async def test_a_notice_starts_although_all_slots_are_taken():
    attempts = saturated()
    notice = notice_of(1)
    attempts.dispatcher.offer([notice])
    await asyncio.sleep(0)
    assert len(attempts.begun) == 3
    assert attempts.begun[-1] is notice


async def test_a_notice_starts_although_other_tenants_exceed_the_slots():
    attempts = saturated(capacity=100)
    attempts.dispatcher.offer([claim_of(50 + n, tenant=f"t{n}") for n in range(20)])
    await asyncio.sleep(0)
    before = len(attempts.begun)
    notice = notice_of(1)
    attempts.dispatcher.offer([notice])
    await asyncio.sleep(0)
    assert attempts.begun[before:] == [notice]


async def test_as_many_notices_run_at_once_as_there_are_slots_for_them():
    attempts = saturated()
    notices = [notice_of(number) for number in range(SLOTS + 2)]
    attempts.dispatcher.offer(notices)
    await asyncio.sleep(0)
    assert attempts.begun[2:] == notices[:SLOTS]
    attempts.let_go(notices[0])
    await until(lambda: len(attempts.begun) == 2 + SLOTS + 1)
    assert attempts.begun[-1] is notices[SLOTS]
    attempts.let_go()
    await until(lambda: len(attempts.begun) == 8 + SLOTS + 2)
    await until(lambda: attempts.dispatcher.running() == 0)


async def test_the_notices_of_tenants_start_in_turn():
    attempts = saturated(notices=2)
    first = [notice_of(number, "first") for number in range(4)]
    other = notice_of(9, "second")
    attempts.dispatcher.offer([*first, other])
    await asyncio.sleep(0)
    assert len(attempts.begun) == 4
    assert first[0] in attempts.begun
    assert other in attempts.begun


async def test_a_cancelled_notice_does_not_start():
    attempts = saturated(notices=1)
    first, second, third = notices = [notice_of(number) for number in range(3)]
    attempts.dispatcher.offer(notices)
    await asyncio.sleep(0)
    assert attempts.dispatcher.cancel(second.execution_id)
    attempts.let_go(first)
    await until(lambda: third in attempts.begun)
    assert second not in attempts.begun


async def test_a_full_memory_has_room_for_notices_and_for_nothing_else():
    attempts = saturated(notice_places=2)
    wanted = {(TENANT, NOTICES): 1, (TENANT, 5): 1}
    refused = await attempts.dispatcher.admit(wanted, 3600)  # a notice waits for nobody's room
    assert (TENANT, NOTICES) not in refused
    assert (TENANT, 5) in refused
    attempts.dispatcher.offer([notice_of(1), notice_of(2)])
    assert attempts.dispatcher.notice_room() == 0
    assert (TENANT, NOTICES) in without_waiting(attempts.dispatcher.admit({(TENANT, NOTICES): 1}, 60))


async def test_a_node_that_runs_nothing_or_is_stopping_takes_no_notices():
    idle = Attempts(Limits(capacity=0))
    assert (TENANT, NOTICES) in without_waiting(idle.dispatcher.admit({(TENANT, NOTICES): 1}, 60))
    stopping = Attempts(Limits())
    await stopping.dispatcher.drain(0)
    assert (TENANT, NOTICES) in without_waiting(stopping.dispatcher.admit({(TENANT, NOTICES): 1}, 60))


class Waiting:
    """A store where a notice of each tenant waits, and any number of others. Only what the claimer needs."""

    def __init__(self, *tenants: str) -> None:
        self.tenants = tenants
        self.left = dict.fromkeys(tenants, 1)
        self.claims: list[ClaimExecutions] = []

    async def next_waiting_at(self) -> int:
        return NOW - 1

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        return [tenant for tenant in sorted(self.tenants) if tenant > after][:limit]

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        (command,) = commands
        assert isinstance(command, ClaimExecutions)
        self.claims.append(command)
        assert command.only == (NOTICES,), "there is room for nothing else"
        found = [tenant for tenant in command.tenants if self.left[tenant]]
        self.left.update(dict.fromkeys(found, 0))
        return [[notice_of(number, tenant) for number, tenant in enumerate(found)]]


async def test_notices_that_wait_in_the_store_are_claimed_although_the_memory_is_full():
    async def hang(claim: Claim) -> None:
        begun.append(claim)
        await asyncio.Event().wait()

    begun: list[Claim] = []
    clock, store = HandClock(NOW), Waiting("acme", "globex")
    limits = Limits(capacity=8, concurrency=2)
    dispatcher = Dispatcher(limits, hang, lambda claim: None, set(), is_held=lambda claim: False)
    dispatcher.offer([claim_of(number, endpoint=number, tenant=tenant) for number, tenant in enumerate(["acme"] * 8)])
    dispatcher.offer([claim_of(20 + number, endpoint=number, tenant="globex") for number in range(8)])
    await Claimer(store, clock, 1, dispatcher, Unanswered(clock.monotonic), EventHub()).run_once()  # type: ignore[arg-type]
    await until(lambda: sum(claim.endpoint == NOTICES for claim in begun) == 2)
    assert {claim.tenant for claim in begun if claim.endpoint == NOTICES} == {"acme", "globex"}
