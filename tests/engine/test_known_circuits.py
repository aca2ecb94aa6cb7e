"""The circuits that a node caches: it reads changes, sometimes everything, and keeps a bounded number."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain import breaker
from duetime.domain import commands as c
from duetime.domain.breaker import CircuitChanges, Rules, circuit_of
from duetime.domain.instants import DAY, SECOND
from duetime.engine import breaker as engine_breaker
from duetime.engine.breaker import RELOAD, Breaker
from duetime.ports.store import Store
from duetime.registry.memory import MemoryRegistry
from duetime.testing import HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage
from engine.test_breaker import FAILURE, NUMBER, ONCE
from samples import TENANT, URL, add_execution, spec


class Counted(FlakyStore):
    """Counts the circuits of each read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read: list[int] = []
        self.marks: list[int | None] = []

    async def list_changed_circuits(self, since: int | None, limit: int) -> CircuitChanges:
        changes = await self._store.list_changed_circuits(since, limit)
        self.read.append(len(changes.circuits))
        self.marks.append(since)
        return changes


@pytest.fixture
async def writer(store: Store, clock: HandClock) -> Stage:
    """Returns a node whose requests all fail."""
    stage = Stage(store, clock, ScriptedExecutor())
    stage.registry = MemoryRegistry(clock, 5)
    await stage.join(node_name="a", breaker=Rules(1, 4 * SECOND))
    stage.executor.answer(FAILURE)
    return stage


@pytest.fixture
async def counted(store: Store) -> Counted:
    return Counted(store)


@pytest.fixture
async def reader(counted: Counted, writer: Stage) -> Breaker:
    """Returns the breaker of another node."""
    known = Breaker(counted, writer.clock, writer.events, Rules(1, 4 * SECOND), shared=True)  # type: ignore[arg-type]
    await known.load()
    counted.read.clear()
    return known


async def fail_at(stage: Stage, url: str = URL, tenant: str = TENANT) -> None:
    job_id = await stage.add_job(spec("every 1h", url=url, retry_policy=ONCE), tenant=tenant)
    await add_execution(stage.store, job_id, stage.clock.now(), tenant)
    stage.engine.term.claimer.hint(stage.clock.now())
    await stage.engine.term.claimer.run_once()
    await stage.settle()


async def test_only_changed_circuits_are_read(writer: Stage, reader: Breaker, counted: Counted):
    for n in range(6):
        await fail_at(writer, f"https://{n}.example/")
    await reader.run_once()
    await reader.run_once()
    await fail_at(writer)
    await reader.run_once()
    await reader.run_once()
    assert counted.read == [6, 0, 1, 0]
    assert reader._circuits.get(NUMBER) == await writer.store.get_circuit(NUMBER)
    assert len(reader._circuits) == 7


async def test_a_circuit_closed_by_another_node_or_by_hand_is_read_as_closed(writer: Stage, reader: Breaker):
    await fail_at(writer)
    await reader.run_once()
    assert NUMBER in reader._circuits
    await writer.store.apply([c.CloseCircuit(writer.clock.now(), TENANT, NUMBER)])
    await reader.run_once()
    assert NUMBER not in reader._circuits


async def test_pruned_circuits_are_forgotten_at_the_next_full_read(writer: Stage, reader: Breaker, counted: Counted):
    await fail_at(writer)
    await reader.run_once()
    await writer.store.apply([c.Prune(0, 0, 0, 10, writer.clock.now() + DAY)])
    await reader.run_once()
    assert NUMBER in reader._circuits, "it is among no changes"
    writer.clock.advance(RELOAD // SECOND)
    await reader.run_once()
    assert counted.marks[-1] is None
    assert NUMBER not in reader._circuits
    await reader.run_once()
    assert counted.marks[-1] is not None, "from then on changes again"


async def test_too_many_changes_cause_a_full_read(
    writer: Stage, reader: Breaker, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_breaker, "MOST_KNOWN", 3)
    for n in range(4):
        await fail_at(writer, f"https://{n}.example/")
    assert await reader.run_once() == writer.clock.now(), "at once"
    await reader.run_once()
    assert counted.marks[-1] is None
    latest = await writer.store.list_circuits(None, 3)
    assert reader._circuits.numbers() == {circuit.circuit for circuit in latest}


async def test_a_tenant_with_many_failed_targets_evicts_only_its_own_circuits(
    writer: Stage, reader: Breaker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(breaker, "MOST_OF_TENANT", 3)
    await fail_at(writer, tenant="other")
    for n in range(8):
        writer.clock.advance(0.001)
        await fail_at(writer, f"https://{n}.example/")
        await reader.run_once()
    for known in (reader, writer.engine.term.breaker):
        assert circuit_of("other", URL) in known._circuits
        assert len(known._circuits) == 4
    assert len(await writer.store.list_circuits(None, 100)) == 4


async def test_circuits_updated_during_a_read_are_read_again(writer: Stage, reader: Breaker, counted: Counted):
    await fail_at(writer)
    mine = await writer.store.get_circuit(NUMBER)
    read = counted.list_changed_circuits

    async def meanwhile(since: int | None, limit: int) -> Any:
        changes = await read(since, limit)
        reader.learn([(NUMBER, None)])  # older or newer than the read
        return changes

    counted.list_changed_circuits = meanwhile  # type: ignore[method-assign]
    await reader.run_once()
    assert NUMBER not in reader._circuits
    counted.list_changed_circuits = read  # type: ignore[method-assign]
    await reader.run_once()
    assert reader._circuits.get(NUMBER) == mine
