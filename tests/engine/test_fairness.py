"""One tenant can't starve the others, whatever number of its jobs are due, waiting or hanging."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from duetime.domain import commands as c
from duetime.domain.fairness import FEW_DUE, crowding
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.job import Overlap
from duetime.domain.states import State
from duetime.engine import timer
from duetime.engine.dispatcher import Limits
from duetime.engine.timer import SHARED_PAGE
from duetime.ports.store import ExecutionQuery
from duetime.testing import ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import NOW, add_execution, new_job, spec

LOUD, QUIET = "a-loud", "quiet"  # within an instant, timers are read in the order of their tenants
DUE = NOW + MINUTE
AT = "2026-01-01T00:01:00Z"


async def create(stage: Stage, tenant: str, count: int, schedule: str = AT, **fields: object) -> None:
    jobs = tuple(new_job(spec(schedule, **fields), tenant=tenant) for _ in range(count))
    await stage.apply(c.CreateJobs(NOW, jobs))


def places(executor: ScriptedExecutor, tenant: str) -> list[int]:
    return [place for place, attempt in enumerate(executor.attempts) if attempt.claim.tenant == tenant]


async def test_many_due_timers_of_one_tenant_do_not_delay_other_tenants(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await create(stage, LOUD, 6000)
    await create(stage, QUIET, 5)
    stage.clock.set(DUE)
    await stage.turn_timer()
    assert len(executor.attempts) == 6005
    assert len(places(executor, QUIET)) == 5, "each once, though two readings came by"
    assert places(executor, QUIET)[-1] < 3000, "not after all timers of the other tenant"


async def test_timers_of_others_fire_while_the_backlog_of_a_tenant_is_fired(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await create(stage, QUIET, 3, "every 1s", overlap=Overlap.ALLOW)
    stage.clock.set(DUE - SECOND // 2)
    await stage.turn_timer()
    await create(stage, LOUD, 9000)
    stage.clock.set(DUE)
    begun = len(executor.attempts)
    for turn in range(1000):
        if len(places(executor, LOUD)) >= 6000:
            break
        if turn % 4 == 3:
            stage.clock.set(stage.clock.now() + SECOND // 2)
        await stage.engine.term.timer.run_once()
        await stage.settle()
    in_between = {attempt.claim.scheduled_at for attempt in executor.attempts[begun:] if attempt.claim.tenant == QUIET}
    assert {DUE, DUE + SECOND, DUE + 2 * SECOND} <= in_between


async def test_the_backlog_of_a_tenant_is_no_reason_to_put_off_a_collection_of_garbage(
    stage: Stage, executor: ScriptedExecutor
):
    """It would run on its own in the end: at the moment of most allocations, which is when the others are due."""
    await stage.join()
    await create(stage, QUIET, 3, "every 1s", overlap=Overlap.ALLOW)
    stage.clock.set(DUE - SECOND // 2)
    await stage.turn_timer()
    await create(stage, LOUD, 9000)
    stage.engine.term.timer.hint(DUE)
    stage.clock.set(DUE)
    while not fired_at(executor, DUE) or len(places(executor, LOUD)) < 1000:
        await stage.engine.term.timer.run_once()
        await stage.settle()
    stage.clock.set(DUE + SECOND)
    while not fired_at(executor, DUE + SECOND):
        await stage.engine.term.timer.run_once()
    assert stage.engine.term.timer.quiet_for() == 0, "the requests are being sent"
    stage.clock.set(DUE + SECOND * 3 // 2)
    await stage.engine.term.timer.run_once()
    assert len(places(executor, LOUD)) < 9000, "the backlog is still being fired"
    assert stage.engine.term.timer.quiet_for() >= SECOND // 4


async def test_other_tenants_do_not_wait_for_the_write_of_a_page_of_a_backlog(stage: Stage, executor: ScriptedExecutor):
    store = FlakyStore(stage.store)
    await stage.join(store=store)
    await create(stage, QUIET, 3, "every 1s", overlap=Overlap.ALLOW)
    stage.clock.set(DUE - SECOND // 2)
    await stage.turn_timer()
    await create(stage, LOUD, 9000)
    stage.engine.term.timer.hint(DUE)
    stage.clock.set(DUE)
    while not fired_at(executor, DUE) or len(places(executor, LOUD)) < 1000:
        await stage.engine.term.timer.run_once()
        await stage.settle()
    written = store.hold(c.Fire, lambda command: command.executions[0].tenant == LOUD)
    stage.clock.set(DUE + SECOND * 9 // 10)
    turning = asyncio.create_task(turn_for_ever(stage))
    await until(lambda: bool(store.held))
    stage.clock.set(DUE + SECOND)
    await until(lambda: fired_at(executor, DUE + SECOND) == 3)
    assert store.held
    written.set()
    await until(lambda: not store.held)
    written.clear()
    await until(lambda: bool(store.held))
    stage.clock.set(DUE + 2 * SECOND)
    await until(lambda: fired_at(executor, DUE + 2 * SECOND) == 3)
    assert len(store.held) == 1, "the other tenant now has one page in flight"
    written.set()
    turning.cancel()
    with suppress(asyncio.CancelledError):
        await turning


def fired_at(executor: ScriptedExecutor, instant: int) -> int:
    """Returns how many executions of the quiet tenant for that instant have started."""
    return sum(attempt.claim.tenant == QUIET and attempt.claim.scheduled_at == instant for attempt in executor.attempts)


async def turn_for_ever(stage: Stage) -> None:
    while True:
        await stage.engine.term.timer.run_once()
        await asyncio.sleep(0)


async def test_pages_are_small_only_while_other_tenants_are_due(stage: Stage, executor: ScriptedExecutor):
    """A single tenant has the whole page, although the timer looks for others."""
    await stage.join()
    await create(stage, LOUD, 6000)
    stage.clock.set(DUE)
    sizes: list[int] = []
    while len(executor.attempts) < 6000:
        before = len(executor.attempts)
        await stage.engine.term.timer.run_once()
        await stage.settle()
        sizes.append(len(executor.attempts) - before)
    assert max(sizes) > SHARED_PAGE


async def test_the_buffer_holds_fewer_timers_of_a_tenant_while_others_are_due(
    stage: Stage, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(timer, "MOST_HELD", 6000)
    monkeypatch.setattr(timer, "MOST_HELD_SHARED", 1000)
    await stage.join()
    await create(stage, QUIET, 3, "every 1s", overlap=Overlap.ALLOW)
    stage.clock.set(DUE - SECOND // 2)
    await stage.turn_timer()
    await create(stage, LOUD, 16_000)
    stage.engine.term.timer.hint(DUE)
    stage.clock.set(DUE - SECOND // 4)
    await stage.turn_timer()
    buffer = stage.engine.term.timer._buffer
    assert buffer.held() >= 6000, "the others are not due yet"
    stage.clock.set(DUE)
    held = [buffer.held()]
    while len(places(executor, LOUD)) < 16_000:
        await stage.engine.term.timer.run_once()
        await stage.settle()
        held.append(buffer.held())
    read_at = [before for before, after in pairwise(held) if after > before]
    assert read_at, "the rest is read"
    assert max(read_at) < 1000


def test_tenants_with_hundreds_of_due_timers_are_crowding():
    assert crowding({}) == frozenset()
    assert crowding({"alone": FEW_DUE}) == frozenset()
    assert crowding({"alone": FEW_DUE + 1}) == {"alone"}
    assert crowding({"loud": 30_000, "quiet": 10}) == {"loud"}
    assert crowding({"one": 20_000, "two": 12_000, "quiet": 500}) == {"one", "two"}
    assert crowding(dict.fromkeys("abcdef", 2_000)) == frozenset("abcdef")


async def test_waiting_executions_are_claimed_by_tenants_in_turn(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(capacity=600))
    for tenant, count in ((LOUD, 700), (QUIET, 3)):
        await create(stage, tenant, count, "2026-01-02T00:00:00Z", priority=9 if tenant == LOUD else 0)
        for job in (await stage.store.list_due_timers(2**50, 1000))[-count:]:
            await add_execution(stage.store, job.job_id, NOW, tenant)
    await stage.engine.term.claimer.run_once()
    assert await stage.store.count_executions(ExecutionQuery(QUIET, state=State.RUNNING)) == 3
    assert 0 < await stage.store.count_executions(ExecutionQuery(LOUD, state=State.RUNNING)) <= 450


async def test_a_tenant_that_fills_the_memory_releases_claims_that_have_not_started(
    stage: Stage, executor: ScriptedExecutor
):
    executor.hold()
    engine = await stage.join(Limits(capacity=8, concurrency=1))
    for tenant, count in (("a", 6), ("b", 6), ("c", 1)):
        await create(stage, tenant, 1, "2026-01-02T00:00:00Z")
        (job,) = [t for t in await stage.store.list_due_timers(2**50, 10) if t.tenant == tenant]
        for n in range(count):
            await add_execution(stage.store, job.job_id, NOW - n, tenant)
        while await engine.term.claimer.run_once() == 0:
            pass
    assert engine.term.dispatcher.room() >= 0
    running = {
        tenant: await stage.store.count_executions(ExecutionQuery(tenant, state=State.RUNNING)) for tenant in "abc"
    }
    assert running["c"] == 1
    assert sum(running.values()) <= 8
    executor.let_go()
    for _ in range(20):
        await stage.tick()
    for tenant, count in (("a", 6), ("b", 6), ("c", 1)):
        found = await stage.store.list_executions(ExecutionQuery(tenant))
        assert [(e.state, e.attempt) for e in found] == [(State.COMPLETED, 1)] * count, "no attempt was counted"


async def test_a_hanging_endpoint_of_one_tenant_does_not_delay_requests_of_others_to_it(
    stage: Stage, executor: ScriptedExecutor
):
    await stage.join(Limits(endpoint=4))
    shared = "https://shared.example"
    executor.hold(f"{shared}/hangs")
    for _ in range(20):
        await stage.add_job(spec("immediate", url=f"{shared}/hangs"), tenant=LOUD)
    await stage.tick()
    await stage.add_job(spec("immediate", url=f"{shared}/fast"), tenant=QUIET)
    await stage.tick()
    (found,) = await stage.store.list_executions(ExecutionQuery(QUIET))
    assert found.state is State.COMPLETED


async def test_no_place_is_lost_whatever_claims_are_added_ended_and_cancelled(stage: Stage, executor: ScriptedExecutor):
    """Cancels claims that wait for an endpoint, one by one, from each end: the rest runs."""
    await stage.join(Limits(endpoint=1, concurrency=2))
    url = "https://one.example/x"
    executor.hold(url)
    jobs = [await stage.add_job(spec("immediate", url=url, priority=n % 3)) for n in range(9)]
    await stage.tick()
    (running,) = [attempt.claim.job_id for attempt in executor.attempts]
    waiting = [job_id for job_id in jobs if job_id != running]
    for job_id in (*waiting[:3], waiting[-1]):
        (execution,) = await stage.executions(job_id)
        await stage.cancel_execution(execution.execution_id)
    executor.let_go(url)
    await stage.settle()
    assert [await stage.states(job_id) for job_id in waiting[3:-1]] == [[State.COMPLETED]] * 4
    assert stage.engine.term.dispatcher.waiting() == 0
