"""A node regularly checks that it holds the claims that it has in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.instants import SECOND
from duetime.domain.job import Delivery, Overlap
from duetime.domain.states import ErrorType, State
from duetime.engine.dispatcher import Limits
from duetime.ports.store import Store
from duetime.store.sqlite import store as sqlite_store
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from samples import NOW, add_execution, claim_waiting, spec

URL = "https://hook.example/run"


async def lose(stage: Stage, job_id: str) -> None:
    """Simulates a defect: the claim is in the ledger, and nowhere else."""
    (execution,) = await stage.executions(job_id)
    claim = stage.engine.term.dispatcher._queue.waiting[execution.execution_id]
    stage.engine.term.dispatcher._queue.remove(claim)
    stage.engine.term.dispatcher.recorded([claim])


async def stuck(stage: Stage, executor: ScriptedExecutor, **fields: object) -> str:
    executor.hold(URL)
    await stage.join(Limits(concurrency=1))
    await stage.add_job(spec("immediate", url=URL, priority=9))
    await stage.tick()
    job_id = await stage.add_job(spec("immediate", **fields))
    await stage.tick()
    await lose(stage, job_id)
    return job_id


async def test_an_execution_that_the_node_lost_is_returned_and_runs(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor, overlap=Overlap.SKIP)
    check = stage.engine.term.ledger_check
    next_at = await check.run_once()
    assert next_at > stage.clock.now()
    assert await stage.states(job_id) == [State.RUNNING], "it may be on its way from the store to the dispatcher"
    stage.clock.set(next_at)
    await check.run_once()
    assert await stage.states(job_id) == [State.QUEUED]
    executor.let_go(URL)
    await stage.settle()
    await stage.tick()
    assert await stage.states(job_id) == [State.COMPLETED]
    (attempt, _) = await stage.store.list_attempts((await stage.executions(job_id))[0].execution_id)
    assert attempt.error_type is ErrorType.LEASE_LOST


async def test_a_lost_at_most_once_execution_is_not_run_again(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor, delivery=Delivery.AT_MOST_ONCE)
    for _ in range(2):
        stage.clock.set(await stage.engine.term.ledger_check.run_once())
    assert await stage.states(job_id) == [State.FAILED]


async def test_running_waiting_and_unrecorded_executions_are_not_returned(stage: Stage, executor: ScriptedExecutor):
    executor.hold(URL)
    await stage.join(Limits(concurrency=1))
    jobs = [await stage.add_job(spec("immediate", url=URL)) for _ in range(3)]
    await stage.tick()
    check = stage.engine.term.ledger_check
    for _ in range(3):
        stage.clock.set(await check.run_once())
    assert [await stage.states(job_id) for job_id in jobs] == [[State.RUNNING]] * 3
    executor.let_go(URL)
    await stage.let_run()  # ended, and not yet recorded
    for _ in range(3):
        stage.clock.set(await check.run_once())
    await stage.settle()
    assert [await stage.states(job_id) for job_id in jobs] == [[State.COMPLETED]] * 3


async def test_a_later_claim_of_an_execution_counts_as_another_claim(stage: Stage, executor: ScriptedExecutor):
    job_id = await stuck(stage, executor)
    check = stage.engine.term.ledger_check
    await check.run_once()
    ((lost, token),) = check._missing
    check._missing = frozenset({(lost, token - 1)})
    stage.clock.set(stage.clock.now() + 60 * SECOND)
    await check.run_once()
    assert await stage.states(job_id) == [State.RUNNING], "seen once, with that token"


class Silent:
    """A store that writes a fire, and does not respond for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers = asyncio.Event()
        self.answers.set()

    async def apply(self, commands: Sequence[c.Command]) -> list[Any]:
        answer = await self._store.apply(commands)
        if any(isinstance(command, c.Fire) for command in commands):
            await self.answers.wait()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_executions_of_a_fire_in_flight_are_not_returned_however_long_it_takes(
    stage: Stage, executor: ScriptedExecutor
):
    silent = Silent(stage.store)
    await stage.join(store=silent)  # type: ignore[arg-type]
    job_id = await stage.add_job(spec("immediate", delivery=Delivery.AT_MOST_ONCE))
    silent.answers.clear()
    firing = asyncio.ensure_future(stage.turn_timer())
    while await stage.states(job_id) != [State.RUNNING]:  # noqa: ASYNC110 (the store is asked: no event says so)
        await asyncio.sleep(0)
    for _ in range(4):
        stage.clock.set(await stage.engine.term.ledger_check.run_once())
    assert await stage.states(job_id) == [State.RUNNING]
    silent.answers.set()
    await firing
    await stage.settle()
    assert await stage.states(job_id) == [State.COMPLETED]
    assert len(executor.attempts) == 1


async def test_claims_are_found_among_any_number_of_open_executions(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite_store, "OPEN_PAGE", 3)
    await stage.join(Limits(capacity=0))
    for n in range(10):
        await add_execution(stage.store, await stage.add_job(spec("2026-02-01T00:00:00Z")), NOW - n)
    node = stage.engine.node
    claims = await claim_waiting(stage.store, node, NOW, 4)
    found = await stage.store.list_node_claims(node, 100)
    assert sorted(found) == sorted((claim.execution_id, claim.token) for claim in claims)
    assert len(await stage.store.list_node_claims(node, 2)) == 2
    assert await stage.store.list_node_claims(node + 1, 100) == []
