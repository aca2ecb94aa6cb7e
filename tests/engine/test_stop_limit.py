"""A stop ends within its time limit, whatever its steps wait for; a second request ends it at once."""

from __future__ import annotations

import asyncio

import pytest

from duetime.domain import commands as c
from duetime.engine.dispatcher import Limits
from duetime.engine.stop_limit import StopLimit
from duetime.ports.store import Store
from duetime.testing import HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import spec

FOREVER = 3600.0
HANGS = 30.0  # seconds: a step that runs longer counts as hanging


async def never() -> None:
    await asyncio.Event().wait()


async def test_the_result_of_a_step_that_ends_in_time_is_returned():
    async def step() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await StopLimit(FOREVER).within(step(), FOREVER) == "done"


@pytest.mark.parametrize(("all_of_it", "this_step"), [(0.01, FOREVER), (FOREVER, 0.01), (0.0, FOREVER)])
async def test_a_step_beyond_its_time_is_cancelled(all_of_it: float, this_step: float):
    with pytest.raises(TimeoutError, match="the stop goes on without it"):
        async with asyncio.timeout(HANGS):
            await StopLimit(all_of_it).within(never(), this_step)


async def test_a_step_gets_its_least_time_even_if_no_time_is_left():
    async def close() -> str:
        await asyncio.sleep(0.01)
        return "closed"

    assert await StopLimit(0.0).within(close(), FOREVER, at_least=HANGS) == "closed"


async def test_hurry_shortens_the_current_step():
    limit = StopLimit(FOREVER)
    step = asyncio.ensure_future(limit.within(never(), FOREVER))
    await asyncio.sleep(0)
    limit.hurry()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HANGS):
            await step


async def test_a_step_that_cannot_be_cancelled_is_abandoned():
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HANGS):
            await StopLimit(0.01).within(stubborn(), FOREVER)
    let_go.set()


@pytest.mark.parametrize("kind", [c.Fire, c.Finish, c.Release, c.StopNode])
async def test_an_engine_stops_although_the_store_does_not_respond(
    store: Store, clock: HandClock, kind: type[c.Command]
):
    """If the database becomes unreachable during a commit, the store retries until it has the result."""
    flaky = FlakyStore(store)
    stage = Stage(store, clock, ScriptedExecutor())
    engine = stage.make_engine(Limits(concurrency=1), flaky, drain_seconds=0.05, stop_seconds=0.2)  # type: ignore[arg-type]
    held = flaky.hold(kind)
    stage.executor.hold()
    await engine.start()
    for _ in range(3):
        await stage.add_job(spec("immediate"))
    await until(lambda: bool(flaky.held if kind is c.Fire else stage.executor.attempts))
    async with asyncio.timeout(HANGS):
        await engine.stop()
    held.set()


async def test_a_second_request_ends_an_engine_that_has_an_hour(store: Store, clock: HandClock):
    flaky = FlakyStore(store)
    stage = Stage(store, clock, ScriptedExecutor())
    engine = stage.make_engine(store=flaky, drain_seconds=FOREVER, stop_seconds=FOREVER)  # type: ignore[arg-type]
    flaky.hold(c.StopNode)
    stage.executor.hold()
    await engine.start()
    await stage.add_job(spec("immediate"))
    await until(lambda: bool(stage.executor.attempts))
    stopping = asyncio.ensure_future(engine.stop())
    await until(lambda: engine.term.dispatcher._closed)
    engine.stop_waiting()
    async with asyncio.timeout(HANGS):
        await stopping


async def test_steps_that_hang_before_the_drain_leave_time_to_release_unstarted_claims(
    stage: Stage, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
):
    executor.hold()
    engine = await stage.join(Limits(concurrency=1), drain_seconds=0.5, stop_seconds=0.5)
    jobs = [await stage.add_job(spec("immediate")) for _ in range(3)]
    await stage.tick()
    monkeypatch.setattr(engine.term.timer, "stop", never)
    monkeypatch.setattr(engine.term.membership, "retire", never)
    async with asyncio.timeout(HANGS):
        await engine.stop()
    states = sorted([state for job_id in jobs for state in await stage.states(job_id)])
    assert states.count("QUEUED") >= 2, "two never began; the one that ran was given back, too, or is taken over"
