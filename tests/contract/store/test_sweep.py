"""Rows that are not found by an index on their age: old jobs, full limits, totals of zero."""

from __future__ import annotations

from typing import Any

import pytest

from contract.store.conftest import Raw
from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import JobSpec, JobStatus, RetryPolicy
from duetime.domain.limits import MICRO, Limit, Quota
from duetime.domain.plan import Skipped
from duetime.domain.states import ErrorType
from duetime.domain.subscriptions import EVENT_TAG
from duetime.ports.store import JobQuery, Store
from duetime.testing import SUCCESS
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    executions_of,
    finish,
    fire,
    job_of,
    new_job,
    one,
    spec,
    verified,
)
from snapshot import recount, totals

FIRST = "00000000-0000-0000-0000-000000000000"
FIRST_LIMIT, FIRST_TOTAL = ("", "", ""), ("", "", 0)
LATER = NOW + 40 * DAY
BEFORE = LATER - 30 * DAY


def sweep(after: str = FIRST, limit: int = 100, before: int = BEFORE) -> c.SweepJobs:
    return c.SweepJobs(LATER, before, after, limit)


def delivered_sweep(before: int) -> c.SweepJobs:
    return c.SweepJobs(LATER, 0, FIRST, 100, before)


async def prune(store: Store) -> None:
    while await one(store, c.Prune(LATER, LATER, LATER, 100)):
        continue


async def ran(store: Store, node: int, job: JobSpec, **fields: object) -> str:
    """A job that was due once, and has run."""
    job_id = await add_job(store, job, **fields)
    _, claims = await fire(store, node, NOW + SECOND, job_id)
    await finish(store, node, NOW + SECOND, *(ended(claim, now=NOW + SECOND) for claim in claims))
    return job_id


async def left(store: Store, tenant: str = TENANT) -> set[str]:
    return {job.job_id for job in await store.list_jobs(JobQuery(tenant, limit=1000))}


async def removed_by(store: Store, command: c.SweepJobs) -> tuple[int, str | None]:
    """Returns the number of removed jobs, and the last job that was looked at."""
    swept = await one(store, command)
    return swept.removed, swept.last_job_id


async def test_a_one_off_that_ended_long_ago_is_removed_and_no_longer_counted(store: Store, node: int, raw: Raw):
    keep = await add_job(store, spec("every 1m"))
    before = await store.get_load()
    await ran(store, node, spec("immediate"))
    await ran(store, node, spec("immediate"), tenant="other")
    await prune(store)
    assert await removed_by(store, sweep()) == (2, None)
    assert await left(store) == {keep}
    assert await left(store, "other") == set()
    assert await store.get_load() == before
    assert (await totals(store))["jobs"] == 1
    assert await store.count_jobs(JobQuery("other")) == 0
    assert await raw("SELECT count(*) FROM timers") == [(1,)]


async def test_the_audit_names_the_removed_jobs(store: Store, node: int):
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
async def test_a_job_with_a_key_or_further_runs_stays(store: Store, node: int, job: JobSpec):
    job_id = await add_job(store, job, due_at=NOW)
    _, (claim,) = await fire(store, node, NOW + 1)
    await finish(store, node, NOW, ended(claim))
    await prune(store)
    assert await one(store, sweep()) == c.Swept(0, None)
    assert await left(store) == {job_id}


async def test_a_paused_or_waiting_job_stays(store: Store):
    waits = await add_job(store, spec("immediate"))
    paused = await add_job(store, spec("immediate"))
    await one(store, c.PauseJob(NOW, TENANT, paused, "ann", "x"))
    assert await one(store, sweep()) == c.Swept(0, None)
    assert await left(store) == {waits, paused}


@pytest.mark.parametrize("schedule", ["immediate", "2030-01-01T00:00:00Z", "every 1m", "on_demand"])
async def test_a_job_that_was_cancelled_long_ago_is_removed_although_it_never_ran(store: Store, schedule: str):
    job_id = await add_job(store, spec(schedule))
    await one(store, c.CancelJob(BEFORE - 1, TENANT, job_id))
    assert await one(store, sweep(before=BEFORE - 1)) == c.Swept(0, None)
    assert await removed_by(store, sweep()) == (1, None)
    assert await left(store) == set()


