"""Polls of many workers: they share queries, take turns by tenant, and are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from duetime.domain.commands import ClaimExecutions, Command
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import Overloaded, RateLimited
from duetime.domain.job import Delivery
from duetime.domain.states import State
from duetime.domain.work import Joining, Polled, Polling, Reporting
from duetime.engine import polls
from duetime.ports.store import Store
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from engine.test_worker_gateway import ADD, call, hire
from samples import TENANT

HOSTILE = "globex"


class Looks(FlakyStore):
    """Counts the queries of polls, and can delay them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.looks: list[tuple[int, ...]] = []  # by endpoints, in the order in which they began
        self.compared: list[int] = []  # workers, with what the ledger says that they run
        self.claims = 0
        self.commits_with_claims = 0
        self.most_at_once = 0
        self._at_once = 0
        self.go = asyncio.Event()
        self.go.set()

    async def next_waiting_at(self, tenant: str | None = None, only: Sequence[int] = ()) -> int | None:
        if not only:
            return await self._store.next_waiting_at()
        self.looks.append(tuple(only))
        async with self._reading():
            return await self._store.next_waiting_at(tenant, only)

    async def list_claims(self, worker_id: int, tenant: str, limit: int) -> list[tuple[str, int, int, bool]]:
        self.compared.append(worker_id)
        async with self._reading():
            return await self._store.list_claims(worker_id, tenant, limit)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await self.go.wait()
            yield
        finally:
            self._at_once -= 1

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        claims = sum(isinstance(command, ClaimExecutions) and bool(command.only) for command in commands)
        self.claims += claims
        self.commits_with_claims += bool(claims)
        return await super().apply(commands)

    def forget(self) -> None:
        self.looks.clear()
        self.claims = self.commits_with_claims = self.most_at_once = 0


@pytest.fixture
async def looks(stage: Stage, store: Store) -> Looks:
    made = Looks(store)
    await stage.join(store=made)  # type: ignore[arg-type]
    return made


@asynccontextmanager
async def polling(
    stage: Stage, count: int, tenant: str = TENANT, *, apart: bool = False, free: int = 10
) -> AsyncIterator[list[asyncio.Task[Polled]]]:
    """Starts this many polling workers; `apart`: each for its own function."""
    gateway = stage.engine.term.worker_gateway
    asked = []
    for number in range(count):
        function = f"shop.of{number}" if apart else ADD
        joined = await gateway.join(tenant, "ann", Joining(f"host:{number}", (function,), 10))
        asked.append(asyncio.create_task(gateway.poll(tenant, Polling(joined.worker_id, free, 30))))
    try:
        yield asked
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def quiet(stage: Stage, waiting: int) -> None:
    """Returns whether this many polls wait, and no query is made for them."""
    polls = stage.engine.term.worker_gateway.polls
    await until(lambda: polls.waiting() == waiting and not polls._turns)


async def test_a_hint_costs_one_query_for_all_workers_of_the_same_functions(stage: Stage, looks: Looks):
    async with polling(stage, 200):
        await quiet(stage, 200)
        looks.forget()
        stage.engine.term.worker_gateway.polls.hint()
        await until(lambda: bool(looks.looks))
        await quiet(stage, 200)
        assert len(looks.looks) <= 3  # one, and one for each second that this took
        assert looks.claims == 0


async def test_many_simultaneous_hints_are_merged(stage: Stage, looks: Looks):
    async with polling(stage, 20, apart=True):
        await quiet(stage, 20)
        looks.forget()
        for _ in range(1000):
            stage.engine.term.worker_gateway.polls.hint()
        await until(lambda: len(looks.looks) >= 20)
        await quiet(stage, 20)
        assert len(looks.looks) <= 60


async def test_one_execution_is_claimed_for_the_worker_that_waited_longest_and_for_no_other(stage: Stage, looks: Looks):
    async with polling(stage, 100) as asked:
        await quiet(stage, 100)
        looks.forget()
        await stage.add_job(call(ADD))
        await stage.turn_timer()
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert done == {asked[0]}
        await quiet(stage, 99)
        assert looks.claims == 1


async def test_a_burst_is_claimed_for_several_workers_in_one_commit(stage: Stage, looks: Looks):
    for _ in range(100):
        await stage.add_job(call(ADD))
    await stage.tick()
    gate = looks.hold(ClaimExecutions)
    async with polling(stage, 10) as asked:
        await until(lambda: bool(looks.held) and stage.engine.term.worker_gateway.polls._places[TENANT] == 10)
        gate.set()
        polled = await asyncio.gather(*asked)
    assert [len(one.assignments) for one in polled] == [10] * 10
    assert looks.commits_with_claims <= 5  # for 1, 2, 4 and 3 of them


