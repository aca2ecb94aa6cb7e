"""Who watches workers may be stopped itself: what it did not see is no silence of theirs."""

from __future__ import annotations

from typing import Any

from duetime.domain import commands as c
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
from duetime.domain.states import State
from duetime.domain.work import Joining, Polling, Reporting
from duetime.ports.store import Store
from engine.stage import Stage
from samples import TENANT

ADD = "shop.add"


async def busy_worker(stage: Stage) -> tuple[int, str]:
    """A worker that runs a function, watched from its first beat on; and the job of that function."""
    job_id = await stage.add_job(PythonJob("sum", "immediate", payload=PythonCall(ADD)))
    await stage.tick()
    joined = await stage.engine.term.worker_gateway.join(TENANT, "ann", Joining("host:1", (ADD,), 10))
    await stage.engine.term.worker_gateway.poll(TENANT, Polling(joined.worker_id, 10, 0))
    await stage.engine.term.watch.run_once()
    return joined.worker_id, job_id


async def look(stage: Stage, seconds: float = 1) -> None:
    stage.clock.advance(seconds)
    await stage.engine.term.watch.run_once()
    await stage.engine.term.reconciler.run_once()


async def test_a_node_that_was_stopped_ends_no_worker_before_it_has_looked_again(stage: Stage):
    await stage.join()
    _, job_id = await busy_worker(stage)
    stage.clock.advance(60)
    await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]


async def test_a_node_that_was_stopped_hears_its_workers_for_a_whole_lease_before_it_ends_them(stage: Stage):
    """They could not reach it while it was stopped, so nothing of theirs is new in the store."""
    await stage.join()
    _, job_id = await busy_worker(stage)
    for _ in range(3):
        await look(stage)
    await look(stage, 60)
    for _ in range(5):
        await look(stage)
        assert await stage.states(job_id) == [State.RUNNING]
    await look(stage)
    assert await stage.states(job_id) == [State.QUEUED]


async def test_a_stop_that_is_shorter_than_the_lease_counts_as_one_look(stage: Stage):
    await stage.join()
    _, job_id = await busy_worker(stage)
    for _ in range(3):
        await look(stage)
    await look(stage, 4.9)
    assert await stage.states(job_id) == [State.RUNNING]


class Stopped:
    """A store at which the process is stopped for a minute while it reads the workers, once."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.is_next = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.store, name)

    async def list_beats(self, after: int, limit: int) -> list[tuple[int, int]]:
        found = await self._stage.store.list_beats(after, limit)
        if self.is_next:
            self.is_next = False
            self._stage.clock.advance(60)
        return found


async def test_a_node_that_was_stopped_in_the_middle_of_a_look_ends_nobody_for_it(stage: Stage):
    store = Stopped(stage)
    await stage.join(store=store)  # type: ignore[arg-type]
    _, job_id = await busy_worker(stage)
    for _ in range(4):
        await look(stage)
    store.is_next = True
    for _ in range(5):
        await look(stage)
        assert await stage.states(job_id) == [State.RUNNING]


async def test_a_worker_that_beat_since_it_was_looked_at_is_not_ended(stage: Stage, store: Store):
    await stage.join()
    worker_id, job_id = await busy_worker(stage)
    for _ in range(6):
        stage.clock.advance(1)
        await stage.engine.term.watch.run_once()
    await stage.apply(c.BeatWorkers(stage.clock.now(), (worker_id,)))  # by way of another node
    await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]
    assert (await stage.engine.term.worker_gateway.report(TENANT, Reporting(worker_id, []))).refused == []
