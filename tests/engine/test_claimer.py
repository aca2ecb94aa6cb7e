"""The claimer shares the memory among tenants, and stops when each has its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from duetime.domain.commands import ClaimExecutions, Command, Release
from duetime.domain.execution import Claim
from duetime.domain.fairness import memory_share
from duetime.domain.held_specs import PLACE_BYTES
from duetime.domain.ids import execution_id
from duetime.domain.states import Trigger
from duetime.engine.claimer import LONGEST_PAUSE, MOST_TENANTS, SHORTEST_PAUSE, Claimer
from duetime.engine.dispatcher import Dispatcher, Limits
from duetime.engine.unanswered import Unanswered
from duetime.events import EventHub
from duetime.testing import HandClock
from samples import NOW, spec

JOB = spec()


class Backlogs:
    """A store whose tenants always have more waiting executions. It has only the methods that the claimer needs."""

    def __init__(self) -> None:
        self.tenants: list[str] = []
        self.commands = Counter[type]()
        self.claims: list[ClaimExecutions] = []
        self.is_down = False
        self.released: list[Claim] = []
        self.places = 1  # of each claim
        self._number = 0

    async def next_waiting_at(self) -> int:
        return NOW - 1

    async def list_waiting_tenants(self, now: int, after: str, limit: int) -> list[str]:
        return [tenant for tenant in sorted(self.tenants) if tenant > after][:limit]

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        (command,) = commands
        if self.is_down:
            raise ConnectionError("the database is away")
        self.commands[type(command)] += 1
        if isinstance(command, Release):
            self.released += command.claims
            return [None]
        assert isinstance(command, ClaimExecutions)
        if command.only:  # notices of alerts: none waits
            return [[]]
        self.claims.append(command)
        fit = max(1, 2 * command.bytes_each // PLACE_BYTES // self.places)
        each = [(tenant, n) for tenant in command.tenants for n in range(min(command.each, fit))][: command.limit]
        return [[self._claimed(tenant) for tenant, _ in each]]

    def _claimed(self, tenant: str) -> Claim:
        self._number += 1
        id = execution_id(NOW, self._number)
        return Claim(id, "job", tenant, NOW, Trigger.SCHEDULE, 5, self._number % 40, 1, 1, False, JOB, self.places)


@pytest.fixture
def backlogs() -> Backlogs:
    return Backlogs()


def claimer_of(store: Any, **limits: int) -> tuple[Claimer, Dispatcher]:
    async def hang(claim: Claim) -> None:
        await asyncio.Event().wait()

    clock = HandClock(NOW)
    dispatcher = Dispatcher(Limits(**limits), hang, lambda claim: None, set(), is_held=lambda claim: False)
    return Claimer(store, clock, 1, dispatcher, Unanswered(clock.monotonic), EventHub()), dispatcher


async def settle(claimer: Claimer) -> int:
    """Runs turns until the claimer pauses. Returns their number."""
    for turn in range(3000):
        if await claimer.run_once():
            return turn
    raise AssertionError("it never comes to rest: what it releases it claims again")


@pytest.mark.parametrize(("capacity", "tenants"), [(40, 6), (400, 30), (4096, 40)])
async def test_each_new_tenant_gets_its_share_and_then_no_claim_moves(backlogs: Backlogs, capacity: int, tenants: int):
    claimer, dispatcher = claimer_of(backlogs, capacity=capacity, concurrency=2)
    for number in range(tenants):
        backlogs.tenants.append(f"t{number:03}")
        await settle(claimer)
        held = {tenant.tenant: tenant.held for tenant in dispatcher._queue.tenants.values()}
        assert set(held) == set(backlogs.tenants)
        assert min(held.values()) >= memory_share(capacity, number + 1) * 3 // 4, "the share of one endpoint"
        assert dispatcher.room() >= 0
    before = backlogs.commands.copy()
    for _ in range(20):
        await claimer.run_once()
    assert backlogs.commands[Release] == before[Release]


async def test_the_pauses_grow_while_nothing_can_be_claimed_until_a_hint(backlogs: Backlogs):
    claimer, _ = claimer_of(backlogs, capacity=40, concurrency=2)
    backlogs.tenants.append("alone")
    await settle(claimer)
    pauses = [await claimer.run_once() - NOW for _ in range(8)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    claimer.hint(NOW - 1)
    assert await claimer.run_once() - NOW <= 2 * SHORTEST_PAUSE


async def test_every_tenant_of_a_page_gets_claims_even_with_little_room(backlogs: Backlogs):
    claimer, dispatcher = claimer_of(backlogs, capacity=2 * MOST_TENANTS, concurrency=2)
    backlogs.tenants = [f"t{number:03}" for number in range(MOST_TENANTS + 20)]
    await settle(claimer)
    assert set(dispatcher._queue.tenants) == set(backlogs.tenants)


async def test_a_failed_release_is_retried_and_its_claims_do_not_start(backlogs: Backlogs):
    claimer, dispatcher = claimer_of(backlogs, capacity=40, concurrency=2)
    backlogs.tenants = ["a", "b"]
    for tenant in ("a", "b", "c"):
        backlogs.tenants = sorted({*backlogs.tenants, tenant})
        if tenant != "c":
            await settle(claimer)
    while dispatcher.room() > 0:  # both have their share: fill what is left
        dispatcher.offer([backlogs._claimed("a")])
    backlogs.is_down = True
    with pytest.raises(ConnectionError):
        await claimer.run_once()
    waiting = list(claimer.releasing)
    assert waiting
    assert dispatcher.room() == 0
    assert not any(dispatcher.holds(claim.execution_id) for claim in waiting)
    backlogs.is_down = False
    await settle(claimer)
    assert backlogs.released[: len(waiting)] == waiting
    assert claimer.releasing == []
