"""Memory for claims is counted in places: one large claim counts like several small ones."""

from __future__ import annotations

import msgspec

from duetime.domain.commands import Release
from duetime.domain.execution import Claim
from duetime.domain.instants import MINUTE
from duetime.domain.job import HttpJob, PythonJob
from duetime.domain.payloads import HttpRequest, PythonCall
from duetime.domain.states import State
from duetime.engine import timer_buffer
from duetime.engine.dispatcher import Limits
from duetime.engine.timer_buffer import TimerBuffer
from duetime.testing import ScriptedExecutor
from engine.stage import Stage
from engine.test_claimer import Backlogs, claimer_of, settle
from engine.test_dispatcher import Attempts, claim_of
from engine.test_timer_buffer import SOON, Timers, timers
from samples import NOW, TENANT, add_execution

__all__ = ["timers"]  # a fixture

BODY = [[]] * 40_000  # 120 kB of text: 59 places with its request
AT = "2026-01-01T00:01:00Z"


def large(number: int, places: int, **fields: int | str) -> Claim:
    return msgspec.structs.replace(claim_of(number, **fields), places=places)


def job(schedule: str = AT) -> HttpJob:
    return HttpJob(name="large", schedule=schedule, payload=HttpRequest("https://hook.example/", body=BODY))


async def test_a_claim_takes_its_places_until_it_is_recorded():
    attempts = Attempts(Limits(capacity=400), hold=True)
    claims = [large(n, 60) for n in range(3)]
    attempts.dispatcher.offer(claims)
    assert attempts.dispatcher.room() == 400 - 3 * 60
    assert await attempts.dispatcher.admit({(TENANT, 1): 60}, 0.01) == {(TENANT, 1)}, "three quarters of 300 are 225"
    assert await attempts.dispatcher.admit({(TENANT, 1): 45}, 0.01) == frozenset()
    attempts.dispatcher.recorded(claims[:2])
    assert attempts.dispatcher.room() == 400 - 60


async def test_a_tenant_releases_as_many_places_as_requested():
    attempts = Attempts(Limits(capacity=200, concurrency=1), hold=True)
    attempts.dispatcher.offer([large(n, 20, tenant="a") for n in range(10)])
    returned = attempts.dispatcher.make_room(50, ["b"])
    assert [claim.places for claim in returned] == [20, 20, 20]
    attempts.dispatcher.recorded(returned)
    assert attempts.dispatcher.room() == 60


async def test_cancelled_large_claims_are_not_kept():
    attempts = Attempts(Limits(concurrency=1), hold=True)
    claims = [large(n, 60) for n in range(20)]
    attempts.dispatcher.offer([claim_of(100), *claims, claim_of(101)])
    for claim in claims:
        assert attempts.dispatcher.cancel(claim.execution_id)
        attempts.dispatcher.recorded([claim])
    (queue,) = attempts.dispatcher._queue.tenants[TENANT].queues.values()
    kept = [claim for waiting in queue.waiting for claim in waiting or ()]
    assert sum(claim.places for claim in kept) <= 64 + 60


async def test_due_timers_are_read_ahead_only_as_far_as_memory_allows(timers: Timers):
    timers.add(SOON, 5000)
    timers.rows = [msgspec.structs.replace(row, places=100) for row in timers.rows]
    timers.most = 20
    reading = TimerBuffer(timers, lambda count: bytes(count))  # type: ignore[arg-type]
    while reading.read_on(NOW):
        await reading.end_reading()
    assert reading.held() in range(timer_buffer.MOST_EXTRA // 100, timer_buffer.MOST_EXTRA // 100 + 2 * timers.most)
    taken = reading.take(SOON, 60)
    assert taken is not None
    assert reading.read_on(SOON), "the next read starts when these are fired"


async def test_executions_without_room_stay_queued_and_run_when_there_is_room(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(capacity=320))
    for _ in range(20):
        await stage.add_job(job())
    stage.clock.set(NOW + MINUTE)
    for _ in range(5):
        await stage.tick()
    assert executor.running() in range(3, 7)
    assert stage.engine.term.dispatcher.room() > -59, "one at most was larger than what was free"
    executor.let_go()
    for _ in range(20):
        await stage.tick()
    assert len(executor.attempts) == 20


async def test_manual_executions_of_a_large_job_are_claimed_a_few_at_a_time(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(capacity=320))
    job_id = await stage.add_job(job("2027-01-01T00:00:00Z"))
    for n in range(30):
        await add_execution(stage.store, job_id, NOW - n)
    for _ in range(10):
        await stage.tick()
    assert stage.engine.term.dispatcher.running() + stage.engine.term.dispatcher.waiting() <= 6
    states = await stage.states(job_id)
    assert states.count(State.QUEUED) >= 24
    executor.let_go()
    for _ in range(30):
        await stage.tick()
    assert await stage.states(job_id) == [State.COMPLETED] * 30


async def test_a_tenant_with_large_claims_releases_memory_for_another_tenant():
    backlogs = Backlogs()
    claimer, dispatcher = claimer_of(backlogs, capacity=4000, concurrency=10)
    backlogs.places = 100
    backlogs.tenants = ["large"]
    await settle(claimer)
    assert dispatcher.room() in range(-99, 1001), "three quarters, and a claim"
    backlogs.tenants, backlogs.places = ["large", "small"], 1
    for _ in range(20):
        await settle(claimer)
    held = {tenant.tenant: tenant.held for tenant in dispatcher._queue.tenants.values()}
    assert held["small"] >= 1400, "half of three quarters, or nearly"
    assert backlogs.commands[Release]


def test_a_claim_handed_to_a_worker_is_remembered_without_its_arguments():
    call = PythonJob(name="a", schedule=AT, payload=PythonCall("f", BODY, {"a": 1}))
    claim = msgspec.structs.replace(claim_of(1), spec=call, places=60)
    lean = claim.without_arguments()
    assert (lean.places, lean.spec.payload) == (1, PythonCall("f"))
    marked = PythonJob(name="a", schedule=AT, payload=PythonCall("f", kwargs={"a": "s"}, secret=("/kwargs/a",)))
    with_secrets = msgspec.structs.replace(claim, spec=marked)
    assert with_secrets.without_arguments() is with_secrets
    small = claim_of(2)
    assert small.without_arguments() is small
