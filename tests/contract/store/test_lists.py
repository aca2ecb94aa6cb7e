"""Lists for users: filters, orders, pages and cursors. No tenant sees rows of another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import HOUR, MINUTE
from duetime.domain.job import RetryPolicy, ScriptJob
from duetime.domain.payloads import HttpRequest, Script
from duetime.domain.states import ErrorType, State
from duetime.ports.store import ExecutionQuery, JobQuery, JobRecord, Store
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
    new_id,
    one,
    spec,
)

LATER = NOW + HOUR


async def ids(store: Store, **query: Any) -> list[str]:
    return [job.job_id for job in await store.list_jobs(JobQuery(TENANT, **query))]


async def every_id(store: Store, **query: Any) -> list[str]:
    """Returns the filtered ids, oldest first; the count must agree."""
    found = await ids(store, order="asc", limit=100, **query)
    assert await store.count_jobs(JobQuery(TENANT, **query)) == len(found)
    return found


# Jobs


async def test_jobs_are_listed_newest_first_by_default(store: Store):
    made = [await add_job(store) for _ in range(5)]
    assert await ids(store) == made[::-1]
    assert await ids(store, order="asc") == made


async def test_a_page_has_its_limit_and_begins_at_its_offset(store: Store):
    made = [await add_job(store) for _ in range(5)]
    assert await ids(store, order="asc", limit=2) == made[:2]
    assert await ids(store, order="asc", limit=2, offset=4) == made[4:]
    assert await ids(store, offset=5) == []
    assert await store.count_jobs(JobQuery(TENANT, limit=2, offset=4)) == 5


async def test_jobs_are_filtered_by_status(store: Store, node: int):
    pending, paused, cancelled, done = [await add_job(store) for _ in range(3)] + [
        await add_job(store, spec("immediate"))
    ]
    await one(store, c.PauseJob(NOW, TENANT, paused, "ann", ""))
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    _, (claim,) = await fire(store, node, NOW, done)
    await finish(store, node, NOW, ended(claim))
    assert await every_id(store, status="PENDING") == [pending]
    assert await every_id(store, status="PAUSED") == [paused]
    assert await every_id(store, status="CANCELLED") == [cancelled]
    assert await every_id(store, status="COMPLETED") == [done]


async def test_jobs_are_filtered_by_the_state_of_their_last_execution(store: Store, node: int):
    outcomes = {
        State.FAILED: Outcome(ErrorType.BLOCKED_TARGET),
        State.TIMEOUT: Outcome(ErrorType.TIMEOUT),
        State.RETRYING: Outcome(ErrorType.HTTP_ERROR, http_status=500),
    }
    made = {}
    for state, outcome in outcomes.items():
        policy = RetryPolicy(max_retries=0 if state is State.TIMEOUT else 1)
        made[state] = await add_job(store, spec(retry_policy=policy))
        _, (claim,) = await fire(store, node, NOW + MINUTE, made[state])
        await finish(store, node, NOW, ended(claim, outcome))
    made[State.RUNNING] = await add_job(store)
    await fire(store, node, NOW + MINUTE, made[State.RUNNING])
    made[State.QUEUED] = await add_job(store)
    await add_execution(store, made[State.QUEUED])
    await add_job(store)
    for state, job_id in made.items():
        assert await every_id(store, status=state) == [job_id]


async def test_jobs_are_filtered_by_a_part_of_their_name_without_regard_to_case(store: Store):
    sales, costs = await add_job(store, spec(name="Daily Sales_100%")), await add_job(store, spec(name="costs"))
    assert await every_id(store, name="SALES") == [sales]
    assert await every_id(store, name="_1") == [sales]
    assert await every_id(store, name="%") == [sales]
    assert await every_id(store, name="s") == [sales, costs]
    assert await every_id(store, name="x") == []


async def test_jobs_are_filtered_by_tag_with_or_without_its_value(store: Store):
    a = await add_job(store, spec(tags={"team": "sales", "tier": "1"}))
    b = await add_job(store, spec(tags={"team": "costs"}))
    await add_job(store)
    assert await every_id(store, tag=("team", None)) == [a, b]
    assert await every_id(store, tag=("team", "costs")) == [b]
    assert await every_id(store, tag=("tier", "2")) == []
    assert await every_id(store, tag=("te", None)) == []


async def test_jobs_are_filtered_by_owner_and_type(store: Store):
    mine, theirs = await add_job(store), await add_job(store, owner="bob")
    script = await add_job(store, ScriptJob(name="tidy", schedule="every 1m", payload=Script(argv=("true",))))
    assert await every_id(store, owner="bob") == [theirs]
    assert await every_id(store, type="script") == [script]
    assert await every_id(store, type="http_request") == [mine, theirs]


async def test_filters_can_be_combined(store: Store):
    wanted = await add_job(store, spec(name="sales", tags={"a": "1"}), owner="bob")
    await add_job(store, spec(name="sales", tags={"a": "1"}))
    await add_job(store, spec(name="sales"), owner="bob")
    await add_job(store, spec(tags={"a": "1"}), owner="bob")
    assert await every_id(store, name="sales", tag=("a", "1"), owner="bob", status="PENDING") == [wanted]


async def jobs_in_all_kinds_of_order(store: Store) -> list[JobRecord]:
    """Names and next runs with ties, and some without a next run."""
    for n in range(12):
        job_id = await add_job(store, spec(name=f"job {n * 7 % 4}"), due_at=NOW + (n * 5 % 4) * MINUTE)
        if n % 4 == 0:
            await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
    return await store.list_jobs(JobQuery(TENANT, limit=100))


def sort_value(job: JobRecord, sort: str) -> Any:
    return {"created_at": job.created_at, "name": job.spec.name, "next_run_time": job.due_at}[sort]


def in_order(jobs: list[JobRecord], sort: str, order: str) -> list[str]:
    """By the sort value, then the id; jobs without a next run come last in both directions."""
    down = order == "desc"
    valued = [job for job in jobs if sort_value(job, sort) is not None]
    without = [job for job in jobs if sort_value(job, sort) is None]
    valued.sort(key=lambda job: (sort_value(job, sort), job.job_id), reverse=down)
    without.sort(key=lambda job: job.job_id, reverse=down)
    return [job.job_id for job in valued + without]


SORTS = [(sort, order) for sort in ("created_at", "next_run_time", "name") for order in ("asc", "desc")]


@pytest.mark.parametrize(("sort", "order"), SORTS)
async def test_jobs_are_sorted_as_requested(store: Store, sort: str, order: str):
    expected = in_order(await jobs_in_all_kinds_of_order(store), sort, order)
    assert await ids(store, sort=sort, order=order, limit=100) == expected
    assert await ids(store, sort=sort, order=order, limit=5) == expected[:5]
    assert await ids(store, sort=sort, order=order, limit=5, offset=5) == expected[5:10]
    assert await ids(store, sort=sort, order=order, limit=5, offset=10) == expected[10:]


@pytest.mark.parametrize(("sort", "order"), SORTS)
@pytest.mark.parametrize("limit", [1, 5])
async def test_all_pages_by_cursor_are_the_whole_list(store: Store, sort: str, order: str, limit: int):
    expected = in_order(await jobs_in_all_kinds_of_order(store), sort, order)
    seen: list[str] = []
    after = None
    while page := await store.list_jobs(JobQuery(TENANT, sort=sort, order=order, limit=limit, after=after)):  # type: ignore[arg-type]
        assert len(page) <= limit
        seen += [job.job_id for job in page]
        after = (sort_value(page[-1], sort), page[-1].job_id)
    assert seen == expected


async def test_a_cursor_keeps_its_place_when_jobs_are_added_and_removed(store: Store):
    made = [await add_job(store) for _ in range(6)]
    first = await ids(store, limit=3)
    await one(store, c.PurgeJob(TENANT, first[-1]))
    await add_job(store)
    assert await ids(store, limit=3, after=(NOW, first[-1])) == made[2::-1]


async def test_a_filter_applies_to_every_page(store: Store):
    made = [await add_job(store, spec(name="sales" if n % 2 else "costs")) for n in range(8)]
    first = await ids(store, name="sales", limit=2, order="asc")
    second = await ids(store, name="sales", limit=2, order="asc", after=(NOW, first[-1]))
    assert first + second == made[1::2]


# Executions


async def history(store: Store, node: int) -> list[str]:
    """Twelve executions of two jobs, in four states, one dead. Oldest first."""
    made = []
    for job_id in (await add_job(store), await add_job(store)):
        for n in range(6):
            made.append(await add_execution(store, job_id, NOW + n * MINUTE))
    claims = {claim.execution_id: claim for claim in await claim_waiting(store, node, LATER, limit=9)}
    attempts = [ended(claim, now=LATER) for claim in claims.values()]
    attempts[0] = ended(next(iter(claims.values())), Outcome(ErrorType.BLOCKED_TARGET), now=LATER)
    await finish(store, node, LATER, *attempts[:6])
    return sorted(made)


async def test_executions_are_listed_latest_first(store: Store, node: int):
    made = await history(store, node)
    found = await store.list_executions(ExecutionQuery(TENANT, limit=100))
    assert [e.execution_id for e in found] == made[::-1]
    assert [e.scheduled_at for e in found] == sorted((e.scheduled_at for e in found), reverse=True)


@pytest.mark.parametrize("of_one_job", [True, False])
@pytest.mark.parametrize("limit", [1, 4])
async def test_all_pages_of_executions_by_cursor_are_the_whole_list(
    store: Store, node: int, of_one_job: bool, limit: int
):
    await history(store, node)
    (some,) = await store.list_executions(ExecutionQuery(TENANT, limit=1))
    query = ExecutionQuery(TENANT, job_id=some.job_id if of_one_job else None, limit=100)
    expected = [e.execution_id for e in await store.list_executions(query)]
    assert len(expected) == (6 if of_one_job else 12)
    seen: list[str] = []
    while page := await store.list_executions(
        msgspec.structs.replace(query, limit=limit, after=seen[-1] if seen else None)
    ):
        assert len(page) <= limit
        seen += [e.execution_id for e in page]
    assert seen == expected
    by_offset = msgspec.structs.replace(query, limit=4, offset=4)
    assert [e.execution_id for e in await store.list_executions(by_offset)] == expected[4:8]


@pytest.mark.parametrize(
    "filters",
    [
        {}, {"state": State.QUEUED}, {"state": State.RUNNING}, {"state": State.COMPLETED}, {"state": State.FAILED},
        {"state": State.SKIPPED}, {"dead": True}, {"since": NOW + 2 * MINUTE}, {"until": NOW + 2 * MINUTE},
        {"since": NOW + MINUTE, "until": NOW + 4 * MINUTE, "state": State.COMPLETED}, {"since": NOW + HOUR},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("of_one_job", [True, False])
async def test_executions_are_filtered_and_counted_alike(
    store: Store, node: int, filters: dict[str, Any], of_one_job: bool
):
    await history(store, node)
    everything = await store.list_executions(ExecutionQuery(TENANT, limit=100))
    job_id = everything[0].job_id if of_one_job else None
    expected = [
        e
        for e in everything
        if (job_id is None or e.job_id == job_id)
        and filters.get("state") in (None, e.state)
        and (not filters.get("dead") or e.dead)
        and filters.get("since", 0) <= e.scheduled_at < filters.get("until", 2**60)
    ]
    query = ExecutionQuery(TENANT, job_id=job_id, limit=100, **filters)
    assert await store.list_executions(query) == expected
    assert await store.count_executions(query) == len(expected)


async def test_lateness_compares_the_start_of_the_last_executions_with_their_schedule(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(4):
        await add_execution(store, job_id, NOW + n * MINUTE)
    claims = await claim_waiting(store, node, LATER, limit=3)
    attempts = [ended(claim, started_at=claim.scheduled_at + 10 * n, now=LATER) for n, claim in enumerate(claims)]
    await finish(store, node, LATER, *attempts)
    assert await store.list_lateness(job_id, 10) == [20, 10, 0]
    assert await store.list_lateness(job_id, 2) == [20, 10]
    assert await store.list_lateness(new_id(), 2) == []


async def test_lateness_is_that_of_the_first_attempt(store: Store, node: int):
    job_id = await add_job(store)
    await add_execution(store, job_id)
    (claim,) = await claim_waiting(store, node, NOW)
    await finish(store, node, NOW, ended(claim, Outcome(ErrorType.TIMEOUT), started_at=NOW + 5))
    (again,) = await claim_waiting(store, node, LATER)
    await finish(store, node, LATER, ended(again, started_at=LATER, now=LATER))
    assert await store.list_lateness(job_id, 10) == [5]


# Reads of the engine


async def test_the_earliest_due_instant_of_all_jobs_is_returned(store: Store):
    assert await store.next_due_at() is None
    for minutes in (5, 3, 9):
        await add_job(store, due_at=NOW + minutes * MINUTE)
    assert await store.next_due_at() == NOW + 3 * MINUTE


async def test_due_timers_are_listed_earliest_first_up_to_the_instant_and_the_limit(store: Store):
    made = {minutes: await add_job(store, due_at=NOW + minutes * MINUTE) for minutes in (5, 3, 9)}
    due = [timer.job_id for timer in await store.list_due_timers(NOW + 5 * MINUTE, 10)]
    assert due == [made[3], made[5]]
    assert [timer.job_id for timer in await store.list_due_timers(NOW + HOUR, 1)] == [made[3]]
    assert await store.list_due_timers(NOW + 3 * MINUTE - 1, 10) == []


async def test_the_earliest_waiting_instant_excludes_running_and_held_executions(store: Store, node: int):
    assert await store.next_waiting_at() is None
    job_id = await add_job(store, spec(overlap="queue_all"))
    await fire(store, node, NOW + MINUTE)
    await fire(store, node, NOW + 2 * MINUTE)
    assert await store.next_waiting_at() is None
    for priority, minutes in ((0, 7), (9, 8)):
        await add_execution(store, await add_job(store, spec(priority=priority)), NOW + minutes * MINUTE)
    assert await store.next_waiting_at() == NOW + 7 * MINUTE
    assert len(await executions_of(store, job_id)) == 2


# Tenants


async def test_no_tenant_sees_anything_of_another(store: Store, node: int):
    theirs = await add_job(store, spec(key="sales", tags={"a": "b"}), tenant="other")
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    await finish(store, node, LATER, ended(claim, Outcome(ErrorType.BLOCKED_TARGET)))
    assert await store.get_job(TENANT, theirs) is None
    assert await store.get_job_by_key(TENANT, "sales") is None
    assert await store.get_execution(TENANT, claim.execution_id) is None
    for sort in ("created_at", "next_run_time", "name"):
        assert await ids(store, sort=sort) == []
    for query in ({}, {"name": "report"}, {"tag": ("a", None)}, {"status": "PENDING"}, {"status": "FAILED"}):
        assert await every_id(store, **query) == []
    for filters in ({}, {"job_id": theirs}, {"dead": True}, {"state": State.FAILED}, {"since": 0}):
        query = ExecutionQuery(TENANT, **filters)  # type: ignore[arg-type]
        assert await store.list_executions(query) == []
        assert await store.count_executions(query) == 0
    assert await store.count_history() == 1


async def test_a_page_of_due_timers_is_bounded_in_bytes_but_never_empty(store: Store):
    large = {"payload": HttpRequest("https://hook.example/run", body="x" * 3_000_000)}
    made = [await add_job(store, spec("every 1m", **large)) for _ in range(3)]
    seen: list[str] = []
    after = None
    for _ in made:
        page = await store.list_due_timers(NOW + HOUR, 100, after)
        assert len(page) == 1
        seen.append(page[0].job_id)
        after = page[0].place
    assert seen == made
    assert await store.list_due_timers(NOW + HOUR, 100, after) == []