async def test_a_tenant_with_many_workers_delays_another_by_one_turn(stage: Stage, looks: Looks):
    mine = (endpoint_of_function(TENANT, ADD),)
    async with polling(stage, 100, HOSTILE, apart=True), polling(stage, 1):
        await quiet(stage, 101)
        looks.go.clear()  # the store is slow: all polls wait for their query
        looks.forget()
        stage.engine.term.worker_gateway.polls.hint()
        await until(lambda: bool(looks.looks))
        looks.go.set()
        await until(lambda: mine in looks.looks)
        assert looks.looks.index(mine) <= polls.TURNS_AT_ONCE + 1
        await quiet(stage, 101)


async def test_polls_read_one_at_a_time_and_leave_connections_to_the_node(stage: Stage, looks: Looks):
    async with polling(stage, 50, apart=True):
        await quiet(stage, 50)
        stage.engine.term.worker_gateway.polls.hint()
        await until(lambda: len(looks.looks) >= 100)
        assert looks.most_at_once == 1


async def test_reports_of_many_workers_delay_another_tenant_by_one_read(stage: Stage, looks: Looks):
    gateway = stage.engine.term.worker_gateway
    hostile = [(await gateway.join(HOSTILE, "bob", Joining(f"host:{it}", (ADD,), 10))).worker_id for it in range(50)]
    hand = await hire(stage)
    stage.clock.advance(2)  # their claims are compared with the ledger now
    looks.go.clear()
    said = [asyncio.create_task(gateway.report(HOSTILE, Reporting(worker, []))) for worker in hostile]
    await until(lambda: bool(looks.compared))
    said.append(asyncio.create_task(hand.report()))  # type: ignore[arg-type]
    await until(lambda: gateway.workers._workers[hand.worker_id].looked_at == stage.clock.monotonic())
    looks.go.set()
    await asyncio.gather(*said)
    assert looks.compared.index(hand.worker_id) <= 2
    assert (len(looks.compared), looks.most_at_once) == (51, 1)


async def test_a_tenant_with_too_many_polls_is_refused_and_others_are_not(
    stage: Stage, looks: Looks, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(polls, "MOST_POLLS_OF_A_TENANT", 3)
    gateway = stage.engine.term.worker_gateway
    hand = await hire(stage)
    async with polling(stage, 3, HOSTILE), polling(stage, 2):
        await quiet(stage, 5)
        joined = await gateway.join(HOSTILE, "bob", Joining("host:9", (ADD,), 10))
        with pytest.raises(RateLimited, match="fewer workers with more slots") as refused:
            await gateway.poll(HOSTILE, Polling(joined.worker_id, 1, 0))
        assert refused.value.retry_after > 0
        assert await hand.poll() == []
    assert (await gateway.poll(HOSTILE, Polling(joined.worker_id, 1, 0))).assignments == []  # there is room again


async def test_a_closed_gateway_ends_open_polls_and_refuses_new_ones(stage: Stage, looks: Looks):
    hand = await hire(stage)
    async with polling(stage, 3) as asked:
        await quiet(stage, 3)
        stage.engine.term.worker_gateway.polls.close()
        assert await asyncio.gather(*asked) == [Polled()] * 3
    looks.forget()
    with pytest.raises(Overloaded, match="ask another one") as refused:
        await hand.poll(wait_seconds=30)
    assert refused.value.retry_after > 0
    with pytest.raises(Overloaded):
        await hire(stage)
    assert looks.looks == []
    await hand.report()  # running executions may still be reported


async def test_a_claim_for_a_poll_that_was_cancelled_is_released(stage: Stage, looks: Looks):
    gate = looks.hold(ClaimExecutions)
    async with polling(stage, 1):
        await quiet(stage, 1)
        job_id = await stage.add_job(call(ADD, delivery=Delivery.AT_MOST_ONCE))
        await stage.turn_timer()
        await until(lambda: bool(looks.held))
    gate.set()
    await until(lambda: not stage.engine.term.worker_gateway.polls._turns)
    assert await stage.states(job_id) == [State.QUEUED]
    (one,) = await (await hire(stage)).poll()
    assert (one.attempt, one.token) == (1, 2)


async def test_an_error_of_the_store_ends_all_open_polls(stage: Stage, looks: Looks):
    await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    looks.fail_next(ClaimExecutions)
    with pytest.raises(Overloaded):
        await hand.poll()
    assert len(await hand.poll()) == 1
