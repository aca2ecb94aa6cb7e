"""The timer fires at the instant and never before, also if jobs or clocks change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.errors import Overloaded, StaleWrite
from duetime.domain.instants import HOUR, MINUTE, SECOND, format_instant
from duetime.domain.job import CatchUp
from duetime.domain.states import State, Trigger
from duetime.engine.dispatcher import Limits
from duetime.engine.timer import BURST, FIRST_PAGE, PAGE, STILL_SENDING
from duetime.engine.timer_buffer import READ_AHEAD
from duetime.ports.pages import DueTimers
from duetime.ports.store import Store
from duetime.testing import HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, new_job, spec


async def test_a_job_fires_at_its_instant_and_never_before(stage: Stage, clock: HandClock, executor: ScriptedExecutor):
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    for at in (NOW + 59_000, NOW + MINUTE - READ_AHEAD, NOW + MINUTE - 1):
        clock.set(at)
        await stage.tick()
        assert executor.attempts == []
    clock.set(NOW + MINUTE)
    await stage.tick()
    (attempt,) = executor.attempts
    assert (attempt.claim.job_id, attempt.claim.scheduled_at, attempt.claim.attempt, attempt.claim.token) == (
        job_id,
        NOW + MINUTE,
        1,
        1,
    )
    assert attempt.claim.trigger is Trigger.SCHEDULE
    await stage.tick()
    assert len(executor.attempts) == 1


async def test_the_timer_returns_the_next_due_instant(stage: Stage, clock: HandClock):
    await stage.join()
    await stage.add_job(spec("every 1m"))
    clock.set(NOW + MINUTE - READ_AHEAD)
    clock.set(await stage.turn_timer())  # the buffer reads the next timers
    assert clock.now() < NOW + MINUTE
    assert await stage.turn_timer() == NOW + MINUTE


async def test_the_timer_never_sleeps_longer_than_a_second(stage: Stage, clock: HandClock):
    await stage.join()
    assert await stage.turn_timer() == NOW + SECOND
    await stage.add_job(spec("every 1h"))
    assert await stage.turn_timer() == NOW + SECOND


async def test_every_instant_fires_once_over_a_long_time(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await stage.add_job(spec("every 2s"))
    await stage.add_job(spec("*/3 * * * * *", url="https://cron.example"))
    await stage.pass_time(60)
    of_cron = [t.claim.scheduled_at for t in executor.attempts if t.payload.url == "https://cron.example"]
    assert of_cron == [NOW + n * 3 * SECOND for n in range(1, 21)]
    of_every = [t.claim.scheduled_at for t in executor.attempts if t.payload.url != "https://cron.example"]
    assert of_every == [NOW + n * 2 * SECOND for n in range(1, 31)]


async def test_a_burst_larger_than_a_page_fires_completely(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    jobs = tuple(new_job(spec("2026-01-01T00:01:00Z")) for _ in range(PAGE + 100))
    await stage.apply(c.CreateJobs(NOW, jobs))
    stage.clock.set(NOW + MINUTE)
    await stage.tick()
    assert {attempt.claim.job_id for attempt in executor.attempts} == {job.job_id for job in jobs}
    assert len(executor.attempts) == PAGE + 100


async def test_the_timer_knows_for_how_long_nothing_is_due(stage: Stage, clock: HandClock):
    """The garbage collector runs meanwhile."""
    await stage.join()
    await stage.add_job(spec("every 1m"))
    clock.set(NOW + MINUTE - READ_AHEAD)
    await stage.turn_timer()
    timer = stage.engine.term.timer
    assert timer.quiet_for() == READ_AHEAD
    clock.set(NOW + MINUTE)
    await stage.turn_timer()
    assert timer.quiet_for() == 0, "the requests are being sent"
    clock.set(NOW + MINUTE + STILL_SENDING)
    assert timer.quiet_for() > 0


# After timers were buffered


async def read_ahead(stage: Stage) -> str:
    """Returns a job that is due in 400 ms and was read already."""
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    stage.clock.set(NOW + MINUTE - 400)
    await stage.turn_timer()
    return job_id


async def test_a_new_job_that_is_due_before_the_buffered_timers_fires_first(stage: Stage, executor: ScriptedExecutor):
    later = await read_ahead(stage)
    sooner = await stage.add_job(spec("immediate"))
    await stage.tick()
    assert [attempt.claim.job_id for attempt in executor.attempts] == [sooner]
    stage.clock.set(NOW + MINUTE)
    await stage.tick()
    assert [attempt.claim.job_id for attempt in executor.attempts] == [sooner, later]


@pytest.mark.parametrize("deed", ["change", "pause", "cancel", "purge"])
async def test_a_job_changed_after_it_was_buffered_does_not_fire_by_the_old_plan(
    stage: Stage, executor: ScriptedExecutor, deed: str
):
    job_id = await read_ahead(stage)
    job, now = spec("every 2m", url="https://new.example"), stage.clock.now()
    command: c.Command = {
        "change": c.ChangeJob(now, TENANT, job_id, 1, None, job.name, job.type, True, NOW + 2 * MINUTE, job),
        "pause": c.PauseJob(now, TENANT, job_id, "ann", ""),
        "cancel": c.CancelJob(now, TENANT, job_id),
        "purge": c.PurgeJob(TENANT, job_id),
    }[deed]
    await stage.apply(command)
    stage.clock.set(NOW + MINUTE)
    await stage.tick()
    assert executor.attempts == []
    stage.clock.set(NOW + 2 * MINUTE)
    await stage.tick()
    fired = [(attempt.claim.scheduled_at, attempt.payload.url) for attempt in executor.attempts]
    assert fired == ([(NOW + 2 * MINUTE, "https://new.example")] if deed == "change" else [])


async def test_a_job_changed_to_be_due_sooner_fires_at_its_new_instant(stage: Stage, executor: ScriptedExecutor):
    job_id = await read_ahead(stage)
    job, now = spec("immediate"), stage.clock.now()
    await stage.apply(c.ChangeJob(now, TENANT, job_id, 1, None, job.name, job.type, False, now, job))
    stage.engine.term.timer.hint(now)
    await stage.tick()
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [now]


# Clocks that jump


async def test_a_clock_set_forward_causes_no_burst_of_missed_executions(
    stage: Stage, clock: HandClock, executor: ScriptedExecutor
):
    await stage.join()
    job_id = await stage.add_job(spec("every 1m"))
    await stage.tick()
    clock.jump(3600)
    with capture_logs() as logs:
        await stage.tick()
    assert [log["seconds"] for log in logs if log["event"] == "the clock jumped"] == [3600]
    # The instant of this very minute is on time, the 59 before it were missed: `latest` runs one.
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + HOUR]
    (span,) = await stage.store.list_skipped(job_id, 10)
    assert (span.first_at, span.until_at, span.count, span.reason) == (NOW + MINUTE, NOW + HOUR, 59, "missed")


async def test_a_clock_set_forward_runs_all_missed_instants_with_that_policy(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await stage.add_job(spec("every 10m", catch_up=CatchUp("all", 7200)))
    stage.clock.jump(3600 + 30)
    await stage.tick()
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + n * 10 * MINUTE for n in range(1, 7)]
    assert {attempt.claim.trigger for attempt in executor.attempts} == {Trigger.CATCH_UP}


async def test_a_clock_set_back_fires_nothing_early_and_nothing_twice(
    stage: Stage, clock: HandClock, executor: ScriptedExecutor
):
    await stage.join()
    await stage.add_job(spec("every 10m"))
    clock.advance(600)
    await stage.tick()
    assert len(executor.attempts) == 1
    clock.jump(-3600)
    with capture_logs() as logs:
        await stage.tick()
    assert [log["seconds"] for log in logs if log["event"] == "the clock jumped"] == [-3600]
    await stage.pass_time(3600 + 599, step=60)
    assert len(executor.attempts) == 1
    await stage.pass_time(1)
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + 10 * MINUTE, NOW + 20 * MINUTE]


async def test_a_clock_set_back_does_not_fire_buffered_timers_early(stage: Stage, executor: ScriptedExecutor):
    await read_ahead(stage)
    stage.clock.jump(-3600)
    await stage.pass_time(3600, step=60)
    assert executor.attempts == []
    await stage.pass_time(0.4)
    assert len(executor.attempts) == 1


async def test_a_small_clock_drift_causes_no_warning(stage: Stage):
    await stage.join()
    with capture_logs() as logs:
        for seconds in (0.5, -0.5, 1.0):
            stage.clock.jump(seconds)
            await stage.tick()
    assert logs == []


# Downtime and failure


async def test_the_catch_up_policy_decides_instants_missed_during_downtime(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    jobs = {
        policy: await stage.add_job(spec("every 10m", url=f"https://{policy}.example", catch_up=CatchUp(policy, 3600)))
        for policy in ("all", "latest", "skip")
    }
    await stage.engine.stop()
    stage.clock.advance(3 * 3600 + 60)
    await stage.join()
    await stage.tick()
    ran = {
        policy: [t.claim.scheduled_at for t in executor.attempts if t.claim.job_id == job]
        for policy, job in jobs.items()
    }
    assert ran == {
        "all": [NOW + 2 * HOUR + n * 10 * MINUTE for n in range(1, 7)],
        "latest": [NOW + 3 * HOUR],
        "skip": [],
    }
    counts = {policy: (await stage.store.list_skipped(job, 10))[0].count for policy, job in jobs.items()}
    assert counts == {"all": 12, "latest": 17, "skip": 18}


async def test_a_catch_up_of_many_runs_at_once_stays_within_the_capacity(stage: Stage, executor: ScriptedExecutor):
    executor.hold()
    await stage.join(Limits(capacity=20))
    job_id = await stage.add_job(spec("every 1m", overlap="allow", catch_up=CatchUp("all", 7200, 100)))
    stage.clock.jump(3600 + 30)
    await stage.turn_timer()
    dispatcher = stage.engine.term.dispatcher
    assert dispatcher.running() + dispatcher.waiting() <= 20
    assert len(await stage.executions(job_id)) == 60
    executor.let_go()
    await stage.settle()
    await stage.tick()
    assert len({attempt.claim.execution_id for attempt in executor.attempts}) == 60
    assert set(await stage.states(job_id)) == {State.COMPLETED}


async def test_a_failed_fire_is_retried_and_nothing_is_lost(stage: Stage, executor: ScriptedExecutor):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    await stage.add_job(spec("every 1m"))
    stage.clock.set(NOW + MINUTE)
    flaky.fail_next(c.Fire)
    with pytest.raises(Overloaded):
        await stage.engine.term.timer.run_once()
    assert executor.attempts == []
    await stage.tick()
    assert [attempt.claim.scheduled_at for attempt in executor.attempts] == [NOW + MINUTE]


async def burst_of(stage: Stage, count: int) -> tuple[c.NewJob, ...]:
    jobs = tuple(new_job(spec("2026-01-01T00:01:00Z")) for _ in range(count))
    await stage.apply(c.CreateJobs(NOW, jobs))
    stage.clock.set(NOW + MINUTE)
    return jobs


async def run_at_least(stage: Stage, count: int) -> None:
    while len(stage.executor.attempts) < count:
        await stage.engine.term.timer.run_once()
        await stage.let_run()


async def turn_until(stage: Stage, condition: Callable[[], bool]) -> asyncio.Task[int]:
    """Runs the timer until the condition is true. Returns the turn that is in progress."""
    turn = asyncio.ensure_future(stage.engine.term.timer.run_once())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            if turn.done():
                turn = asyncio.ensure_future(stage.engine.term.timer.run_once())
            await asyncio.sleep(0)
    return turn


async def test_in_a_burst_exactly_one_page_is_planned_while_another_is_written(stage: Stage):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    jobs = await burst_of(stage, 3 * PAGE)
    await run_at_least(stage, BURST)
    gate = flaky.hold(c.Fire)
    turn = await turn_until(stage, lambda: len(flaky.held) == 2)
    await stage.let_run()
    first, second = (command for command in flaky.held if isinstance(command, c.Fire))
    assert not {move.job_id for move in first.moves} & {move.job_id for move in second.moves}
    gate.set()
    await turn
    await stage.tick()
    runs = Counter(attempt.claim.job_id for attempt in stage.executor.attempts)
    assert (len(runs), max(runs.values())) == (len(jobs), 1)


async def test_small_pages_are_waited_for(stage: Stage):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    await burst_of(stage, PAGE)
    gate = flaky.hold(c.Fire)
    turn = await turn_until(stage, lambda: bool(flaky.held))
    await stage.let_run()
    assert [len(command.executions) for command in flaky.held if isinstance(command, c.Fire)] == [FIRST_PAGE]
    gate.set()
    await turn


@pytest.mark.parametrize("failing", [1, 2])
async def test_pages_in_flight_when_another_page_fails_are_fired_once(stage: Stage, failing: int):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    jobs = await burst_of(stage, 4 * PAGE)
    flaky.write_in_time(c.Fire, PAGE)  # records the sizes of pages
    while sum(flaky.sizes) < PAGE:  # at least two more pages follow
        await stage.engine.term.timer.run_once()
    flaky.fail_next(c.Fire, failing)
    for _ in range(failing):
        with suppress(Overloaded):  # one turn for both, if both were under way
            await stage.tick()
    await stage.tick()
    assert flaky.failed == failing
    runs = Counter(attempt.claim.job_id for attempt in stage.executor.attempts)
    assert (len(runs), max(runs.values())) == (len(jobs), 1)


async def test_a_page_in_flight_at_a_stop_runs(stage: Stage):
    flaky = FlakyStore(stage.store)
    await stage.join(store=flaky)
    await burst_of(stage, 3 * PAGE)
    await run_at_least(stage, BURST)
    before = len(stage.executor.attempts)
    gate = flaky.hold(c.Fire)
    turn = asyncio.ensure_future(stage.engine.term.timer.run_once())
    await until(lambda: bool(flaky.held))
    stopping = asyncio.ensure_future(stage.engine.term.timer.stop())
    await stage.let_run()
    assert not stopping.done()
    gate.set()
    await asyncio.gather(turn, stopping)
    await stage.settle()
    assert len(stage.executor.attempts) > before
    assert not flaky.held


async def test_a_fenced_node_fires_nothing(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await stage.add_job(spec("every 1m"))
    await stage.apply(c.StartNode(NOW, "node-1"))
    stage.clock.set(NOW + MINUTE)
    with pytest.raises(StaleWrite):
        await stage.engine.term.timer.run_once()
    assert executor.attempts == []


async def test_max_runs_ends_a_job(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    job_id = await stage.add_job(spec("every 1s", max_runs=3))
    await stage.pass_time(10)
    assert len(executor.attempts) == 3
    assert (await stage.job(job_id)).status == "COMPLETED"


class ReadsThenWaits:
    """A store that waits before it returns a page of due timers, so that a test can act meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def list_due_timers(self, *asked: Any) -> DueTimers:
        page = await self._store.list_due_timers(*asked)
        if self.meanwhile is not None:
            deed, self.meanwhile = self.meanwhile, None
            await deed()
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("in_ms", [0, 100, 300])
async def test_a_job_created_while_a_page_is_being_read_fires_at_its_own_instant(
    stage: Stage, executor: ScriptedExecutor, in_ms: int
):
    store = ReadsThenWaits(stage.store)
    await stage.join(store=store)  # type: ignore[arg-type]
    await stage.add_job(spec("every 1m"))
    stage.clock.set(NOW + MINUTE - 400)
    due_at = NOW + MINUTE - 400 + in_ms
    made: list[str] = []

    async def create() -> None:
        made.append(await stage.add_job(spec(format_instant(due_at))))

    store.meanwhile = create
    for _ in range(2):  # the hint has woken it: it turns again at once
        await stage.turn_timer()
    assert [attempt.claim.job_id for attempt in executor.attempts] == (made if in_ms == 0 else [])
    stage.clock.set(due_at)
    await stage.turn_timer()
    assert [attempt.claim.job_id for attempt in executor.attempts] == made


async def test_a_job_with_an_unreadable_schedule_is_paused_and_others_fire(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    gone = spec("* * * * *", timezone="Europe/Atlantis")  # a zone that only an older tz database has
    made = new_job(spec("* * * * *"), now=stage.clock.now())
    unreadable = msgspec.structs.replace(made, spec=gone)
    await stage.apply(c.CreateJobs(NOW, (unreadable,)))
    good = await stage.add_job(spec("* * * * *"))
    await stage.pass_time(60, step=60)
    assert [attempt.claim.job_id for attempt in executor.attempts] == [good]
    paused = await stage.job(unreadable.job_id)
    assert paused.status == "PAUSED"
    assert "Europe/Atlantis" in (paused.pause_reason or "")
