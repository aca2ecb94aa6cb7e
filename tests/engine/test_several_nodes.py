"""Several engines on one store: each fires for its own shards, and takes over what another loses, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.errors import Overloaded, StaleEpoch
from duetime.domain.hint import Hint
from duetime.domain.ids import SHARDS, execution_id, shard_of
from duetime.domain.instants import SECOND
from duetime.domain.lease import View, Writes
from duetime.domain.states import State, Trigger
from duetime.engine.dispatcher import Limits
from duetime.ports.store import ExecutionQuery, Store
from duetime.registry.memory import MemoryRegistry
from duetime.testing import HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import NOW, TENANT, executions_of, new_job, spec

TTL = 5


class Wire:
    """A bus between two engines of one process."""

    def __init__(self) -> None:
        self.sent: list[Hint] = []
        self.receive: Any = None
        self.others: list[Wire] = []
        self.is_stopped = False

    async def start(self, receive: Any) -> None:
        self.receive = receive

    async def stop(self) -> None:
        self.is_stopped = True

    def send(self, hint: Hint) -> None:
        if self.is_stopped:
            return
        self.sent.append(hint)
        for other in self.others:
            if other.receive is not None:
                other.receive(hint)


@pytest.fixture
async def nodes(store: Store, clock: HandClock) -> tuple[Stage, Stage]:
    """Returns two nodes that share the shards."""
    registry = MemoryRegistry(clock, TTL)
    stages = Stage(store, clock, ScriptedExecutor()), Stage(store, clock, ScriptedExecutor())
    wires = Wire(), Wire()
    for stage, wire, other in zip(stages, wires, wires[::-1], strict=True):
        stage.registry, stage.bus, wire.others = registry, wire, [other]
    for name, stage in zip("ab", stages, strict=True):
        await stage.join(node_name=name)
        await stage.bus.start(stage.engine.term.receive)
    await spread(*stages)
    return stages


async def spread(*stages: Stage) -> None:
    for _ in range(3):
        for stage in stages:
            await stage.engine.term.membership.run_once()


async def add_jobs(store: Store, schedule: str = "2026-01-01T00:00:03Z", count: int = 200) -> set[str]:
    jobs = tuple(new_job(spec(schedule, overlap="allow"), job_id=random_id(n)) for n in range(count))
    assert await store.apply([c.CreateJobs(NOW, jobs)]) == [None]
    return {job.job_id for job in jobs}


def random_id(number: int) -> str:
    """Returns an id in a random shard. (`new_id` returns ids of neighbouring shards.)"""
    return f"019b76da-a800-7000-8000-{number * 0x9E3779B97F4A7C15 % 2**48:012x}"


def began(stage: Stage) -> set[str]:
    return {attempt.claim.job_id for attempt in stage.executor.attempts}


async def beat(clock: HandClock, seconds: float, *stages: Stage) -> None:
    """Advances the clock in heartbeats, which only these nodes send."""
    for _ in range(int(seconds)):
        clock.advance(1)
        for stage in stages:
            await stage.engine.term.membership.run_once()


async def test_each_node_fires_for_its_own_shards_and_both_for_all(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    jobs = await add_jobs(store)
    await beat(a.clock, 3, a, b)
    await a.tick()
    await b.tick()
    assert began(a) | began(b) == jobs
    assert not began(a) & began(b)
    assert {shard_of(job_id) for job_id in began(a)} <= set(a.engine.term.membership.owned)
    assert len(a.engine.term.membership.owned) == len(b.engine.term.membership.owned) == SHARDS // 2


async def test_another_node_fires_for_the_shards_of_a_dead_node_when_the_lease_has_expired(
    nodes: tuple[Stage, Stage], store: Store
):
    a, b = nodes
    jobs = await add_jobs(store)
    await beat(a.clock, 3, b)  # a is dead
    await b.tick()
    assert began(b) < jobs
    await beat(a.clock, 3, b)
    await b.tick()
    assert began(b) == jobs
    assert {len(await executions_of(store, job_id)) for job_id in jobs} == {1}


async def test_a_suspended_node_that_continues_writes_nothing(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    jobs = await add_jobs(store)
    await beat(a.clock, 8, b)
    await a.turn_timer()  # it has sent no heartbeat since, and checks its clock
    assert began(a) == set()
    await b.tick()
    assert began(b) == jobs


async def test_a_node_that_was_suspended_while_it_waited_for_room_fires_nothing(
    nodes: tuple[Stage, Stage], store: Store, monkeypatch: pytest.MonkeyPatch
):
    a, b = nodes
    await add_jobs(store)
    await beat(a.clock, 3, a, b)

    async def stopped(*_: object) -> frozenset[int]:
        a.clock.advance(60)
        return frozenset()

    monkeypatch.setattr(a.engine.term.dispatcher, "admit", stopped)
    await a.engine.term.timer.run_once()
    assert await store.count_executions(ExecutionQuery(TENANT)) == 0


async def test_the_store_refuses_a_node_that_was_suspended_between_its_check_and_its_write(
    nodes: tuple[Stage, Stage], store: Store
):
    a, b = nodes
    jobs = await add_jobs(store)
    await beat(a.clock, 3, a, b)
    await a.engine.term.timer._ownership.settle()
    owned = dict(a.engine.term.membership.owned)
    mine = {job_id for job_id in jobs if shard_of(job_id) in owned}
    a.engine.term.timer._ownership._owned_now = lambda monotonic: owned  # it checked just before it was suspended
    await beat(a.clock, 6, b)  # b takes all shards, and fences a
    await b.engine.term.timer._ownership.settle()
    with capture_logs() as logs:
        await a.engine.term.timer.run_once()
    assert any("another node owns the shard" in line["event"] for line in logs)
    assert began(a) == set()
    assert [await executions_of(store, job_id) for job_id in mine] == [[]] * len(mine)
    with pytest.raises(StaleEpoch):  # a turn that fails is followed by a pause: it does not try without end
        await a.engine.term.timer.run_once()


async def test_executions_of_a_dead_node_are_taken_over_by_the_housekeeping_node(
    nodes: tuple[Stage, Stage], store: Store
):
    a, b = nodes
    jobs = await add_jobs(store)
    await beat(a.clock, 3, a, b)
    a.executor.hold()
    await a.turn_timer()
    orphans = {job_id for job_id in jobs if shard_of(job_id) in a.engine.term.membership.owned}
    assert began(a) <= orphans
    await beat(a.clock, 7, b)
    with capture_logs() as logs:
        await b.engine.term.reconciler.run_once()
    assert any(line["event"] == "nodes have expired or left: their executions are taken over" for line in logs)
    await b.tick()
    assert orphans < began(b) == jobs
    for job_id in jobs:
        (execution,) = await executions_of(store, job_id)
        assert execution.state is State.COMPLETED
        assert execution.attempt == (2 if job_id in orphans else 1)


async def test_a_late_result_of_a_node_without_a_lease_is_refused(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    await add_jobs(store)
    await beat(a.clock, 3, a, b)
    a.executor.hold()
    await a.turn_timer()
    await beat(a.clock, 7, b)
    await b.engine.term.reconciler.run_once()
    await b.tick()
    a.executor.let_go()
    with capture_logs() as logs:
        await a.settle()
    assert any("a late result was refused" in line["event"] for line in logs)


async def test_a_graceful_stop_hands_over_its_shards_at_once_while_its_attempts_end(
    nodes: tuple[Stage, Stage], store: Store
):
    a, b = nodes
    jobs = await add_jobs(store)
    await a.engine.term.membership.retire()
    assert dict(a.engine.term.membership.owned) == {}
    await b.engine.term.membership.run_once()
    assert len(b.engine.term.membership.owned) == SHARDS
    await beat(a.clock, 3, a, b)  # its lease is still valid, and it takes no shard back
    assert dict(a.engine.term.membership.owned) == {}
    await b.tick()
    assert began(b) == jobs
    view = await a.registry.view()
    assert {member.name for member in view.members} == {"a", "b"}


async def test_a_stopping_node_hints_that_its_shards_are_free(
    nodes: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
):
    """The clock stands still: the hint alone wakes the other node, which takes all shards in one turn."""
    a, b = nodes
    looks = []
    renew = a.registry.renew

    async def counted(node: int) -> View:
        looks.append(node)
        return await renew(node)

    await b.engine.term.membership.start()
    await until(lambda: b.clock.waiting() == 1)
    monkeypatch.setattr(b.registry, "renew", counted)
    await a.engine.stop()
    await until(lambda: len(b.engine.term.membership.owned) == SHARDS)
    assert looks.count(b.engine.node) == 1
    await b.engine.term.membership.stop()


async def test_a_stop_sends_a_hint_for_the_executions_that_it_releases(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    await add_jobs(store)
    await beat(a.clock, 3, a, b)
    a.executor.hold()
    await a.turn_timer()
    assert a.engine.term.dispatcher.waiting()
    a.engine.term.dispatcher.stop_waiting()
    await a.engine.stop()
    assert any(hint.waiting_at <= a.clock.now() for hint in a.bus.sent)  # type: ignore[attr-defined]


async def test_a_node_that_gives_up_shards_for_a_new_node_sends_a_hint(store: Store, clock: HandClock):
    registry = MemoryRegistry(clock, TTL)
    old, new = Stage(store, clock, ScriptedExecutor()), Stage(store, clock, ScriptedExecutor())
    wires = Wire(), Wire()
    for stage, wire, other in zip((old, new), wires, wires[::-1], strict=True):
        stage.registry, stage.bus, wire.others = registry, wire, [other]
    for name, stage in (("old", old), ("new", new)):
        await stage.join(node_name=name)
        await stage.bus.start(stage.engine.term.receive)
    assert dict(new.engine.term.membership.owned) == {}
    new.engine.term.membership._wake.clear()
    await old.engine.term.membership.run_once()
    assert new.engine.term.membership._wake.is_set()
    await new.engine.term.membership.run_once()
    assert len(new.engine.term.membership.owned) == SHARDS // 2


async def test_a_retired_node_takes_no_shard_back_even_if_its_release_was_lost(
    nodes: tuple[Stage, Stage], monkeypatch: pytest.MonkeyPatch
):
    a, b = nodes

    async def cut(*_: object) -> None:
        raise ConnectionError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(a.registry, "join", cut)
        with pytest.raises(ConnectionError):
            await a.engine.term.membership.retire()
    await spread(a, b)
    assert dict(a.engine.term.membership.owned) == {}


async def test_the_owner_of_a_shard_gets_a_hint_for_a_job_created_on_another_node(
    nodes: tuple[Stage, Stage], store: Store
):
    a, b = nodes
    owned_by_b = next(random_id(n) for n in range(1000) if shard_of(random_id(n)) in b.engine.term.membership.owned)
    await b.turn_timer()
    b.engine.term.timer._wake.clear()
    made = new_job(spec("immediate"), job_id=owned_by_b)
    await store.apply([c.CreateJobs(NOW, (made,))])
    assert not b.engine.term.timer._wake.is_set()
    a.engine.term.due_hint(made.due_at)
    assert b.engine.term.timer._wake.is_set()
    await b.tick()
    assert began(b) == {owned_by_b}


async def test_no_hint_is_sent_for_a_job_that_is_due_much_later(nodes: tuple[Stage, Stage]):
    a, _ = nodes
    before = list(a.bus.sent)  # type: ignore[attr-defined]
    a.engine.term.due_hint(NOW + 3 * SECOND)
    assert a.bus.sent == before  # type: ignore[attr-defined]


async def test_a_cancellation_reaches_the_node_that_runs_the_execution(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    await add_jobs(store, count=1)
    await beat(a.clock, 3, a, b)
    for stage in (a, b):
        stage.executor.hold()
        await stage.turn_timer()
    runner, other = (a, b) if began(a) else (b, a)
    (attempt,) = runner.executor.attempts
    await store.apply([c.CancelExecution(a.clock.now(), TENANT, attempt.claim.execution_id)])
    assert other.engine.term.cancel(attempt.claim.execution_id) is False
    await runner.settle()
    assert [e.state for e in await executions_of(store, attempt.claim.job_id)] == [State.CANCELLED]


async def test_an_attempt_may_send_as_long_as_the_lease_is_trusted(nodes: tuple[Stage, Stage], store: Store):
    """An attempt checks the lease again before it sends the first byte, however long it takes to connect."""
    a, b = nodes
    await add_jobs(store, count=1)
    await beat(a.clock, 3, a, b)
    for stage in nodes:
        stage.executor.hold()
        await stage.tick()
    (attempt,) = a.executor.attempts + b.executor.attempts
    assert attempt.may_send()
    await beat(a.clock, 2 * TTL, a, b)
    assert attempt.may_send()
    a.clock.advance(TTL)
    assert not attempt.may_send()


async def test_a_cancellation_without_a_hint_is_found_within_a_second(nodes: tuple[Stage, Stage], store: Store):
    a, b = nodes
    await add_jobs(store, count=1)
    await beat(a.clock, 3, a, b)
    for stage in (a, b):
        stage.executor.hold()
        await stage.turn_timer()
    runner, other = (a, b) if began(a) else (b, a)
    (attempt,) = runner.executor.attempts
    await store.apply([c.CancelExecution(a.clock.now(), TENANT, attempt.claim.execution_id)])
    await other.engine.term.stopper.run_once()
    assert await runner.engine.term.stopper.run_once() <= a.clock.now() + SECOND
    await runner.settle()
    assert [e.state for e in await executions_of(store, attempt.claim.job_id)] == [State.CANCELLED]


async def test_a_node_whose_lease_was_lost_joins_again_under_another_id(store: Store, clock: HandClock):
    stage = Stage(store, clock, ScriptedExecutor())
    stage.registry = MemoryRegistry(clock, TTL)
    engine = stage.make_engine(node_name="a")
    await engine.start()
    try:
        stage.executor.hold()
        job_id = await stage.add_job(spec("2026-01-01T00:00:01Z"))
        clock.advance(1)
        await until(lambda: len(stage.executor.attempts) == 1)
        first = engine.node
        clock.advance(60)  # suspended for longer than its lease
        with capture_logs() as logged:
            await until(lambda: engine.node != first and len(engine.term.membership.owned) == SHARDS)
        (lost,) = [line for line in logged if line["event"].startswith("this node was fenced: it must")]
        assert lost["name"] == "a", "the log names the node"
        assert "NODE_NAME" in lost["advice"], "two nodes of one name take each other's lease in turn"
        stage.executor.let_go()
        await until(lambda: len(stage.executor.attempts) == 2)  # it runs the same execution again
        assert len({attempt.claim.execution_id for attempt in stage.executor.attempts}) == 1
    finally:
        await engine.stop()
    assert await stage.states(job_id) == [State.COMPLETED]


async def test_a_node_fenced_by_the_store_joins_again_although_its_lease_is_valid(store: Store, clock: HandClock):
    """The start of an earlier process of the same name arrived late, and that process had ended: no node would fire."""
    stage = Stage(store, clock, ScriptedExecutor())
    stage.registry = MemoryRegistry(clock, TTL)
    engine = stage.make_engine(node_name="a")
    await engine.start()
    try:
        before = await stage.add_job(spec("immediate"))
        await until(lambda: len(stage.executor.finished) == 1)
        late = await stage.apply(c.StartNode(clock.now(), "a"))
        after = await stage.add_job(spec("immediate"))
        await until(lambda: len({attempt.claim.job_id for attempt in stage.executor.finished}) == 2)
        assert engine.node > late
    finally:
        await engine.stop()
    assert await stage.states(before) == await stage.states(after) == [State.COMPLETED]


@pytest.mark.parametrize(("roles", "fires", "runs"), [({"timer"}, True, False), ({"worker"}, False, True)])
async def test_roles_separate_firing_from_running(
    store: Store, clock: HandClock, roles: set[str], fires: bool, runs: bool
):
    stage = Stage(store, clock, ScriptedExecutor())
    stage.registry = MemoryRegistry(clock, TTL)
    await stage.join(node_name="a", roles=frozenset(roles))
    assert bool(stage.engine.term.membership.owned) is fires
    services = {service.name for service in stage.engine.term.services}
    assert ("timer" in services, "claimer" in services) == (fires, runs)
    if fires:
        job_id = await stage.add_job(spec("immediate"))
        await stage.turn_timer()
        assert await stage.states(job_id) == [State.QUEUED]
        assert stage.executor.attempts == []


@pytest.mark.parametrize("roles", [{"timer", "worker"}, {"worker"}])
async def test_claims_that_wait_in_doubt_start_when_the_lease_is_renewed(
    store: Store, clock: HandClock, roles: set[str]
):
    """Also on a node that owns no shard, and gains none when its lease is renewed."""
    stage = Stage(store, clock, ScriptedExecutor())
    stage.registry = MemoryRegistry(clock, TTL)
    await stage.join(Limits(concurrency=1), node_name="a", roles=frozenset(roles))
    for number, job_id in enumerate(await add_jobs(store, "2030-01-01T00:00:00Z", count=2)):
        await stage.apply(c.AddExecution(NOW, TENANT, job_id, execution_id(NOW, number), Trigger.MANUAL))
    stage.executor.hold()
    await stage.engine.term.claimer.run_once()
    await stage.executor.until_started(1)
    clock.advance(TTL - 0.5)
    stage.executor.let_go()
    await stage.let_run()
    assert (len(stage.executor.attempts), stage.engine.term.dispatcher.waiting()) == (1, 1)
    await stage.engine.term.membership.run_once()
    await stage.let_run()
    assert (len(stage.executor.finished), stage.engine.term.dispatcher.waiting()) == (2, 0)


class Unwritable(FlakyStore):
    """A store that refuses writes while `failure` is set. Reads work."""

    failure: str | None = None
    committed = 0

    def writes(self) -> Writes:
        return Writes(self.committed, self.failure)

    async def apply(self, commands: Sequence[c.Command]) -> list[Any]:
        if self.failure is not None:
            raise Overloaded(self.failure)
        self.committed += 1
        return await super().apply(commands)


@pytest.fixture
async def beside_unwritable(store: Store, clock: HandClock) -> tuple[Stage, Stage, Unwritable]:
    """Returns two nodes. The store of the first can be made to refuse writes."""
    registry, flaky = MemoryRegistry(clock, TTL), Unwritable(store)
    a, b = Stage(store, clock, ScriptedExecutor()), Stage(store, clock, ScriptedExecutor())
    a.registry = b.registry = registry
    await a.join(node_name="a", store=flaky)  # type: ignore[arg-type]
    await b.join(node_name="b")
    await spread(a, b)
    return a, b, flaky


async def test_a_node_that_cannot_write_for_the_length_of_a_lease_gives_up_its_shards(
    beside_unwritable: tuple[Stage, Stage, Unwritable], store: Store
):
    a, b, flaky = beside_unwritable
    jobs = await add_jobs(store)
    flaky.failure = "the server takes no writes"
    await beat(a.clock, TTL, a, b)
    assert len(a.engine.term.membership.owned) == SHARDS // 2  # the outage may be short
    assert a.engine.term.membership.failure is None
    await beat(a.clock, 2, a, b)
    assert dict(a.engine.term.membership.owned) == {}
    assert len(b.engine.term.membership.owned) == SHARDS
    assert "the server takes no writes" in str(a.engine.term.membership.failure)
    await b.tick()
    assert began(b) == jobs
    view = await a.registry.view()
    assert {member.name for member in view.members} == {"a", "b"}  # its lease is kept for its running attempts


async def test_a_node_takes_its_shards_again_after_a_successful_write_probe(
    beside_unwritable: tuple[Stage, Stage, Unwritable],
):
    a, b, flaky = beside_unwritable
    flaky.failure = "the server takes no writes"
    await beat(a.clock, TTL + 2, a, b)
    with pytest.raises(Overloaded):
        await a.engine.term.write_probe.run_once()
    flaky.failure = None
    committed = flaky.committed
    a.engine.term.membership._wake.clear()
    await a.engine.term.write_probe.run_once()  # no write has failed: no probe is written
    assert flaky.committed == committed
    assert not a.engine.term.membership._wake.is_set()
    await spread(a, b)
    assert len(a.engine.term.membership.owned) == len(b.engine.term.membership.owned) == SHARDS // 2
    assert a.engine.term.membership.failure is None


async def test_a_write_probe_is_a_commit_and_wakes_the_heartbeat(
    beside_unwritable: tuple[Stage, Stage, Unwritable], monkeypatch: pytest.MonkeyPatch
):
    a, _, flaky = beside_unwritable
    before = flaky.committed
    a.engine.term.membership._wake.clear()
    monkeypatch.setattr(flaky, "writes", lambda: Writes(before, "a write failed a moment ago"))
    await a.engine.term.write_probe.run_once()
    assert flaky.committed == before + 1
    assert a.engine.term.membership._wake.is_set()


async def test_a_failed_heartbeat_is_no_reason_to_give_up_shards(
    beside_unwritable: tuple[Stage, Stage, Unwritable], monkeypatch: pytest.MonkeyPatch
):
    """The database was unreachable for a while. The first write after that succeeds, so no shard has to move."""
    a, b, flaky = beside_unwritable
    flaky.failure = "the database is away"

    async def away(node: int) -> View:
        raise ConnectionError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(a.registry, "renew", away)
        await beat(a.clock, TTL - 2, a)
    await beat(a.clock, 1, a, b)
    flaky.failure = None
    await beat(a.clock, TTL, a, b)
    assert len(a.engine.term.membership.owned) == SHARDS // 2
