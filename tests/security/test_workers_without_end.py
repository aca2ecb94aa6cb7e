"""A tenant registers workers without end, lists them all, and polls with made-up ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from api.people import People
from cluster.processes import Server
from duetime.domain.commands import Command, JoinWorker
from duetime.domain.errors import NotFound, RateLimited
from duetime.domain.work import Joining, Polling, Reporting
from duetime.domain.worker_limits import MOST_NAME_BYTES, PAGE_BYTES, WorkerLimits
from duetime.ports.store import WorkerRecord
from duetime.store.sqlite import SqliteStore
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage, until
from security.nodes import STORES, nodes

MOST_WORKERS = 20
LONG = [f"{number:04d}".ljust(255, "e") for number in range(1000)]  # a quarter of a megabyte
HOSTILE, VICTIM = "hostile", "victim"


@pytest.fixture(scope="module", params=[STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    limits = {"TENANT_WORKERS_LIMIT": str(MOST_WORKERS), "FREE_REQUESTS_PER_HOUR": "5", "WORKER_LEASE_SECONDS": "10m"}
    with nodes(request.param, tmp_path_factory.mktemp("workers"), **limits) as started:
        yield started


@pytest.fixture
def people(servers: list[Server]) -> People:
    return People(servers[0])


def joining(functions: Sequence[str] = ("f",)) -> dict[str, Any]:
    return {"name": "w", "functions": list(functions), "slots": 1}


def listed(person: Any, limit: int) -> tuple[list[int], int]:
    """Returns the ids of a tenant's workers, page by page, and the size of the largest page."""
    found, largest, cursor = [], 0, ""
    while True:
        answer = person.get(f"/workers?limit={limit}{cursor}")
        assert answer.status == 200, answer
        page = json.loads(answer.body)
        assert len(page["workers"]) <= limit
        found += [one["worker_id"] for one in page["workers"]]
        largest = max(largest, len(answer.body))
        if not page["has_more"]:
            assert page["next_cursor"] is None
            return found, largest
        cursor = f"&cursor={page['next_cursor']}"


def test_many_joins_at_once_make_no_more_workers_than_a_tenant_may_have(people: People, servers: list[Server]) -> None:
    def join(number: int) -> tuple[int, Any]:
        answer = people.eve.at(servers[number % len(servers)]).post("/workers/join", joining())
        return answer.status, answer.json()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(join, range(2 * MOST_WORKERS)))
    joined = [answer["worker_id"] for status, answer in answers if status == 201]
    assert len(joined) == MOST_WORKERS
    assert {status for status, _ in answers} == {201, 429}
    assert "TENANT_WORKERS_LIMIT" in next(answer["message"] for status, answer in answers if status == 429)
    assert people.ada.post("/workers/join", joining()).status == 201, "another tenant has its own"
    assert sorted(listed(people.eve, 7)[0]) == sorted(joined)
    for worker in joined:
        people.eve.post("/workers/leave", {"worker_id": worker})
    assert listed(people.eve, 7)[0] == []


def test_workers_with_long_names_are_few_and_their_lists_are_small(people: People) -> None:
    statuses = [people.eve.post("/workers/join", joining(LONG)).status for _ in range(MOST_WORKERS)]
    assert statuses.count(201) == MOST_NAME_BYTES // len(json.dumps(LONG, separators=(",", ":"))) == 16
    found, largest = listed(people.eve, 100)
    assert len(found) == 16
    assert largest < PAGE_BYTES + 300_000


def test_joins_and_lists_are_counted_as_requests_and_polls_are_not(people: People) -> None:
    free = people.as_user(people.evil, "cheap", "admin", "free")
    joined = [free.post("/workers/join", joining()) for _ in range(4)]
    assert [answer.status for answer in joined] == [201] * 4
    for path in ("/workers/", "/workers"):  # the first is the fifth request, the second one more
        status = free.get(path).status
    assert status == 429
    assert free.post("/workers/join", joining()).status == 429
    polling = {"worker_id": joined[0].json()["worker_id"], "free": 1, "wait_seconds": 0}
    assert [free.post("/workers/poll", polling).status for _ in range(6)] == [200] * 6


