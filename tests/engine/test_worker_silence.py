"""The node that watches workers may be suspended itself. That time does not count as silence of the workers."""

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
    """Returns a worker that runs a function, watched from its first heartbeat on, and the job of that function."""
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


async def test_a_suspended_node_fences_no_worker_before_its_next_read(stage: Stage):
    await stage.join()
    _, job_id = await busy_worker(stage)
    stage.clock.advance(60)
    await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]


async def test_a_suspended_node_gives_its_workers_a_whole_lease(stage: Stage):
    """Workers could not reach the suspended node, so their heartbeats in the store are old."""
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


async def test_a_suspension_shorter_than_the_lease_counts_as_one_read(stage: Stage):
    await stage.join()
    _, job_id = await busy_worker(stage)
    for _ in range(3):
        await look(stage)
    await look(stage, 4.9)
    assert await stage.states(job_id) == [State.RUNNING]


class Stopped:
    """A store at which the process is suspended once, for a minute, while it reads the workers."""

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


async def test_a_suspension_during_a_read_fences_no_worker(stage: Stage):
    store = Stopped(stage)
    await stage.join(store=store)  # type: ignore[arg-type]
    _, job_id = await busy_worker(stage)
    for _ in range(4):
        await look(stage)
    store.is_next = True
    for _ in range(5):
        await look(stage)
        assert await stage.states(job_id) == [State.RUNNING]


async def test_a_worker_with_a_heartbeat_since_the_last_read_is_not_fenced(stage: Stage, store: Store):
    await stage.join()
    worker_id, job_id = await busy_worker(stage)
    for _ in range(6):
        stage.clock.advance(1)
        await stage.engine.term.watch.run_once()
    await stage.apply(c.BeatWorkers(stage.clock.now(), (worker_id,)))  # through another node
    await stage.engine.term.reconciler.run_once()
    assert await stage.states(job_id) == [State.RUNNING]
    assert (await stage.engine.term.worker_gateway.report(TENANT, Reporting(worker_id, []))).refused == []
