"""Pages in flight count against the room of the dispatcher: it gets their claims when they are written."""

from __future__ import annotations

import asyncio

from duetime.domain import commands as c
from duetime.domain.fairness import endpoint_share, memory_share
from duetime.domain.instants import MINUTE
from duetime.engine.dispatcher import Limits
from duetime.engine.timer import BURST, FIRST_PAGE, PAGE_GROWTH
from duetime.testing import ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import NOW, new_job, spec

SECOND_PAGE, THIRD_PAGE = BURST, BURST * PAGE_GROWTH
CAPACITY = 160
ROOM = endpoint_share(memory_share(CAPACITY, 1))  # for a single endpoint of a single tenant


async def test_claims_of_a_page_in_flight_take_room(stage: Stage, executor: ScriptedExecutor):
    assert FIRST_PAGE + THIRD_PAGE <= ROOM < FIRST_PAGE + SECOND_PAGE + THIRD_PAGE
    flaky = FlakyStore(stage.store)
    executor.hold()
    await stage.join(Limits(capacity=CAPACITY), store=flaky)
    jobs = tuple(new_job(spec("2026-01-01T00:01:00Z")) for _ in range(FIRST_PAGE + SECOND_PAGE + THIRD_PAGE))
    await stage.apply(c.CreateJobs(NOW, jobs))
    stage.clock.set(NOW + MINUTE)
    timer, dispatcher = stage.engine.term.timer, stage.engine.term.dispatcher
    while not executor.attempts:
        await timer.run_once()
        await stage.let_run()
    assert len(executor.attempts) == FIRST_PAGE

    gate = flaky.hold(c.Fire)
    await timer.run_once()  # the next page does not wait for this one
    await until(lambda: len(flaky.held) == 1)
    turn = asyncio.ensure_future(timer.run_once())
    await until(lambda: len(flaky.held) == 2)
    pages = [(len(fire.executions), fire.claim) for fire in flaky.held if isinstance(fire, c.Fire)]
    assert pages == [(SECOND_PAGE, True), (THIRD_PAGE, False)]
    gate.set()
    await turn
    await stage.let_run()
    assert dispatcher.running() + dispatcher.waiting() == FIRST_PAGE + SECOND_PAGE

    executor.let_go()
    await stage.settle()
    await stage.tick()
    assert {attempt.claim.job_id for attempt in executor.attempts} == {job.job_id for job in jobs}
