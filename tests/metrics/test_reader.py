"""The reader of a node's figures: what it asks the store, how often, and what it does without an answer."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duetime.api import readings
from duetime.api.context import ClusterState
from duetime.api.readings import Reader, Sources
from duetime.api.streams import Streams
from duetime.domain.capacity import UNBOUNDED, Load
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import Overloaded
from duetime.domain.lease import Holding, Member, Standing, View
from duetime.domain.states import State
from duetime.events import EventHub
from duetime.ports.records import BacklogRecord, Totals, WorkerRecord
from duetime.ports.usage import LogUsage, StoreUsage
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.metrics import Metrics
from duetime.testing import HandClock
from metrics.scene import ENGINE, samples_of
from samples import NOW

VIEW = View(NOW, (Member(1, "a", frozenset(), 0),), (Holding(1, 1), Holding(2, 1), Holding(None, 1)))
CALL = endpoint_of_function("a", "f")


class FakeStore:
    def __init__(self) -> None:
        self.reads: list[str] = []
        self.is_down = False
        self.hangs = False
        self.workers: list[WorkerRecord] = []
        self.waiting_at: int | None = NOW
        self.load = Load(3, 5)

    async def _read(self, name: str) -> None:
        self.reads.append(name)
        if self.is_down:
            raise Overloaded("away")
        if self.hangs:
            await asyncio.Event().wait()

    async def get_load(self) -> Load:
        await self._read("get_load")
        return self.load

    async def get_backlog(self, tenants: int, dead_letters: int) -> BacklogRecord:
        await self._read("get_backlog")
        return BacklogRecord({State.QUEUED: 10}, [("a", State.QUEUED, 4), ("b", State.QUEUED, 3)], 2)

    async def get_all_totals(self) -> Totals:
        return Totals({"PENDING": 3}, {})

    async def list_workers(self, tenant: str | None, limit: int, before: int | None = None) -> list[WorkerRecord]:
        return [it for it in self.workers if before is None or it.worker_id < before]

    async def next_waiting_at(self, tenant: str, only: tuple[int, ...]) -> int | None:
        await self._read("next_waiting_at")
        return self.waiting_at

    def usage(self) -> StoreUsage:
        return StoreUsage(0, 10, {})


class Node:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.functions: set[tuple[str, int]] = set()
        cluster = ClusterState(1, "a", Standing.TRUSTED, range(1), VIEW)
        self.reader = Reader(
            Sources(
                store=cast(Any, self.store),
                clock=HandClock(NOW),
                logs=cast(Any, SimpleNamespace(usage=lambda: LogUsage(0, 0, 0))),
                events=EventHub(),
                streams=Streams(),
                engine=cast(Any, SimpleNamespace(cluster=lambda: cluster, readings=lambda: ENGINE)),
                capacity=UNBOUNDED,
                roles={"api"},
                functions=self.functions,
            )
        )


@pytest.fixture
def node() -> Node:
    return Node()


async def test_figures_of_the_store_and_of_the_cluster_are_read(node: Node) -> None:
    found = await node.reader.read()
    assert found.load == Load(3, 5)
    assert (found.nodes, found.free_shards) == (1, 2)
    assert found.totals is not None
    assert found.totals.waiting["parked"] == {"a": 4, "b": 3, "other": 3}
    assert (found.totals.executions["QUEUED"], found.totals.dead_letters, found.totals.jobs) == (10, 2, {"PENDING": 3})


async def test_totals_are_read_rarely_and_the_load_each_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.reader.read()
    node.store.load = Load(4, 6)
    assert (await node.reader.read()).load == Load(4, 6)
    assert node.store.reads == ["get_load", "get_backlog", "get_load"]
    monkeypatch.setattr(readings, "KEPT_SECONDS", 0.0)
    await node.reader.read()
    assert node.store.reads[3:] == ["get_load", "get_backlog"]


@pytest.mark.parametrize("trouble", ["is_down", "hangs"])
async def test_without_the_store_all_other_figures_are_shown(
    node: Node, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    await node.reader.read()
    monkeypatch.setattr(readings, "STORE_SECONDS", 0.01)
    setattr(node.store, trouble, True)
    found = await node.reader.read()
    assert (found.store_up, found.load, found.totals) == (False, None, None)
    shown = samples_of(Metrics(Telemetry()).render(found)[1].decode())
    assert shown["duetime_store_up"] == 0
    assert math.isnan(shown["duetime_queue_job_count"])
    assert math.isnan(shown["duetime_store_dead_letters"])
    assert shown["duetime_cluster_nodes"] == 1


async def test_functions_with_due_executions_and_no_worker_are_counted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "KEPT_SECONDS", 0.0)
    assert (await node.reader.read()).functions_without_worker == 0
    assert "next_waiting_at" not in node.store.reads
    node.functions.add(("a", CALL))
    assert (await node.reader.read()).functions_without_worker == 1
    node.store.workers = [WorkerRecord(7, "a", "ann", "w", ("f",), 1, NOW, NOW, 0)]
    assert (await node.reader.read()).functions_without_worker == 0
    node.store.workers = [WorkerRecord(7, "b", "bob", "w", ("f",), 1, NOW, NOW, 0)]  # of another tenant
    assert (await node.reader.read()).functions_without_worker == 1
    node.store.waiting_at = NOW + 1
    assert (await node.reader.read()).functions_without_worker == 0
    node.store.waiting_at = None
    await node.reader.read()
    assert not node.functions, "it waits for nothing: it is not asked for again"
