"""Jobs of one run that is long over go, when nothing is left of their history."""

from __future__ import annotations

import pytest

from contract.store.conftest import Raw
from duetime.domain import commands as c
from duetime.domain.instants import DAY, SECOND
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.plan import Skipped
from duetime.ports.store import JobQuery, Store
from samples import NOW, TENANT, add_job, add_run, ended, finish, fire, job_of, one, spec, verified
from snapshot import totals

FIRST = "00000000-0000-0000-0000-000000000000"
LATER = NOW + 40 * DAY
BEFORE = LATER - 30 * DAY


def sweep(after: str = FIRST, limit: int = 100, before: int = BEFORE) -> c.SweepJobs:
    return c.SweepJobs(LATER, before, after, limit)


async def prune(store: Store) -> None:
    while await one(store, c.Prune(LATER, LATER, LATER, 100)):
        continue


async def ran(store: Store, node: int, job: JobSpec, **fields: object) -> str:
    """A job that was due once, and has run."""
    job_id = await add_job(store, job, **fields)
    _, runs = await fire(store, node, NOW + SECOND, job_id)
    await finish(store, node, NOW + SECOND, *(ended(run, now=NOW + SECOND) for run in runs))
    return job_id


async def left(store: Store, tenant: str = TENANT) -> set[str]:
    return {job.job_id for job in await store.list_jobs(JobQuery(tenant, limit=1000))}


async def test_a_job_whose_one_run_is_long_over_is_removed_and_counted_out(store: Store, node: int, raw: Raw):
    keep = await add_job(store, spec("every 1m"))
    before = await store.get_load()
    await ran(store, node, spec("immediate"))
    await ran(store, node, spec("immediate"), tenant="other")
    await prune(store)
    assert await one(store, sweep()) == c.Swept(2, None)
    assert await left(store) == {keep}
    assert await left(store, "other") == set()
    assert await store.get_load() == before
    assert (await totals(store))["jobs"] == 1
    assert await store.count_jobs(JobQuery("other")) == 0
    assert await raw("SELECT count(*) FROM timers") == [(1,)]


async def test_the_audit_says_which_were_removed(store: Store, node: int):
    gone = [await ran(store, node, spec("immediate")) for _ in range(3)]
    await prune(store)
    await one(store, sweep())
    assert (await verified(store)).broken is None
    ((page,),) = [found.rows for found in await store.list_audit_pages((-(2**15), 0), 10)]
    tenant, resource, text = page
    assert (tenant, resource) == (TENANT, "")
    assert '"duetime","engine","","job.sweep"' in text
    assert all(job_id in text for job_id in gone)


@pytest.mark.parametrize(
    "job", [spec("immediate", key="k"), spec("on_demand"), spec("every 1s", max_runs=1)], ids=lambda job: job.schedule
)
async def test_one_that_has_a_key_or_may_run_again_stays(store: Store, node: int, job: JobSpec):
    job_id = await add_job(store, job, due_at=NOW)
    _, (run,) = await fire(store, node, NOW + 1)
    await finish(store, node, NOW, ended(run))
    await prune(store)
    assert await one(store, sweep()) == c.Swept(0, None)
    assert await left(store) == {job_id}


async def test_one_that_is_paused_cancelled_or_waits_stays(store: Store):
    waits = await add_job(store, spec("immediate"))
    paused, cancelled = await add_job(store, spec("immediate")), await add_job(store, spec("immediate"))
    await one(store, c.PauseJob(NOW, TENANT, paused, "ann", "x"))
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    assert await one(store, sweep()) == c.Swept(0, None)
    assert await left(store) == {waits, paused, cancelled}


async def test_one_with_history_or_a_run_that_is_not_long_over_stays(store: Store, node: int):
    job_id = await ran(store, node, spec("immediate"))
    assert await one(store, sweep()) == c.Swept(0, None), "its execution is there"
    await prune(store)
    assert await one(store, sweep(before=NOW + SECOND)) == c.Swept(0, None)
    assert await left(store) == {job_id}
    assert await one(store, sweep(before=NOW + SECOND + 1)) == c.Swept(1, None)


async def test_one_that_was_asked_to_run_once_more_stays(store: Store, node: int):
    job_id = await ran(store, node, spec("immediate"))
    await prune(store)
    await add_run(store, job_id, NOW + 39 * DAY)
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    assert await one(store, sweep()) == c.Swept(0, None)


async def test_one_that_never_ran_stays_as_long_as_the_ledger_says_why(store: Store):
    job_id = await add_job(store, spec("immediate"))
    await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", "x"))
    skip = Skipped(job_id, TENANT, NOW, NOW + 1, 1, "paused")
    assert await one(store, c.ResumeJob(NOW + 9, TENANT, job_id, 2, None, skip)) is JobStatus.COMPLETED
    assert await one(store, sweep()) == c.Swept(0, None)
    await prune(store)
    assert await one(store, sweep()) == c.Swept(1, None)


async def test_all_jobs_are_walked_page_by_page(store: Store, node: int):
    jobs = [await ran(store, node, spec("immediate" if n % 3 else "every 1h")) for n in range(10)]
    await prune(store)
    pages, after = [], FIRST
    while True:
        swept = await one(store, sweep(after, limit=4))
        pages.append(swept.removed)
        if swept.last_job_id is None:
            break
        after = swept.last_job_id
    assert pages == [2, 3, 1]
    assert await left(store) == {jobs[0], jobs[3], jobs[6], jobs[9]}
    assert await one(store, sweep(after)) == c.Swept(0, None)
