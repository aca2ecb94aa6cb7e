"""The worker gateway: workers get functions and report results. A lost worker or response loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.errors import NotFound
from duetime.domain.instants import SECOND
from duetime.domain.job import Delivery, PythonJob, RetryPolicy
from duetime.domain.payloads import PythonCall
from duetime.domain.states import ErrorType, State
from duetime.domain.work import Assignment, Ended, Joining, Note, Polling, Reported, Reporting, WorkClaim
from engine.stage import Stage, until
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, spec

ADD = "shop.add"


def call(function: str = ADD, *args: Any, **fields: Any) -> PythonJob:
    payload = PythonCall(function, list(args), **{k: fields.pop(k) for k in ("kwargs", "secret") if k in fields})
    return PythonJob(**{"name": "sum", "schedule": "immediate", "payload": payload} | fields)


class Hand:
    """A worker that does only what the test says."""

    def __init__(self, stage: Stage, worker_id: int) -> None:
        self.stage = stage
        self.worker_id = worker_id
        self.running: list[WorkClaim] = []

    async def poll(self, free: int = 10, wait_seconds: float = 0) -> list[Assignment]:
        polled = await self.stage.engine.term.worker_gateway.poll(TENANT, Polling(self.worker_id, free, wait_seconds))
        self.running += [one.claim for one in polled.assignments]
        return polled.assignments

    async def report(self, *ended: Ended, notes: tuple[Note, ...] = ()) -> Reported:
        for end in ended:
            if end.claim in self.running:
                self.running.remove(end.claim)
        reporting = Reporting(self.worker_id, list(self.running), list(ended), list(notes))
        return await self.stage.engine.term.worker_gateway.report(TENANT, reporting)


async def hire(stage: Stage, *functions: str) -> Hand:
    joined = await stage.engine.term.worker_gateway.join(TENANT, "ann", Joining("host:1", functions or (ADD,), 10))
    return Hand(stage, joined.worker_id)


def done(one: Assignment, result: str | None = None, **fields: Any) -> Ended:
    return Ended(one.execution_id, one.attempt, one.token, 1000, 1250, result=result, **fields)


async def test_a_function_waits_for_a_worker_and_no_node_takes_it(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, 1, 2))
    web_id = await stage.add_job(spec("immediate"))
    await stage.tick()
    assert await stage.states(job_id) == [State.QUEUED]
    assert await stage.states(web_id) == [State.COMPLETED]  # the others don't wait for it
    hand = await hire(stage)
    (one,) = await hand.poll()
    assert (one.function, one.args, one.attempt, one.job_name, one.scheduled_at) == (ADD, [1, 2], 1, "sum", NOW)
    assert await stage.states(job_id) == [State.RUNNING]


async def test_the_result_of_a_function_is_stored_with_its_duration(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, 1, 2))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    stage.clock.advance(3)
    assert await hand.report(done(one, "3")) == Reported()
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.response, ended.worker_id) == (State.COMPLETED, "3", "host:1")
    assert (ended.started_at, ended.ended_at) == (NOW + 2750, NOW + 3000)  # by our clock, with its duration


async def test_a_worker_gets_only_its_own_functions(stage: Stage):
    await stage.join()
    await stage.add_job(call("other.function"))
    mine = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    assert [one.job_id for one in await hand.poll()] == [mine]


async def test_a_worker_of_another_tenant_gets_nothing(stage: Stage):
    await stage.join()
    await stage.add_job(call(ADD))
    await stage.tick()
    joined = await stage.engine.term.worker_gateway.join("globex", "bob", Joining("host:2", (ADD,), 10))
    polled = await stage.engine.term.worker_gateway.poll("globex", Polling(joined.worker_id, 10, 0))
    assert polled.assignments == []


async def test_a_tenant_can_use_only_its_own_workers(stage: Stage):
    await stage.join()
    hand = await hire(stage)
    for asked in (
        stage.engine.term.worker_gateway.poll("globex", Polling(hand.worker_id, 1, 0)),
        stage.engine.term.worker_gateway.report("globex", Reporting(hand.worker_id, [])),
        stage.engine.term.worker_gateway.leave("globex", hand.worker_id),
    ):
        with pytest.raises(NotFound, match="join again"):
            await asked


async def test_an_open_poll_ends_as_soon_as_there_is_an_execution(stage: Stage):
    await stage.join()
    hand = await hire(stage)
    waiting = asyncio.create_task(hand.poll(wait_seconds=30))
    await until(lambda: bool(stage.engine.term.worker_gateway.polls.waiting()))
    await stage.add_job(call(ADD))
    await stage.turn_timer()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert len(await waiting) == 1


async def test_a_failure_is_retried_by_the_policy_with_the_saved_progress(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, retry_policy=RetryPolicy(delays=(5,))))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    note = Note(one.execution_id, one.attempt, one.token, progress=msgspec.Raw(b'{"done":41}'))
    await hand.report(notes=(note,))
    await hand.report(done(one, error_type="function_error", error_message="ValueError: no"))
    assert await stage.states(job_id) == [State.RETRYING]
    assert await hand.poll() == []
    stage.clock.advance(5)
    (again,) = await hand.poll()
    assert (again.execution_id, again.attempt, again.progress) == (one.execution_id, 2, {"done": 41})


async def test_a_function_that_rejects_is_not_retried(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await hand.report(done(one, error_type="rejected", error_message="no such customer"))
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.error_type, ended.dead) == (State.FAILED, ErrorType.REJECTED, True)


async def lose(stage: Stage) -> None:
    """Advances the clock while no worker sends anything."""
    for _ in range(8):
        stage.clock.advance(1)
        await stage.engine.term.watch.run_once()
        await stage.engine.term.reconciler.run_once()


async def test_executions_of_a_silent_worker_go_to_another_as_the_next_attempt(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, retry_policy=RetryPolicy(max_retries=0)))
    await stage.tick()
    lost = await hire(stage)
    (one,) = await lost.poll()
    await lost.report(notes=(Note(one.execution_id, one.attempt, one.token, progress=msgspec.Raw(b"7")),))
    await lose(stage)
    assert await stage.states(job_id) == [State.QUEUED]
    other = await hire(stage)
    (again,) = await other.poll()
    assert (again.execution_id, again.attempt, again.progress) == (one.execution_id, 2, 7)
    with pytest.raises(NotFound):
        await lost.report(done(one, "late"))
    await other.report(done(again, "3"))
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.response) == (State.COMPLETED, "3")


async def test_a_worker_that_sends_heartbeats_is_not_fenced(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    for _ in range(20):
        stage.clock.advance(1)
        await hand.report()
        await stage.engine.term.watch.run_once()
        await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]


async def test_setting_the_clock_fences_no_worker(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    await stage.engine.term.watch.run_once()
    for jump in (3600, -7200):
        stage.clock.jump(jump)
        await stage.engine.term.watch.run_once()
        await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]


async def test_an_at_most_once_execution_goes_to_no_other_worker(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, delivery=Delivery.AT_MOST_ONCE))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    await lose(stage)
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.error_type, ended.attempt) == (State.FAILED, ErrorType.LEASE_LOST, 1)


async def test_executions_of_a_leaving_worker_are_returned_at_once(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    await stage.engine.term.worker_gateway.leave(TENANT, hand.worker_id)
    await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.QUEUED]
    assert await stage.store.list_workers(None, 10) == []


async def test_claims_whose_response_was_lost_are_released_after_a_lease(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    hand.running.clear()  # it never received the claim
    for _ in range(4):
        stage.clock.advance(1)
        await hand.report()
    assert await stage.states(job_id) == [State.RUNNING]
    for _ in range(4):
        stage.clock.advance(1)
        await hand.report()
    assert await stage.states(job_id) == [State.QUEUED]
    (again,) = await hand.poll()
    assert (again.attempt, again.token) == (1, 2)  # no attempt was counted


async def test_an_at_most_once_claim_whose_response_was_lost_goes_to_no_other_worker(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, delivery=Delivery.AT_MOST_ONCE))
    await stage.tick()
    hand = await hire(stage)
    await hand.poll()
    hand.running.clear()
    for _ in range(8):
        stage.clock.advance(1)
        await hand.report()
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.error_type) == (State.FAILED, ErrorType.LEASE_LOST)


async def test_claims_that_a_worker_returns_unstarted_count_no_attempt(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, delivery=Delivery.AT_MOST_ONCE))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await stage.engine.term.worker_gateway.report(TENANT, Reporting(hand.worker_id, [], unbegun=[one.claim]))
    assert await stage.states(job_id) == [State.QUEUED]
    (again,) = await (await hire(stage)).poll()
    assert (again.attempt, again.token) == (1, 2)


async def test_a_repeated_return_releases_no_newer_claim(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD, delivery=Delivery.AT_MOST_ONCE))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    given_back = Reporting(hand.worker_id, [], unbegun=[one.claim])
    await stage.engine.term.worker_gateway.report(TENANT, given_back)  # the response is lost
    (again,) = await hand.poll()  # and the worker starts it
    await stage.engine.term.worker_gateway.report(TENANT, msgspec.structs.replace(given_back, running=[again.claim]))
    assert await (await hire(stage)).poll() == []
    assert await stage.states(job_id) == [State.RUNNING]
    assert (await hand.report(done(again, "3"))).refused == []


async def test_a_report_of_an_older_claim_shows_that_the_newer_one_was_lost(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await stage.engine.term.worker_gateway.report(TENANT, Reporting(hand.worker_id, [], unbegun=[one.claim]))
    await hand.poll()
    hand.running = [one.claim]  # the response to the second poll is lost
    for _ in range(8):
        stage.clock.advance(1)
        await hand.report()
    assert await stage.states(job_id) == [State.QUEUED]


async def test_an_end_and_a_note_of_an_older_claim_do_not_change_the_newer_one(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await stage.engine.term.worker_gateway.report(TENANT, Reporting(hand.worker_id, [], unbegun=[one.claim]))
    (again,) = await hand.poll()
    note = Note(one.execution_id, one.attempt, one.token, progress=msgspec.Raw(b"41"))
    reported = await hand.report(done(one, "old"), done(again, "new"), notes=(note,))
    assert reported.refused == [one.claim]
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.response) == (State.COMPLETED, "new")


async def test_the_next_report_returns_the_claims_to_stop(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await stage.apply(c.CancelExecution(stage.clock.now(), TENANT, one.execution_id))
    stage.clock.advance(2)
    assert (await hand.report()).cancel == [one.claim]
    await hand.report(done(one, error_type="cancelled", error_message="cancelled on request"))
    assert await stage.states(job_id) == [State.CANCELLED]


async def test_an_end_that_is_reported_twice_counts_once(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    assert (await hand.report(done(one, "3"))).refused == []
    assert (await hand.report(done(one, "4"))).refused == [one.claim]
    (ended,) = await stage.executions(job_id)
    assert ended.response == "3"


async def test_an_end_with_an_old_token_is_refused(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    stale = msgspec.structs.replace(done(one, "3"), token=one.token - 1)
    assert (await hand.report(stale)).refused == [stale.claim]
    assert await stage.states(job_id) == [State.RUNNING]


async def test_a_worker_cannot_end_the_claim_of_another(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand, other = await hire(stage), await hire(stage, "other.function")
    (one,) = await hand.poll()
    assert (await other.report(done(one, "3"))).refused == [one.claim]
    assert await stage.states(job_id) == [State.RUNNING]


async def test_a_worker_may_report_to_another_node_than_it_polled(stage: Stage):
    await stage.join()
    job_id = await stage.add_job(call(ADD))
    await stage.tick()
    hand = await hire(stage)
    (one,) = await hand.poll()
    await stage.join()  # another engine on the same ledger: its memory is empty
    assert await hand.report(done(one, "3")) == Reported()
    (ended,) = await stage.executions(job_id)
    assert (ended.state, ended.response, ended.worker_id) == (State.COMPLETED, "3", "host:1")


async def test_a_poll_claims_no_more_than_fits_into_a_response(stage: Stage):
    await stage.join()
    jobs = [await stage.add_job(call(ADD, "x" * 900_000)) for _ in range(8)]
    await stage.tick()
    hand = await hire(stage)
    first = await hand.poll()
    assert 1 <= len(first) <= 5
    rest = await hand.poll()
    assert {one.job_id for one in first + rest} == set(jobs)
    assert {one.attempt for one in first + rest} == {1}


async def test_a_later_execution_is_not_handed_out_before_its_instant(stage: Stage):
    await stage.join()
    await stage.add_job(call(ADD, schedule="2026-01-01T00:00:10Z"))
    hand = await hire(stage)
    await stage.pass_time(9)
    await hand.report()
    assert await hand.poll() == []
    await stage.pass_time(1)
    assert [one.scheduled_at for one in await hand.poll()] == [NOW + 10 * SECOND]


async def test_workers_that_ended_at_another_node_are_forgotten(stage: Stage):
    """Another node may fence them, without a message to this one."""
    engine = await stage.join()
    polling = [await hire(stage) for _ in range(2)]
    for _ in range(5):
        gone = await hire(stage)
        await stage.apply(c.FenceNodes(stage.clock.now(), (gone.worker_id,)))
    for _ in range(10):
        stage.clock.advance(30)
        await polling[0].poll()
    await hire(stage)
    assert len(engine.term.worker_gateway.workers._workers) == 2
    assert await polling[1].poll() == [], "one that was only silent is still a worker"
    assert len(engine.term.worker_gateway.workers._workers) == 3
