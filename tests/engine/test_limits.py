"""Limits: order by priority, a share for each endpoint and tenant, and an overflow that loses nothing."""

from __future__ import annotations

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.instants import MINUTE
from duetime.domain.states import State
from duetime.engine.dispatcher import Limits
from duetime.ports.store import ExecutionQuery
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, new_job, spec

HANGS = "https://hangs.example/x"


async def count(stage: Stage, state: State, tenant: str = TENANT) -> int:
    return await stage.store.count_executions(ExecutionQuery(tenant, state=state))


async def test_the_highest_priority_runs_first(stage: Stage, executor: ScriptedExecutor):
    await stage.join(Limits(concurrency=1))
    priorities = [5, 1, 9, 0, 5, 7]
    jobs = tuple(new_job(spec("2026-01-01T00:01:00Z", priority=priority)) for priority in priorities)
    await stage.apply(c.CreateJobs(NOW, jobs))
    stage.clock.set(NOW + MINUTE)
    await stage.tick()
    by_id = {job.job_id: job.spec.priority for job in jobs}
    assert [by_id[attempt.claim.job_id] for attempt in executor.attempts] == sorted(priorities, reverse=True)


async def test_no_more_attempts_run_at_once_than_allowed(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(concurrency=3))
    for _ in range(10):
        await stage.add_job(spec("immediate"))
    await stage.tick()
    assert executor.running() == 3
    executor.let_go()
    await stage.settle()
    assert await count(stage, State.COMPLETED) == 10


async def test_a_hanging_endpoint_delays_no_other_endpoint(stage: Stage, executor: ScriptedExecutor):
    executor.hold(HANGS)
    await stage.join(Limits(concurrency=4, endpoint=2))
    for _ in range(6):
        await stage.add_job(spec("immediate", url=HANGS, priority=9))
    for _ in range(6):
        await stage.add_job(spec("immediate", priority=0))
    await stage.tick()
    assert executor.running() == 2
    assert await count(stage, State.COMPLETED) == 6
    executor.let_go(HANGS)
    await stage.settle()
    assert await count(stage, State.COMPLETED) == 12


async def test_a_busy_tenant_delays_no_other_tenant(stage: Stage, executor: ScriptedExecutor):
    await stage.join(Limits(concurrency=4, tenant=2))
    for n in range(6):
        executor.hold(f"https://{n}.example/x")
        await stage.add_job(spec("immediate", url=f"https://{n}.example/x", priority=9))
    for _ in range(6):
        await stage.add_job(spec("immediate", priority=0), tenant="other")
    await stage.tick()
    assert executor.running() == 2
    assert await count(stage, State.COMPLETED, "other") == 6
    for n in range(6):
        executor.let_go(f"https://{n}.example/x")
    await stage.settle()
    assert await count(stage, State.COMPLETED) == 6


async def test_a_place_at_an_endpoint_that_a_busy_tenant_cannot_use_goes_to_another_tenant(
    stage: Stage, executor: ScriptedExecutor
):
    """Two places for the endpoint, two for a tenant: a claim that waits for its tenant must not hold a place."""
    await stage.join(Limits(endpoint=2, tenant=2))
    shared, long_a, long_b = "https://shared.example/x", "https://a.example/x", "https://b.example/x"
    for url in (shared, long_a, long_b):
        executor.hold(url)
    for _ in range(2):
        await stage.add_job(spec("immediate", url=shared), tenant="third")
    await stage.tick()
    await stage.add_job(spec("immediate", url=long_a))
    await stage.add_job(spec("immediate", url=long_b))
    await stage.tick()
    blocked = await stage.add_job(spec("immediate", url=shared, priority=9))
    waiting = [await stage.add_job(spec("immediate", url=shared, priority=1), tenant="third") for _ in range(2)]
    await stage.tick()
    assert executor.running() == 4
    executor.let_go(shared)
    await stage.settle()
    assert await stage.states(blocked) == [State.RUNNING]  # claimed, but its tenant is full
    for job_id in waiting:
        assert [e.state for e in await stage.store.list_executions(ExecutionQuery("third", job_id=job_id))] == [
            State.COMPLETED
        ]
    executor.let_go(long_a)
    await stage.settle()
    assert await stage.states(blocked) == [State.COMPLETED]


async def test_a_place_of_a_tenant_that_a_full_endpoint_cannot_use_goes_to_its_other_endpoints(
    stage: Stage, executor: ScriptedExecutor
):
    await stage.join(Limits(endpoint=1, tenant=2))
    busy, free, first = "https://busy.example/x", "https://free.example/x", "https://first.example/x"
    executor.hold(busy)
    executor.hold(first)
    await stage.add_job(spec("immediate", url=busy))
    await stage.add_job(spec("immediate", url=first))
    await stage.tick()
    blocked = await stage.add_job(spec("immediate", url=busy, priority=9))
    waiting = await stage.add_job(spec("immediate", url=free, priority=1))
    await stage.tick()
    assert executor.running() == 2
    executor.let_go(first)
    await stage.settle()
    assert await stage.states(waiting) == [State.COMPLETED]
    executor.let_go(busy)
    await stage.settle()
    assert await stage.states(blocked) == [State.COMPLETED]


async def test_executions_beyond_the_capacity_wait_in_the_store_and_run_later(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(capacity=10, concurrency=4))
    jobs = tuple(new_job(spec("2026-01-01T00:01:00Z")) for _ in range(60))
    await stage.apply(c.CreateJobs(NOW, jobs))
    stage.clock.set(NOW + MINUTE)
    await stage.turn_timer()
    await stage.engine.term.claimer.run_once()
    await stage.let_run()
    held = stage.engine.term.dispatcher.running() + stage.engine.term.dispatcher.waiting()
    assert 0 < held <= 10
    assert await count(stage, State.QUEUED) == 60 - held
    executor.let_go()
    await stage.tick()
    assert {attempt.claim.job_id for attempt in executor.attempts} == {job.job_id for job in jobs}
    assert len(executor.attempts) == 60
    assert await count(stage, State.COMPLETED) == 60


async def test_a_hanging_endpoint_never_fills_all_of_the_memory(stage: Stage, executor: ScriptedExecutor):
    executor.hold(HANGS)
    await stage.join(Limits(capacity=20))
    dispatcher = stage.engine.term.dispatcher
    while not dispatcher.full_endpoints():
        await stage.add_job(spec("immediate", url=HANGS))
        await stage.tick()
    assert dispatcher.full_endpoints() == ((TENANT, endpoint_of_url(HANGS)),)
    share = executor.running()
    assert share < 20
    for _ in range(5):
        await stage.add_job(spec("immediate", url=HANGS, priority=9))
    others = [await stage.add_job(spec("immediate")) for _ in range(5)]
    await stage.tick()
    assert await count(stage, State.RUNNING) == share
    assert await count(stage, State.QUEUED) == 5
    assert [await stage.states(job_id) for job_id in others] == [[State.COMPLETED]] * 5
    executor.let_go(HANGS)
    await stage.settle()
    await stage.tick()
    assert await count(stage, State.COMPLETED) == share + 10


async def test_a_closed_dispatcher_has_no_room(stage: Stage):
    engine = await stage.join()
    await engine.term.dispatcher.drain(0)
    assert engine.term.dispatcher.room() == 0
    target = (TENANT, 1)
    assert target in await engine.term.dispatcher.admit({target: 1}, 0.01)
