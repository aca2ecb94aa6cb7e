"""A page of a list ends at some megabytes, reports that, and the next one continues after it."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.audit import Entry
from duetime.domain.job import JobSpec
from duetime.domain.payloads import HttpRequest
from duetime.ports.pages import PAGE_BYTES, Page
from duetime.ports.store import AuditQuery, JobQuery, JobRecord, Store
from samples import NOW, TENANT, add_job, new_job, one, spec

MEGABYTE = 1024 * 1024


def job_with(body: object) -> JobSpec:
    return spec(payload=HttpRequest("http://127.0.0.1:9/", body=body))


async def add_jobs(store: Store, body: object, count: int) -> list[str]:
    return [await add_job(store, job_with(body)) for _ in range(count)]


@pytest.mark.parametrize("text", ["x", "é"], ids=["one byte", "two bytes"])
@pytest.mark.parametrize("sort", ["created_at", "name", "next_run_time"])
async def test_a_page_of_large_jobs_ends_early_and_the_next_one_continues(store: Store, text: str, sort: str):
    made = await add_jobs(store, text * (900_000 // len(text.encode())), 7)
    query = JobQuery(TENANT, sort=sort, order="asc", limit=10)  # type: ignore[arg-type]
    found: list[JobRecord] = []
    pages = 0
    while True:
        page = await store.list_jobs(query)
        assert isinstance(page, Page)
        assert sum(len(msgspec.json.encode(record)) for record in page) <= PAGE_BYTES
        found += page
        pages += 1
        if not page.is_cut:
            break
        last = page[-1]
        value = {"created_at": None, "name": last.spec.name, "next_run_time": last.due_at}[sort]
        query = msgspec.structs.replace(query, after=(value, last.job_id))
    assert sorted(record.job_id for record in found) == sorted(made)
    assert pages == 2


async def test_a_page_of_many_values_ends_early(store: Store):
    await add_jobs(store, [[]] * 15_000, 6)  # 75,000 each, of the 200,000 of a page
    page = await store.list_jobs(JobQuery(TENANT, limit=10))
    assert (len(page), page.is_cut) == (2, True)


async def test_a_page_below_the_limit_is_complete(store: Store):
    await add_jobs(store, "x" * 900_000, 4)
    page = await store.list_jobs(JobQuery(TENANT, limit=10))
    assert (len(page), page.is_cut) == (4, False)
    assert not (await store.list_jobs(JobQuery("nobody"))).is_cut


async def test_a_page_of_the_audit_ends_early_and_the_next_one_continues(store: Store):
    noted = [
        Entry(NOW + number, TENANT, "ann", "token", "request", "job.change", "job", None, {"x": "x" * 900_000})
        for number in range(7)
    ]
    for entry in noted:
        await one(store, c.CreateJobs(NOW, (new_job(),), audit=(entry,)))
    first = await store.list_audit(AuditQuery(TENANT, limit=10))
    assert (len(first), first.is_cut) == (4, True)
    second = await store.list_audit(AuditQuery(TENANT, limit=10, before=first[-1].number))
    assert (len(second), second.is_cut) == (3, False)
    assert [record.entry.at for record in [*first, *second]] == [entry.at for entry in noted[::-1]]
