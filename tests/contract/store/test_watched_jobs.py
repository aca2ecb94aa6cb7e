"""Jobs with `slo` or `expect_every`: whoever watches them reads them in pages, with their last success."""

from __future__ import annotations

from typing import Any

import pytest

from contract.store.conftest import Raw
from duetime.domain import commands as c
from duetime.domain.errors import Conflict
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, HOUR, MINUTE
from duetime.domain.job import JobStatus, Slo
from duetime.domain.objectives import MOST_EXPECTED, MOST_WITH_SLO
from duetime.domain.states import ErrorType
from duetime.ports.store import Store, WatchedJob
from duetime.testing import SUCCESS
from samples import NOW, TENANT, add_job, change_of, ended, finish, fire, job_of, new_job, one, spec

SLO = Slo(lateness_seconds=5, success=99.5, window="7d")
LATER = NOW + HOUR
FAILURE = Outcome(error_type=ErrorType.HTTP_ERROR, error_message="it said 404", http_status=404)


async def watched(store: Store) -> list[WatchedJob]:
    return await store.list_watched_jobs("", 100)


async def sweep(store: Store) -> None:
    swept = await one(store, c.SweepJobs(NOW + DAY, NOW + DAY, "00000000-0000-0000-0000-000000000000", 100))
    assert swept.removed == 1


async def run_once(store: Store, node: int, outcome: Outcome, at: int) -> None:
    _, (claim,) = await fire(store, node, at)
    assert await finish(store, node, at, ended(claim, outcome, now=at)) == []


async def test_jobs_that_promise_something_are_listed_and_no_others(store: Store):
    await add_job(store)
    first = await add_job(store, spec(slo=SLO, tags={"team": "sales"}, name="with an slo"))
    second = await add_job(store, spec(expect_every="25h"), tenant="other", owner="bob")
    assert await watched(store) == [
        WatchedJob(first, TENANT, "ann", "with an slo", "http_request", JobStatus.PENDING, NOW, None, None, SLO,
                   {"team": "sales"}),
        WatchedJob(second, "other", "bob", "report", "http_request", JobStatus.PENDING, NOW, None, "25h", None, {}),
    ]  # fmt: skip


async def test_they_are_read_page_by_page(store: Store):
    ids = [await add_job(store, spec(expect_every="1d")) for _ in range(5)]
    found, after = [], ""
    while page := await store.list_watched_jobs(after, 2):
        found += [job.job_id for job in page]
        after = found[-1]
    assert found == ids


async def test_many_are_created_at_once(store: Store):
    jobs = (*(new_job(spec(expect_every=f"{hours}h")) for hours in range(1, 6)), new_job(spec()))
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    assert [job.expect_every for job in await watched(store)] == ["1h", "2h", "3h", "4h", "5h"]


@pytest.mark.parametrize(
    ("before", "after", "since"),
    [
        ({}, {"expect_every": "1d"}, LATER),
        ({"expect_every": "1d"}, {"expect_every": "2d"}, LATER),
        ({"expect_every": "1d"}, {"expect_every": "1d", "slo": SLO}, NOW),
        ({"slo": SLO}, {"slo": Slo(success=90)}, NOW),
    ],
)
async def test_a_change_counts_silence_anew_only_if_another_rhythm_is_expected(
    store: Store, before: dict[str, Any], after: dict[str, Any], since: int
):
    job_id = await add_job(store, spec(**before))
    await one(store, change_of(job_id, spec(**after), now=LATER))
    (job,) = await watched(store)
    assert (job.since, job.expect_every, job.slo) == (since, after.get("expect_every"), after.get("slo"))


async def test_a_job_without_promises_any_more_is_not_listed(store: Store):
    job_id = await add_job(store, spec(slo=SLO, expect_every="1d"))
    await one(store, change_of(job_id, spec(), now=LATER))
    assert await watched(store) == []


async def test_a_pause_is_no_silence(store: Store):
    job_id = await add_job(store, spec(expect_every="1d"))
    await one(store, c.PauseJob(LATER, TENANT, job_id, "ann", "holidays"))
    (job,) = await watched(store)
    assert job.status == JobStatus.PAUSED
    record = await job_of(store, job_id)
    await one(store, c.ResumeJob(NOW + 3 * DAY, TENANT, job_id, record.version, NOW + 4 * DAY, None))
    (job,) = await watched(store)
    assert (job.status, job.since) == (JobStatus.PENDING, NOW + 3 * DAY)


async def test_the_last_success_stays_when_later_executions_fail(store: Store, node: int):
    await add_job(store, spec(expect_every="1d"))
    for at, outcome in ((NOW + MINUTE, SUCCESS), (NOW + 2 * MINUTE, FAILURE)):
        await run_once(store, node, outcome, at)
        (job,) = await watched(store)
        assert job.last_success_at == NOW + MINUTE
    await run_once(store, node, SUCCESS, NOW + 3 * MINUTE)
    (job,) = await watched(store)
    assert job.last_success_at == NOW + 3 * MINUTE


async def test_a_purged_or_swept_job_leaves_no_row(store: Store, raw: Raw):
    job_id = await add_job(store, spec(expect_every="1d"))
    assert await one(store, c.PurgeJob(TENANT, job_id)) is False
    over = await add_job(store, spec("immediate", slo=SLO))
    await one(store, c.CancelJob(NOW, TENANT, over))
    await sweep(store)
    assert await watched(store) == []
    assert await raw("SELECT count(*) FROM watched_jobs") == [(0,)]


@pytest.mark.parametrize(
    ("fields", "most", "field"),
    [({"slo": SLO}, MOST_WITH_SLO, "slo"), ({"expect_every": "1d"}, MOST_EXPECTED, "expect_every")],
)
async def test_a_tenant_may_have_so_many_and_no_more(store: Store, fields: dict[str, Any], most: int, field: str):
    jobs = tuple(new_job(spec(**fields)) for _ in range(most))
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    refused = await one(store, c.CreateJobs(NOW, (new_job(spec(**fields)),)))
    assert isinstance(refused, Conflict)
    assert f"may have {most:,} jobs with `{field}`" in refused.message
    plain = await add_job(store)
    assert isinstance(await one(store, change_of(plain, spec(**fields), now=LATER)), Conflict)
    assert len(await store.list_watched_jobs("", 2 * most)) == most
    await add_job(store, spec(**fields), tenant="other")
