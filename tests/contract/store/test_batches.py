"""Batches of commands: each is atomic, each fails alone, all apply in order, and all are durable or none."""

from __future__ import annotations

import asyncio

import pytest

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, DuetimeError, NotFound, StaleWrite
from duetime.domain.instants import MINUTE
from duetime.domain.job import JobStatus
from duetime.domain.states import Trigger
from duetime.ports.store import JobQuery, Store
from samples import NOW, TENANT, add_job, job_of, new_id, new_job, one, spec
from snapshot import recount, snapshot, totals


async def test_no_commands_return_no_results(store: Store):
    assert await store.apply([]) == []


async def test_results_are_in_the_order_of_their_commands(store: Store):
    job = new_job()
    execution_id = new_id()
    assert await store.apply(
        [
            c.CreateJobs(NOW, (job,)),
            c.PauseJob(NOW, TENANT, job.job_id, "ann", ""),
            c.ResumeJob(NOW, TENANT, job.job_id, 2, NOW + MINUTE, None),
            c.AddExecution(NOW, TENANT, job.job_id, execution_id, Trigger.MANUAL),
            c.CancelJob(NOW, TENANT, job.job_id),
        ]
    ) == [None, JobStatus.PAUSED, JobStatus.PENDING, execution_id, []]


async def test_a_command_sees_the_changes_of_earlier_commands_of_its_batch(store: Store):
    job_id = await add_job(store)
    purged, gone = await store.apply([c.PurgeJob(TENANT, job_id), c.CancelJob(NOW, TENANT, job_id)])
    assert purged is False
    assert isinstance(gone, NotFound)


async def test_a_refused_command_does_not_affect_others(store: Store, node: int):
    await add_job(store, spec(key="taken"))
    good = [new_job() for _ in range(3)]
    answers = await store.apply(
        [
            c.CreateJobs(NOW, (good[0],)),
            c.CreateJobs(NOW, (new_job(), new_job(spec(key="taken")))),
            c.CreateJobs(NOW, (good[1],)),
            c.PauseJob(NOW, TENANT, new_id(), "ann", ""),
            c.ClaimExecutions(node + 1, NOW, 1, (TENANT,)),
            c.CreateJobs(NOW, (good[2],)),
        ]
    )
    assert [type(answer) for answer in answers] == [
        type(None), Conflict, type(None), NotFound, StaleWrite, type(None),
    ]  # fmt: skip
    listed = await store.list_jobs(JobQuery(TENANT, order="asc", owner="ann"))
    assert [job.job_id for job in listed[1:]] == [job.job_id for job in good]
    assert await totals(store) == await recount(store)


async def test_a_command_that_cannot_be_written_does_not_affect_others(store: Store):
    unwritable = new_job(spec(name="a lone surrogate: \ud800"))
    good = [new_job() for _ in range(3)]
    first, refused, *rest = await store.apply([c.CreateJobs(NOW, (job,)) for job in (good[0], unwritable, *good[1:])])
    assert isinstance(refused, DuetimeError)
    assert [first, *rest] == [None, None, None]
    assert await store.count_jobs(JobQuery(TENANT)) == 3


async def test_a_refused_create_of_many_jobs_leaves_no_job_timer_or_count(store: Store):
    await add_job(store, spec(key="taken"))
    before = await snapshot(store)
    jobs = (*(new_job() for _ in range(50)), new_job(spec(key="taken")))
    assert isinstance(await one(store, c.CreateJobs(NOW, jobs)), Conflict)
    assert await snapshot(store) == before


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_callers_each_get_their_own_results(store: Store):
    await add_job(store, spec(key="taken"))

    async def create(number: int) -> object:
        job = new_job(spec(key="taken") if number % 10 == 0 else None)
        return await one(store, c.CreateJobs(NOW, (job,)))

    answers = await asyncio.gather(*(create(number) for number in range(300)))
    assert [isinstance(answer, Conflict) for answer in answers] == [number % 10 == 0 for number in range(300)]
    assert await store.count_jobs(JobQuery(TENANT)) == 1 + 270
    assert await totals(store) == await recount(store)


@pytest.mark.usefixtures("several_connections")
async def test_one_of_several_concurrent_creates_with_the_same_key_succeeds(store: Store):
    answers = await asyncio.gather(*(one(store, c.CreateJobs(NOW, (new_job(spec(key="one")),))) for _ in range(50)))
    assert sum(answer is None for answer in answers) == 1
    assert sum(isinstance(answer, Conflict) for answer in answers) == 49


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_creates_with_one_idempotency_key_create_once_and_return_the_same_response(store: Store):
    record = c.IdempotencyRecord(TENANT, "k", "f", "the answer")
    answers = await asyncio.gather(*(one(store, c.CreateJobs(NOW, (new_job(),), record)) for _ in range(50)))
    assert sorted(map(str, answers)) == ["None"] + ["the answer"] * 49
    assert await store.count_jobs(JobQuery(TENANT)) == 1


@pytest.mark.usefixtures("several_connections")
async def test_one_of_several_concurrent_changes_of_a_version_succeeds(store: Store):
    job_id = await add_job(store)
    job = spec("every 2m")
    change = c.ChangeJob(NOW, TENANT, job_id, 1, None, job.name, job.type, True, NOW + MINUTE, job)
    answers = await asyncio.gather(*(one(store, change) for _ in range(20)))
    assert sum(answer == 2 for answer in answers) == 1
    assert (await job_of(store, job_id)).version == 2


async def test_a_read_sees_every_acknowledged_write(store: Store):
    for _ in range(50):
        job_id = await add_job(store)
        assert await store.get_job(TENANT, job_id) is not None


@pytest.mark.usefixtures("several_connections")
async def test_a_cancelled_caller_does_not_affect_others(store: Store):
    impatient = asyncio.ensure_future(store.apply([c.CreateJobs(NOW, (new_job(),))]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await one(store, c.CreateJobs(NOW, (new_job(),))) is None
    assert await store.check() is None
