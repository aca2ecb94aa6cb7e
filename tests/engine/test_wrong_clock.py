"""A node with a wrong clock, and one with a right clock: nothing is early, pruned or missed, and an error is logged."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.execution import ErrorType, Outcome
from duetime.domain.ids import SHARDS, shard_of
from duetime.domain.instants import DAY, HOUR, SECOND, format_instant
from duetime.domain.job import PythonJob, RetryPolicy
from duetime.domain.lease import ClockState
from duetime.domain.payloads import PythonCall
from duetime.domain.states import State
from duetime.domain.work import Joining, Polling
from duetime.ports.logs import TenantsOf
from duetime.ports.store import Store
from duetime.registry.memory import MemoryRegistry
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, TENANT, add_execution, add_job, claim_waiting, ended, executions_of, one, spec

TTL = 5
FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500)
WRONG = pytest.mark.parametrize("offset", [40 * DAY, -40 * DAY, 6 * SECOND, -6 * SECOND])


class OffClock:
    """The clock of a node that differs from the common clock by some ms."""

    def __init__(self, clock: HandClock, offset: int = 0) -> None:
        self._clock = clock
        self.offset = offset
        self.monotonic = clock.monotonic

    def now(self) -> int:
        return self._clock.now() + self.offset

    async def wait(self, event: asyncio.Event, until: int) -> bool:
        return await self._clock.wait(event, until - self.offset)


class PrunedLogs:
    """A log store with only the methods that retention needs."""

    def __init__(self) -> None:
        self.pruned: list[int] = []

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf) -> None:
        self.pruned.append(before)


class Cluster:
    """Node a, whose clock is right, and node b, whose clock the test sets."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        self.store = store
        self.clock = clock
        self.registry = MemoryRegistry(clock, TTL)
        self.b_clock = OffClock(clock)
        self.a = self._stage(clock)
        self.b = self._stage(self.b_clock)
        self.logs = PrunedLogs()

    def _stage(self, clock: Any) -> Stage:
        stage = Stage(self.store, clock, ScriptedExecutor())
        stage.registry = self.registry
        return stage

    async def join(self, offset: int, *, with_a: bool = True) -> None:
        self.b_clock.offset = offset
        if with_a:
            await self.a.join(node_name="a")
        await self.b.join(node_name="b")
        self.b.engine.term.retention._logs = self.logs  # type: ignore[assignment]
        for _ in range(3):
            await self.beat()

    async def beat(self, seconds: float = 1) -> None:
        self.clock.advance(seconds)
        for stage in (self.a, self.b):
            if hasattr(stage, "engine"):
                await stage.engine.term.membership.run_once()

    async def turn_b(self) -> None:
        """Runs all services of node b, more than once."""
        engine = self.b.engine
        for _ in range(3):
            await engine.term.watch.run_once()
            await engine.term.reconciler.run_once()
            await engine.term.retention.run_once()
            await self.b.tick()

    def began(self, stage: Stage) -> set[str]:
        return {attempt.claim.job_id for attempt in stage.executor.attempts}


@pytest.fixture
def cluster(store: Store, clock: HandClock) -> Cluster:
    return Cluster(store, clock)


async def old_history(store: Store, days: int = 20) -> str:
    """Adds a job with an execution that ended some days ago."""
    at = NOW - days * DAY
    node = await one(store, c.StartNode(at, "long-gone"))
    job_id = await add_job(store, spec("every 1000d"), now=at)
    await add_execution(store, job_id, at)
    (claim,) = await claim_waiting(store, node, at)
    assert await one(store, c.Finish(node, at, (ended(claim, now=at),))) == []
    return job_id


async def lost_execution(store: Store) -> str:
    """Adds a job with an execution whose node has expired."""
    node = await one(store, c.StartNode(NOW, "gone"))
    job_id = await add_job(store, spec("every 1000d"))
    await add_execution(store, job_id, NOW - DAY)
    assert [claim.job_id for claim in await claim_waiting(store, node, NOW - DAY)] == [job_id]
    await one(store, c.FenceNodes(NOW, (node,)))
    return job_id


@WRONG
async def test_a_node_with_a_wrong_clock_at_its_start_owns_no_shard(cluster: Cluster, offset: int):
    await cluster.join(offset)
    assert dict(cluster.b.engine.term.membership.owned) == {}
    assert len(cluster.a.engine.term.membership.owned) == SHARDS
    assert cluster.b.engine.term.membership.clock_state is ClockState.WRONG


@WRONG
async def test_a_node_with_a_wrong_clock_does_not_fire_claim_or_prune(cluster: Cluster, store: Store, offset: int):
    old = await old_history(store)
    later = [await add_job(store, spec(format_instant(NOW + HOUR + n * DAY))) for n in range(39)]
    waiting = await add_job(store, spec("every 1000d"))
    await add_execution(store, waiting, NOW)
    await add_execution(store, waiting, NOW + 30 * SECOND)
    lost = await lost_execution(store)
    await cluster.join(offset)
    await cluster.turn_b()
    assert cluster.began(cluster.b) == set()
    assert [await executions_of(store, job_id) for job_id in later] == [[]] * 39
    assert [e.state for e in await executions_of(store, old)] == [State.COMPLETED]
    assert [e.state for e in await executions_of(store, waiting)] == [State.QUEUED] * 2
    assert [e.state for e in await executions_of(store, lost)] == [State.RUNNING]
    assert cluster.logs.pruned == []