async def test_a_recently_cancelled_job_stays_however_old_it_is(store: Store):
    """The user who cancelled the job will look for it."""
    job_id = await add_job(store, spec("2030-01-01T00:00:00Z"))
    await one(store, c.CancelJob(BEFORE, TENANT, job_id))
    assert (await job_of(store, job_id)).updated_at == BEFORE
    assert await one(store, sweep()) == c.Swept(0, None)
    await one(store, c.CancelJob(BEFORE + DAY, TENANT, job_id))
    assert (await job_of(store, job_id)).updated_at == BEFORE, "to cancel it again changes nothing"


async def test_a_cancelled_job_stays_as_long_as_its_history_and_for_ever_with_a_key(store: Store, node: int):
    cancelled = await ran(store, node, spec("every 1s"))
    keyed = await add_job(store, spec("every 1m", key="k"))
    for job_id in (cancelled, keyed):
        await one(store, c.CancelJob(NOW + 2 * SECOND, TENANT, job_id))
    assert await one(store, sweep()) == c.Swept(0, None)
    await prune(store)
    assert await removed_by(store, sweep()) == (1, None)
    assert await left(store) == {keyed}


# Notifications


async def notification(store: Store, node: int, outcome: Outcome = SUCCESS, **fields: Any) -> str:
    retry = RetryPolicy(max_retries=0)
    job = spec("immediate", tags={EVENT_TAG: "execution.failed"}, retry_policy=retry, **fields)
    job_id = await add_job(store, job)
    _, claims = await fire(store, node, NOW + SECOND, job_id)
    await finish(store, node, NOW + SECOND, *(ended(claim, outcome, now=NOW + SECOND) for claim in claims))
    return job_id


async def test_delivered_notifications_are_removed_soon_with_their_history(store: Store, node: int, raw: Raw):
    other = await ran(store, node, spec("immediate"))
    before = await store.get_load()
    delivered = [await notification(store, node) for _ in range(3)]
    assert await one(store, delivered_sweep(NOW + SECOND)) == c.Swept(0, None)
    assert await removed_by(store, delivered_sweep(NOW + SECOND + 1)) == (3, None)
    assert await left(store) == {other}
    assert await store.get_load() == before
    assert [await executions_of(store, job_id) for job_id in delivered] == [[], [], []]
    assert await raw("SELECT count(*) FROM attempts") == [(1,)]
    assert await totals(store) == await recount(store)


async def test_an_undelivered_notification_stays_as_long_as_other_jobs(store: Store, node: int):
    failed = await notification(store, node, Outcome(ErrorType.BLOCKED_TARGET))
    again = await notification(store, node)
    await add_execution(store, again, NOW + MINUTE)
    keyed = await notification(store, node, key="k")
    assert await one(store, delivered_sweep(LATER)) == c.Swept(0, None)
    assert await left(store) == {failed, again, keyed}
    (claim,) = await claim_waiting(store, node, NOW + MINUTE)
    await finish(store, node, NOW + MINUTE, ended(claim, now=NOW + MINUTE))
    assert await one(store, delivered_sweep(LATER)) == c.Swept(0, None), "somebody ran it again: that is to be seen"
    await prune(store)
    assert await removed_by(store, sweep()) == (2, None)
    assert await left(store) == {keyed}


async def test_the_audit_does_not_record_removed_notifications(store: Store, node: int):
    await notification(store, node)
    await one(store, delivered_sweep(LATER))
    await notification(store, node, Outcome(ErrorType.BLOCKED_TARGET))
    await prune(store)
    assert await removed_by(store, sweep()) == (1, None)
    assert await store.list_audit_pages((-(2**15), 0), 10) == []


# Limits and totals


async def take(store: Store, tenant: str, user: str, now: int = NOW) -> int:
    """Returns when the bucket is full again, in ms."""
    quota = Quota(tenant, user, Limit("requests", 60, HOUR))
    _, full_at = await one(store, c.TakeRequests(now, quota, 1))
    return int(full_at) // MICRO


