"""A store that times out with large pages: gathered results are written in smaller pages."""

from __future__ import annotations

import pytest

from duetime.domain.commands import Finish, Fire, Release
from duetime.domain.errors import TimedOut
from duetime.domain.states import State
from duetime.domain.work import Reporting
from duetime.engine.dispatcher import Limits
from duetime.ports.store import Store
from engine.flaky import FlakyStore
from engine.stage import Stage
from engine.test_worker_gateway import ADD, call, done, hire
from samples import TENANT, spec

MOST_TRIES = 60  # enough to reach pages of one row and to write all of them


@pytest.fixture
def flaky(store: Store) -> FlakyStore:
    return FlakyStore(store)


async def until_written(turn: object, flaky: FlakyStore, **args: object) -> int:
    """Runs turns until one succeeds. Returns how many timed out."""
    for tries in range(MOST_TRIES):
        try:
            await turn(**args)  # type: ignore[operator]
        except TimedOut:
            continue
        return tries
    raise AssertionError(f"after {MOST_TRIES} tries nothing was written: {flaky.sizes}")


async def end_many(stage: Stage, count: int) -> list[str]:
    """Ends this many attempts, none of which is recorded."""
    jobs = [await stage.add_job(spec("immediate")) for _ in range(count)]
    while await stage.engine.term.timer.run_once() == 0:
        continue
    await stage.let_run()
    return jobs


async def test_ends_gathered_during_an_outage_are_written_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    jobs = await end_many(stage, 100)
    flaky.write_in_time(Finish, 7)
    assert (
        await until_written(stage.engine.term.recorder.run_once, flaky) == 5
    )  # 100, 50, 25, 12; and 12 once more later
    assert flaky.sizes[:6] == [100, 50, 25, 12, 6, 6]
    for job_id in jobs:
        assert await stage.states(job_id) == [State.COMPLETED]
    assert (stage.engine.term.dispatcher.room(), stage.engine.term.dispatcher.running()) == (Limits().capacity, 0)


async def test_pages_written_before_a_timeout_are_not_written_again(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    await end_many(stage, 100)
    flaky.write_in_time(Finish, 7)
    await until_written(stage.engine.term.recorder.run_once, flaky)
    assert sum(size for size in flaky.sizes if size <= 7) == 100


async def test_ends_reported_by_a_worker_are_written_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    jobs = [await stage.add_job(call(ADD)) for _ in range(40)]
    await stage.tick()
    hand = await hire(stage)
    ended = [done(one, "3") for one in await hand.poll(free=40)]
    flaky.write_in_time(Finish, 7)

    async def report() -> None:
        await stage.engine.term.worker_gateway.report(TENANT, Reporting(hand.worker_id, [], ended))

    assert await until_written(report, flaky) <= 4
    assert {state for job_id in jobs for state in await stage.states(job_id)} == {State.COMPLETED}


async def test_claims_returned_by_a_worker_are_released_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    jobs = [await stage.add_job(call(ADD)) for _ in range(40)]
    await stage.tick()
    hand = await hire(stage)
    unbegun = [one.claim for one in await hand.poll(free=40)]
    flaky.write_in_time(Release, 7)

    async def report() -> None:
        await stage.engine.term.worker_gateway.report(TENANT, Reporting(hand.worker_id, [], unbegun=unbegun))

    assert await until_written(report, flaky) <= 4
    assert {state for job_id in jobs for state in await stage.states(job_id)} == {State.QUEUED}


async def test_a_stop_releases_unstarted_claims_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    engine = await stage.join(Limits(concurrency=1), store=flaky, drain_seconds=0)  # type: ignore[arg-type]
    stage.executor.hold()
    jobs = await end_many(stage, 40)
    flaky.write_in_time(Release, 10)
    await engine.stop()
    states = [state for job_id in jobs for state in await stage.states(job_id)]
    assert sorted(states) == [State.QUEUED] * 40  # one was under way: its attempt is counted
    attempts = [claim.attempt for job_id in jobs for claim in await stage.executions(job_id)]
    assert sorted(attempts) == [0] * 39 + [1]


async def test_executions_of_an_expired_node_are_taken_over_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    stage.engine.term.recorder.add = lambda *_: None  # type: ignore[method-assign,assignment]
    jobs = await end_many(stage, 40)
    await stage.join(store=flaky)  # type: ignore[arg-type]
    flaky.write_in_time(Finish, 7)
    assert await until_written(stage.engine.term.reconciler.run_once, flaky) <= 4
    assert {state for job_id in jobs for state in await stage.states(job_id)} == {State.QUEUED}


async def test_a_page_of_fires_that_timed_out_is_fired_in_smaller_pages(stage: Stage, flaky: FlakyStore):
    await stage.join(store=flaky)  # type: ignore[arg-type]
    jobs = [await stage.add_job(spec("2026-01-01T00:00:10Z")) for _ in range(200)]
    stage.clock.advance(10)
    flaky.write_in_time(Fire, 30)

    async def fire() -> None:
        while await stage.engine.term.timer.run_once() == 0:
            continue

    assert await until_written(fire, flaky) <= 8
    await stage.settle()
    assert {state for job_id in jobs for state in await stage.states(job_id)} == {State.COMPLETED}
