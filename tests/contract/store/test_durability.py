"""Acknowledged writes are stored: after a stop, and after kill -9 at any time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.errors import Overloaded
from duetime.domain.instants import MINUTE
from duetime.ports.store import JobQuery
from patience import PATIENCE_SECONDS
from processes import child
from samples import NOW, TENANT, add_execution, add_job, ended, finish, fire, job_of, new_job, one, spec
from snapshot import recount, snapshot, totals

CHILD = Path(__file__).with_name("child.py")


async def test_a_reopened_store_has_the_same_content(make_store: MakeStore):
    store = make_store()
    await store.start()
    node = await one(store, c.StartNode(NOW, "node-1"))
    job_id = await add_job(store, spec(key="sales"))
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await finish(store, node, NOW + MINUTE, ended(claim))
    await add_execution(store, job_id)
    before = await snapshot(store)
    await store.stop()

    again = make_store()
    await again.start()
    assert await snapshot(again) == before
    assert await one(again, c.StartNode(NOW, "node-1")) > node
    await again.stop()


@pytest.mark.usefixtures("several_connections")
async def test_commands_sent_before_a_stop_are_applied(make_store: MakeStore):
    store = make_store()
    await store.start()
    writes = [asyncio.ensure_future(one(store, c.CreateJobs(NOW, (new_job(),)))) for _ in range(100)]
    await asyncio.sleep(0)  # each has been submitted
    await store.stop()
    answered = await asyncio.gather(*writes)
    assert answered == [None] * 100

    again = make_store()
    await again.start()
    assert await again.count_jobs(JobQuery(TENANT)) == 100
    await again.stop()


async def test_a_stopped_store_accepts_no_writes(make_store: MakeStore):
    store = make_store()
    await store.start()
    await store.stop()
    with pytest.raises(Overloaded):
        await store.apply([c.CreateJobs(NOW, (new_job(),))])


@pytest.mark.parametrize("acknowledged", [1, 100])
async def test_no_acknowledged_create_is_lost_to_a_kill(
    make_store: MakeStore, backend: str, tmp_path: Path, acknowledged: int
):
    said: list[str] = []
    with child(CHILD, backend, str(tmp_path), "create") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        while len(said) < acknowledged:
            said += process.stdout.readline().split()
        process.kill()
        # Lines printed before the kill were acknowledged as well; an incomplete last line was not.
        rest = process.stdout.read()
        said += rest[: rest.rfind("\n") + 1].split()

    store = make_store()
    await store.start()
    for job_id in said:
        assert (await job_of(store, job_id)).due_at == NOW + MINUTE
    assert len(said) >= acknowledged
    assert await totals(store) == await recount(store)
    count = await store.count_jobs(JobQuery(TENANT))
    assert count % 3 == 0, "a create of three jobs was written in part"
    assert len(await store.list_due_timers(2**50, 100_000)) == count
    await store.stop()


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_a_crash_around_a_commit_leaves_all_of_it_or_nothing(
    make_store: MakeStore, backend: str, tmp_path: Path, point: str
):
    with child(CHILD, backend, str(tmp_path), "create", DUETIME_CRASH_AT=f"{point}:5") as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    acknowledged = said[: said.rfind("\n") + 1].split()[1:]
    assert process.returncode == -9

    store = make_store()
    await store.start()
    for job_id in acknowledged:
        await job_of(store, job_id)
    assert await store.count_jobs(JobQuery(TENANT)) % 3 == 0
    assert await totals(store) == await recount(store)
    await store.stop()