class Watched(SqliteStore):
    """Holds reads of workers until `open`, and counts them and the joins."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.open = asyncio.Event()
        self.open.set()
        self.read: list[int] = []
        self.under_way = 0
        self.joins = 0

    async def get_worker(self, worker_id: int) -> WorkerRecord | None:
        self.read.append(worker_id)
        self.under_way += 1
        await self.open.wait()
        self.under_way -= 1
        return await super().get_worker(worker_id)

    async def apply(self, commands: Sequence[Command]) -> list[Any]:
        self.joins += sum(isinstance(command, JoinWorker) for command in commands)
        return await super().apply(commands)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[tuple[Stage, Watched]]:
    store = Watched(tmp_path)
    await store.start()
    made = Stage(store, HandClock(), ScriptedExecutor())
    await made.join(workers=WorkerLimits(workers=2))
    yield made, store
    await store.stop()


async def test_made_up_worker_ids_are_read_one_at_a_time_and_other_tenants_take_turns(
    stage: tuple[Stage, Watched],
) -> None:
    made, store = stage
    gateway = made.engine.term.worker_gateway
    worker = (await gateway.join(VICTIM, "u", Joining("host", ("f",), 1))).worker_id
    await gateway.workers.forget((worker,))  # as if it had joined at another node
    store.open.clear()
    guesses = [
        asyncio.create_task(gateway.poll(HOSTILE, Polling(1000 + number, 1, 0)))  # each id comes four times
        for number in [*range(100)] * 4
    ]
    await until(lambda: store.under_way == 1)
    report = asyncio.create_task(gateway.report(VICTIM, Reporting(worker, [])))
    await asyncio.sleep(0)
    store.open.set()
    await report
    assert store.under_way <= 1
    assert store.read.index(worker) <= 2, "behind one read of the hostile tenant, or two, and not behind all"
    errors = await asyncio.gather(*guesses, return_exceptions=True)
    assert {type(error) for error in errors} == {NotFound}
    assert sorted(store.read) == sorted([*range(1000, 1100), worker]), "each id is read once"
    with pytest.raises(NotFound):
        await gateway.poll(HOSTILE, Polling(1000, 1, 0))
    assert len(store.read) == 101
    made.clock.advance(2)
    with pytest.raises(NotFound):
        await gateway.poll(HOSTILE, Polling(1000, 1, 0))
    assert len(store.read) == 102, "what was not there may be there by now"


async def test_a_refused_tenant_is_refused_again_without_a_call_to_the_store(stage: tuple[Stage, Watched]) -> None:
    made, store = stage
    gateway = made.engine.term.worker_gateway
    for _ in range(2):
        await gateway.join(HOSTILE, "u", Joining("host", ("f",), 1))
    for _ in range(50):
        with pytest.raises(RateLimited):
            await gateway.join(HOSTILE, "u", Joining("host", ("f",), 1))
    assert store.joins == 3
    await gateway.join(VICTIM, "u", Joining("host", ("f",), 1))
    made.clock.advance(2)
    with pytest.raises(RateLimited):
        await gateway.join(HOSTILE, "u", Joining("host", ("f",), 1))
    assert store.joins == 5


async def test_the_watch_checks_every_worker_however_many_a_tenant_has(
    stage: tuple[Stage, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = stage
    monkeypatch.setattr("duetime.engine.watch.PAGE", 2)
    tenants = [VICTIM, *(f"hostile-{number}" for number in range(5))]
    workers = [
        (await made.engine.term.worker_gateway.join(tenant, "u", Joining("host", ("f",), 1))).worker_id
        for tenant in tenants
    ]
    for _ in range(7):
        made.clock.advance(1)
        await made.engine.term.watch.run_once()
    assert sorted(made.engine.term.watch.silent()) == sorted(workers)