async def test_limits_that_are_full_again_are_removed_page_by_page(store: Store, raw: Raw):
    for tenant in ("a", "b"):
        for n in range(5):
            assert await take(store, tenant, f"user-{n}") == NOW + MINUTE
    kept = [("a", "late"), ("b", "late")]
    for tenant, user in kept:
        assert await take(store, tenant, user, NOW + 1) == NOW + MINUTE + 1
    assert await one(store, c.SweepLimits(NOW + MINUTE, FIRST_LIMIT, 100)) == c.SweptRows(0, None)
    removed, after = [], FIRST_LIMIT
    while after is not None:
        swept = await one(store, c.SweepLimits(NOW + MINUTE + 1, after, 5))
        removed.append(swept.removed)
        after = swept.last
    assert removed == [4, 4, 2]
    assert await raw("SELECT tenant, user_id FROM limits ORDER BY 1, 2") == kept


async def test_a_removed_limit_is_a_full_bucket(store: Store):
    full_at = await take(store, TENANT, "ann")
    assert await one(store, c.SweepLimits(full_at + 1, FIRST_LIMIT, 100)) == c.SweptRows(1, None)
    assert await take(store, TENANT, "ann", NOW + HOUR) == NOW + HOUR + MINUTE
    quota = Quota(TENANT, "ann", Limit("requests", 60, HOUR))
    creates = [c.CreateJobs(NOW + HOUR, (new_job(),), quota=quota) for _ in range(3)]
    assert await store.apply(creates) == [None] * 3


async def test_totals_of_empty_tenants_are_removed_and_no_total_changes(store: Store, node: int, raw: Raw):
    for tenant in ("a", "b", "c"):
        job_id = await add_job(store, spec("every 1s", key="k"), tenant=tenant)
        _, claims = await fire(store, node, NOW + SECOND, job_id)
        await finish(store, node, NOW + SECOND, *(ended(claim, now=NOW + SECOND) for claim in claims))
        if tenant != "b":
            await one(store, c.PurgeJob(tenant, job_id))
    await prune(store)
    load = await store.get_load()
    after: tuple[str, str, int] | None = FIRST_TOTAL
    while after is not None:
        after = (await one(store, c.SweepCounters(LATER, after, 3))).last
    assert {tenant for (tenant,) in await raw("SELECT tenant FROM counters")} == {"", "b"}
    assert await store.get_load() == load
    for tenant in ("a", "b", "c"):
        assert await totals(store, tenant) == await recount(store, tenant)
    await add_job(store, tenant="a")
    assert (await totals(store, "a"))["jobs"] == 1


async def test_a_job_with_history_or_a_recent_execution_stays(store: Store, node: int):
    job_id = await ran(store, node, spec("immediate"))
    assert await one(store, sweep()) == c.Swept(0, None), "its execution is there"
    await prune(store)
    assert await one(store, sweep(before=NOW + SECOND)) == c.Swept(0, None)
    assert await left(store) == {job_id}
    assert await removed_by(store, sweep(before=NOW + SECOND + 1)) == (1, None)


async def test_a_job_that_was_run_again_by_hand_stays(store: Store, node: int):
    job_id = await ran(store, node, spec("immediate"))
    await prune(store)
    await add_execution(store, job_id, NOW + 39 * DAY)
    assert (await job_of(store, job_id)).status is JobStatus.COMPLETED
    assert await one(store, sweep()) == c.Swept(0, None)


async def test_a_job_that_never_ran_stays_as_long_as_the_ledger_has_the_reason(store: Store):
    job_id = await add_job(store, spec("immediate"))
    await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", "x"))
    skip = Skipped(job_id, TENANT, NOW, NOW + 1, 1, "paused")
    assert await one(store, c.ResumeJob(NOW + 9, TENANT, job_id, 2, None, skip)) is JobStatus.COMPLETED
    assert await one(store, sweep()) == c.Swept(0, None)
    await prune(store)
    assert await removed_by(store, sweep()) == (1, None)


async def test_all_jobs_are_checked_page_by_page(store: Store, node: int):
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
