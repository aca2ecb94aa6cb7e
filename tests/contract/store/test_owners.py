"""The jobs and executions that each owner and tenant sees: the same as a filter over all rows, in every order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import product
from typing import Any

import apsw
import msgspec
import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import HOUR, MINUTE
from duetime.domain.job import RetryPolicy
from duetime.domain.states import ErrorType, State
from duetime.ports.store import ExecutionQuery, ExecutionRecord, JobQuery, JobRecord, Store
from duetime.store.sqlite import filters
from duetime.store.sqlite.connection import migrate, open_connection
from samples import NOW, add_execution, add_job, claim_waiting, ended, finish, one, spec

TENANTS, OWNERS = ("default", "acme"), ("local", "ann", "bob")
WHO = [*product(TENANTS, (*OWNERS, None, "nobody")), ("nobody", "ann"), ("nobody", None)]
SORTS = [(sort, order) for sort in ("created_at", "next_run_time", "name") for order in ("asc", "desc")]
LATER = NOW + HOUR


@pytest.fixture
async def filled(make_store: MakeStore) -> AsyncIterator[Store]:
    """Jobs of all owners in both tenants, mixed; names and next runs with ties; executions in all states, some dead."""
    store = make_store()
    await store.start()
    node = await one(store, c.StartNode(NOW, "node-1"))
    # In one batch: a commit for each would take most of the time of these tests.
    jobs = await asyncio.gather(*(_add(store, n) for n in range(36)))
    await asyncio.gather(
        *(add_execution(store, job_id, NOW + n * MINUTE, tenant) for n, (tenant, job_id) in enumerate(jobs * 2))
    )
    claims = sorted(await claim_waiting(store, node, LATER, 50), key=lambda claim: claim.execution_id)
    outcomes = [Outcome(None), Outcome(ErrorType.BLOCKED_TARGET), Outcome(ErrorType.HTTP_ERROR, http_status=500)]
    await finish(store, node, LATER, *(ended(claim, outcomes[n % 3], now=LATER) for n, claim in enumerate(claims[:40])))
    yield store
    await store.stop()


async def _add(store: Store, n: int) -> tuple[str, str]:
    """Returns its tenant and its id."""
    tenant, owner = TENANTS[n % 2], OWNERS[n // 2 % 3]
    job = spec(name=f"job {n * 7 % 4}", tags={"n": f"{n % 3}"}, retry_policy=RetryPolicy(max_retries=1))
    job_id = await add_job(store, job, tenant=tenant, owner=owner, due_at=NOW + (n * 5 % 4) * MINUTE + 2 * HOUR)
    if n % 5 == 0:
        await one(store, c.PauseJob(NOW, tenant, job_id, "ann", ""))
    return tenant, job_id


async def all_jobs(store: Store, tenant: str, owner: str | None) -> list[JobRecord]:
    found = await store.list_jobs(JobQuery(tenant, limit=1000))
    return [job for job in found if owner in (None, job.owner)]


def sort_value(job: JobRecord, sort: str) -> Any:
    return {"created_at": job.created_at, "name": job.spec.name, "next_run_time": job.due_at}[sort]


def in_order(jobs: list[JobRecord], sort: str, order: str) -> list[JobRecord]:
    down = order == "desc"
    key = {"created_at": lambda job: job.job_id}.get(sort, lambda job: (sort_value(job, sort), job.job_id))
    valued = sorted((job for job in jobs if sort_value(job, sort) is not None), key=key, reverse=down)
    without = sorted((job for job in jobs if sort_value(job, sort) is None), key=lambda j: j.job_id, reverse=down)
    return valued + without


async def by_cursor(store: Store, query: JobQuery) -> list[JobRecord]:
    seen: list[JobRecord] = []
    while page := await store.list_jobs(query):
        assert len(page) <= query.limit
        seen += page
        query = msgspec.structs.replace(query, after=(sort_value(page[-1], query.sort), page[-1].job_id))
    return seen


async def test_each_owner_sees_their_own_jobs_in_every_order_and_page(filled: Store):
    for tenant, owner in WHO:
        mine = await all_jobs(filled, tenant, owner)
        assert len(mine) == (0 if "nobody" in (tenant, owner) else 18 if owner is None else 6)
        assert await filled.count_jobs(JobQuery(tenant, owner=owner)) == len(mine)
        for sort, order in SORTS:
            expected = in_order(mine, sort, order)
            query = JobQuery(tenant, owner=owner, sort=sort, order=order, limit=100)  # type: ignore[arg-type]
            assert await filled.list_jobs(query) == expected, query
            page = msgspec.structs.replace(query, limit=4, offset=3)
            assert await filled.list_jobs(page) == expected[3:7], page
            assert await by_cursor(filled, msgspec.structs.replace(query, limit=4)) == expected, query


JOB_FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({"status": "PAUSED"}, lambda job: job.status == "PAUSED"),
    ({"status": "COMPLETED"}, lambda job: job.status == "COMPLETED"),
    ({"name": "JOB 1"}, lambda job: job.spec.name == "job 1"),
    ({"tag": ("n", "2")}, lambda job: job.spec.tags["n"] == "2"),
    ({"type": "http_request", "name": "2", "status": "PENDING"},
     lambda job: "2" in job.spec.name and job.status == "PENDING"),
]  # fmt: skip


async def test_an_owner_can_filter_their_jobs(filled: Store):
    for tenant, owner in WHO:
        mine = await all_jobs(filled, tenant, owner)
        for filtered, holds in JOB_FILTERS:
            expected = [job for job in mine if holds(job)]
            query = JobQuery(tenant, owner=owner, limit=100, **filtered)
            assert await filled.list_jobs(query) == in_order(expected, "created_at", "desc"), query
            assert await filled.count_jobs(query) == len(expected), query
            soonest = msgspec.structs.replace(query, sort="next_run_time", order="asc", limit=2)
            assert await by_cursor(filled, soonest) == in_order(expected, "next_run_time", "asc"), query


async def test_an_owner_finds_jobs_by_the_state_of_their_executions(filled: Store):
    for tenant, state in product(TENANTS, ("QUEUED", "RUNNING", "RETRYING", "FAILED")):
        everybody = await filled.list_jobs(JobQuery(tenant, status=state, limit=100))
        assert everybody, (tenant, state)
        for owner in OWNERS:
            query = JobQuery(tenant, owner=owner, status=state, limit=100)
            expected = [job for job in everybody if job.owner == owner]
            assert await filled.list_jobs(query) == expected, query
            assert await filled.count_jobs(query) == len(expected), query


async def all_executions(store: Store, tenant: str, owner: str | None) -> list[ExecutionRecord]:
    jobs = {job.job_id for job in await all_jobs(store, tenant, owner)}
    found = await store.list_executions(ExecutionQuery(tenant, limit=1000))
    return [execution for execution in found if execution.job_id in jobs]


EXECUTION_FILTERS: list[tuple[dict[str, Any], Any]] = [
    ({}, lambda _: True),
    ({"dead": True}, lambda e: e.dead),
    *(({"state": state}, lambda e, state=state: e.state is state) for state in State),
    ({"since": NOW + 20 * MINUTE}, lambda e: e.scheduled_at >= NOW + 20 * MINUTE),
    ({"until": NOW + 20 * MINUTE, "state": State.COMPLETED},
     lambda e: e.scheduled_at < NOW + 20 * MINUTE and e.state is State.COMPLETED),
    ({"since": NOW + 5 * MINUTE, "until": NOW + 30 * MINUTE, "dead": True},
     lambda e: e.dead and NOW + 5 * MINUTE <= e.scheduled_at < NOW + 30 * MINUTE),
]  # fmt: skip


async def test_each_owner_sees_the_executions_of_their_jobs(filled: Store):
    for tenant, owner in WHO:
        theirs = await all_executions(filled, tenant, owner)
        for filtered, holds in EXECUTION_FILTERS:
            expected = [execution for execution in theirs if holds(execution)]
            query = ExecutionQuery(tenant, owner=owner, limit=100, **filtered)
            assert await filled.list_executions(query) == expected, query
            assert await filled.count_executions(query) == len(expected), query
            second = msgspec.structs.replace(query, limit=2, offset=1)
            assert await filled.list_executions(second) == expected[1:3], query
            seen: list[ExecutionRecord] = []
            paged = msgspec.structs.replace(query, limit=5)
            while page := await filled.list_executions(paged):
                seen += page
                paged = msgspec.structs.replace(paged, after=page[-1].execution_id)
            assert seen == expected, query


async def test_an_owner_sees_the_executions_of_a_named_job_only_if_it_is_their_own(filled: Store):
    for tenant in TENANTS:
        for job in await filled.list_jobs(JobQuery(tenant, limit=4)):
            expected = await filled.list_executions(ExecutionQuery(tenant, job_id=job.job_id))
            assert len(expected) == 2
            for owner in OWNERS:
                query = ExecutionQuery(tenant, job_id=job.job_id, owner=owner)
                assert await filled.list_executions(query) == (expected if owner == job.owner else [])
                assert await filled.count_executions(query) == (2 if owner == job.owner else 0)
            other = TENANTS[tenant == "default"]
            assert await filled.list_executions(ExecutionQuery(other, job_id=job.job_id)) == []


# A few rows among many are found by an index


PLANS: list[tuple[JobQuery | ExecutionQuery, list[str]]] = [
    (JobQuery("default", owner="bob"), ["SEARCH j USING INDEX jobs_owner (tenant=? AND owner=?)"]),
    (JobQuery("acme", owner="bob"), ["SEARCH j USING INDEX jobs_owner (tenant=? AND owner=?)"]),
    (JobQuery("acme", owner="bob", order="asc", after=(NOW, "0" * 32)),
     ["SEARCH j USING INDEX jobs_owner (tenant=? AND owner=? AND id>?)"]),
    (JobQuery("acme"), ["SEARCH j USING INDEX jobs_tenant (tenant=?)"]),
    (JobQuery("acme", status="PAUSED"), ["SEARCH j USING INDEX jobs_tenant (tenant=?)"]),
    (JobQuery("acme", sort="next_run_time"), ["SEARCH j USING INDEX jobs_"]),
    (ExecutionQuery("acme"), ["SEARCH e USING INDEX executions_tenant (tenant=?)"]),
    (ExecutionQuery("acme", since=NOW), ["SEARCH e USING INDEX executions_tenant (tenant=? AND id>?)"]),
    (ExecutionQuery("acme", owner="bob"), ["jobs_owner (tenant=? AND owner=?)"]),
    (ExecutionQuery("default", owner="bob"), ["jobs_owner (tenant=? AND owner=?)"]),
    (ExecutionQuery("acme", dead=True), ["SEARCH e USING INDEX executions_"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    """A connection to a database with only its schema. No test changes it."""
    with closing(open_connection(tmp_path_factory.mktemp("plans"), writer=True)) as opened:
        migrate(opened)
        yield opened


@pytest.mark.parametrize(("query", "steps"), PLANS, ids=range(len(PLANS)))
@pytest.mark.parametrize("counted", [False, True])
def test_a_narrow_list_reads_no_rows_of_others(
    connection: apsw.Connection, query: JobQuery | ExecutionQuery, steps: list[str], counted: bool
):
    """Returns the plan of SQLite. (PostgreSQL's plans are checked in tests/store/postgres.)"""
    if isinstance(query, JobQuery):
        sql, values = filters.count_jobs(query) if counted else filters.list_jobs(query)
    else:
        sql, values = filters.count_executions(query) if counted else filters.list_executions(query)
    plan = "\n".join(str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))
    for step in steps:
        step = step if not counted else step.split(" USING INDEX ")[-1].split(" AND id")[0]
        assert step in plan, plan
    assert "SCAN" not in plan, plan
    is_ordered = query.owner is None if isinstance(query, ExecutionQuery) else query.sort == "created_at"
    assert counted or not is_ordered or "TEMP B-TREE" not in plan, plan