@WRONG
async def test_the_other_node_fires_at_the_right_instant(cluster: Cluster, store: Store, offset: int):
    jobs = {await add_job(store, spec(format_instant(NOW + 10 * SECOND))) for _ in range(40)}
    await cluster.join(offset)
    for _ in range(5):
        await cluster.beat()
        await cluster.turn_b()
        await cluster.a.tick()
    assert cluster.began(cluster.a) == set()
    await cluster.beat(2)
    await cluster.turn_b()
    await cluster.a.tick()
    assert (cluster.began(cluster.a), cluster.began(cluster.b)) == (jobs, set())


async def test_a_single_node_with_a_wrong_clock_fires_nothing_until_it_is_right(cluster: Cluster, store: Store):
    job_id = await add_job(store, spec(format_instant(NOW + 2 * SECOND)))
    await cluster.join(40 * DAY, with_a=False)
    await cluster.turn_b()
    assert cluster.began(cluster.b) == set()
    cluster.b_clock.offset = 0
    await cluster.beat()
    await cluster.beat()
    await cluster.turn_b()
    assert cluster.began(cluster.b) == {job_id}
    assert len(cluster.b.engine.term.membership.owned) == SHARDS


@WRONG
async def test_setting_the_clock_is_detected_before_the_next_heartbeat(cluster: Cluster, store: Store, offset: int):
    await old_history(store)
    due_later = [await add_job(store, spec(format_instant(NOW + HOUR + n * DAY))) for n in range(39)]
    await cluster.join(0)
    await cluster.turn_b()
    assert any(shard_of(job_id) in cluster.b.engine.term.membership.owned for job_id in due_later)
    cluster.b_clock.offset = offset
    assert dict(cluster.b.engine.term.membership.owned) == {}
    await cluster.turn_b()
    assert cluster.began(cluster.b) == set()
    assert await store.count_history() == 1
    await cluster.beat()
    await cluster.beat()
    assert len(cluster.a.engine.term.membership.owned) == SHARDS


@pytest.mark.parametrize("whose", ["the node's", "the registry's"])
@WRONG
async def test_held_attempts_end_by_the_time_at_which_both_clocks_agreed(
    cluster: Cluster, store: Store, offset: int, whose: str
):
    """It does not matter which of the two clocks was set."""
    await cluster.join(0, with_a=False)
    cluster.b.executor.hold()
    cluster.b.executor.answer(FAILURE)
    job_id = await add_job(store, spec(format_instant(NOW + SECOND), retry_policy=RetryPolicy(max_retries=3)))
    await cluster.b.tick()
    assert cluster.began(cluster.b) == {job_id}
    if whose == "the node's":
        cluster.b_clock.offset = offset
    else:
        cluster.registry._began_at += offset
        for name, lease in cluster.registry._leases.items():  # otherwise the lease would expire
            changed = msgspec.structs.replace(lease, expires_at=lease.expires_at + offset)
            cluster.registry._leases[name] = changed
    await cluster.beat()
    cluster.b.executor.let_go()
    await cluster.b.settle()
    (execution,) = await executions_of(store, job_id)
    assert execution.state is State.RETRYING
    waiting_at = await store.next_waiting_at()
    assert waiting_at is not None
    assert 0 < waiting_at - cluster.clock.now() <= HOUR
    cluster.b.executor.answer(SUCCESS)
    await cluster.b.engine.stop()  # other nodes may claim its released executions at once
    assert await store.next_waiting_at() == waiting_at


async def test_a_small_clock_offset_is_logged_and_the_node_continues(cluster: Cluster):
    with capture_logs() as logs:
        await cluster.join(1500, with_a=False)
    membership = cluster.b.engine.term.membership
    assert (membership.clock_state, membership.clock_offset) == (ClockState.OFF, 1500)
    assert len(membership.owned) == SHARDS
    lines = [line for line in logs if "this node's clock is 1.5 s ahead of the database's" in line["event"]]
    assert [line["log_level"] for line in lines] == ["warning"]  # once, not at each heartbeat


async def test_a_wrong_clock_is_logged_once_as_an_error(cluster: Cluster):
    with capture_logs() as logs:
        await cluster.join(-40 * DAY)
    lines = [line for line in logs if "3,456,000.0 s behind the database's" in line["event"]]
    assert [line["log_level"] for line in lines] == ["error"]


async def test_a_node_with_a_wrong_clock_hands_out_nothing_to_workers(cluster: Cluster, store: Store):
    job_id = await add_job(store, PythonJob("sum", "every 1000d", payload=PythonCall("shop.add")))
    await add_execution(store, job_id, NOW)
    await cluster.join(40 * DAY)
    for stage, count in ((cluster.b, 0), (cluster.a, 1)):
        gateway = stage.engine.term.worker_gateway
        joined = await gateway.join(TENANT, "ann", Joining("host:1", ("shop.add",), 10))
        polled = await gateway.poll(TENANT, Polling(joined.worker_id, 10, 0))
        assert len(polled.assignments) == count
