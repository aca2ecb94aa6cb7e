"""Limits of a store: a full store refuses only commands that add. The load equals a recount."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.store.conftest import MakeStore, Raw
from contract.store.storm import TENANTS, Storm
from duetime.domain import commands as c
from duetime.domain.capacity import JOB_OVERHEAD_BYTES, Capacity, Load
from duetime.domain.errors import Conflict, InsufficientStorage, NotFound, PreconditionFailed
from duetime.ports.store import AuditQuery, JobQuery, Store
from patience import PATIENCE_SECONDS
from processes import child
from samples import NOW, TENANT, add_execution, add_job, change_of, new_id, new_job, one, spec, verified

ROWS = "SELECT tenant, count(*), CAST(sum(size) AS bigint) FROM jobs GROUP BY tenant"
COUNTERS = (
    "SELECT tenant, CAST(sum(CASE WHEN name = 'jobs' THEN value ELSE 0 END) AS bigint) AS jobs,"
    " CAST(sum(CASE WHEN name = 'bytes' THEN value ELSE 0 END) AS bigint)"
    " FROM counters WHERE tenant <> '' GROUP BY tenant"
    " HAVING sum(CASE WHEN name IN ('jobs', 'bytes') THEN value ELSE 0 END) > 0"
)
BY_STATUS = "SELECT tenant, status, count(*) FROM timers WHERE status <> 'PENDING' GROUP BY tenant, status"
JOB_TOTALS = "SELECT tenant, status, CAST(sum(value) AS bigint) FROM job_totals GROUP BY tenant, status"
CHILD = Path(__file__).with_name("child.py")


def size(description: str | None = None) -> int:
    job = spec() if description is None else spec(description=description)
    return len(msgspec.json.encode(job)) + JOB_OVERHEAD_BYTES


async def counted(raw: Raw) -> Load:
    """Counts row by row; the size of a row must match its definition, and the counters of each tenant its rows."""
    assert await raw("SELECT count(*) FROM jobs WHERE size <> octet_length(spec) + 512") == [(0,)]
    by_tenant = {tenant: (jobs, size) for tenant, jobs, size in await raw(ROWS)}
    assert {tenant: (jobs, size) for tenant, jobs, size in await raw(COUNTERS)} == by_tenant
    await check_statuses(raw)
    ((jobs, total),) = await raw("SELECT count(*), coalesce(sum(size), 0) FROM jobs")
    return Load(jobs, int(total))


async def check_statuses(raw: Raw) -> None:
    """Counts jobs by status, of each tenant and of all; jobs that are PENDING are the others."""
    rows = {(tenant, status): count for tenant, status, count in await raw(BY_STATUS)}
    in_all = Counter[tuple[str, str]]()
    for (_, status), count in rows.items():
        in_all["", status] += count
    totals = {(tenant, status): value for tenant, status, value in await raw(JOB_TOTALS) if value}
    assert totals == rows | in_all


async def filled(make_store: MakeStore, capacity: Capacity, *jobs: c.NewJob) -> Store:
    store = make_store(capacity)
    await store.start()
    assert await one(store, c.CreateJobs(NOW, jobs)) is None
    return store


def figures(refused: Any) -> tuple[str, int, int, int]:
    assert isinstance(refused, InsufficientStorage), refused
    assert (refused.status, refused.code) == (507, "INSUFFICIENT_STORAGE")
    return refused.kind, refused.current, refused.limit, refused.requested


async def test_an_empty_store_holds_nothing(store: Store):
    assert await store.get_load() == Load(0, 0)


async def test_a_store_with_the_most_jobs_refuses_more(make_store: MakeStore):
    store = await filled(make_store, Capacity(most_jobs=3), new_job(), new_job())
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(), new_job())))) == ("job_count", 2, 3, 2)
    assert await one(store, c.CreateJobs(NOW, (new_job(tenant="other"),))) is None
    for tenant, held in ((TENANT, 2), ("other", 1)):
        refused = await one(store, c.CreateJobs(NOW, (new_job(tenant=tenant),)))
        assert figures(refused) == ("job_count", held, 3, 1), "a tenant is told what it holds itself"
    assert await store.get_load() == Load(3, 3 * size())
    await store.stop()


async def test_a_store_with_the_most_bytes_refuses_more(make_store: MakeStore):
    store = await filled(make_store, Capacity(most_bytes=3 * size()), new_job(), new_job())
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(spec(description="x")),)))) == (
        "memory", 2 * size(), 3 * size(), size("x"),
    )  # fmt: skip
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(), new_job())))) == (
        "memory", 2 * size(), 3 * size(), 2 * size(),
    )  # fmt: skip
    assert await one(store, c.CreateJobs(NOW, (new_job(),))) is None
    assert await store.get_load() == Load(3, 3 * size())
    await store.stop()


async def test_creates_of_one_commit_pass_as_far_as_there_is_room(make_store: MakeStore):
    store = await filled(make_store, Capacity(most_jobs=5), new_job())
    creates = [c.CreateJobs(NOW, tuple(new_job() for _ in range(count))) for count in (2, 3, 1, 1, 1)]
    answers = await store.apply(creates)
    assert [isinstance(answer, InsufficientStorage) for answer in answers] == [False, True, False, False, True]
    assert figures(answers[1]) == ("job_count", 3, 5, 3)
    assert figures(answers[4]) == ("job_count", 5, 5, 1)
    assert (await store.get_load()).jobs == await store.count_jobs(JobQuery(TENANT)) == 5
    await store.stop()


@pytest.mark.parametrize("replan", [True, False])
async def test_a_job_can_grow_as_far_as_there_is_room_and_can_always_shrink(
    make_store: MakeStore, raw: Raw, replan: bool
):
    job, other = new_job(spec(description="x" * 100)), new_job()
    most = size("x" * 100) + size() + 10
    store = await filled(make_store, Capacity(2, most), job, other)
    full = size("x" * 100) + size()

    def change(length: int, version: int) -> c.ChangeJob:
        return change_of(job.job_id, spec(description="x" * length), version, replan=replan, due_at=NOW)

    assert figures(await one(store, change(111, 1))) == ("memory", full, most, 11)
    assert await one(store, change(110, 1)) == 2
    assert figures(await one(store, change(111, 2))) == ("memory", full + 10, most, 1)
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(),))))[0] == "memory"
    assert await one(store, change(110, 2)) == 3
    assert await one(store, change(50, 3)) == 4
    assert await one(store, change(60, 4)) == 5
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(),)))) == ("memory", full - 40, most, size())
    assert await store.get_load() == await counted(raw) == Load(2, full - 40)
    await store.stop()


async def test_jobs_of_an_overfull_store_can_shrink_and_be_removed(make_store: MakeStore, raw: Raw):
    jobs = [new_job(spec(description="x" * 500)) for _ in range(5)]
    await (await filled(make_store, Capacity(), *jobs)).stop()
    store = make_store(Capacity(2, 1000))
    await store.start()
    load = await store.get_load()
    assert figures(await one(store, c.CreateJobs(NOW, (new_job(),)))) == ("memory", load.bytes, 1000, size())
    assert await one(store, change_of(jobs[0].job_id, spec())) == 2
    assert await one(store, c.PauseJob(NOW, TENANT, jobs[1].job_id, "ann", "")) == "PAUSED"
    assert await add_execution(store, jobs[1].job_id)
    assert await one(store, c.PurgeJob(TENANT, jobs[2].job_id)) is False
    assert isinstance(await one(store, change_of(jobs[0].job_id, spec(description="x"), 2)), InsufficientStorage)
    assert await store.get_load() == await counted(raw)
    await store.stop()


async def test_both_stores_report_the_same_one_of_two_reasons_to_refuse_a_change(make_store: MakeStore):
    jobs = [new_job(spec(key="taken")), new_job()]
    await (await filled(make_store, Capacity(), *jobs)).stop()
    full = make_store(Capacity(2, 100))
    await full.start()
    longer = change_of(jobs[1].job_id, spec(key="taken", description="longer"))
    assert isinstance(await one(full, longer), Conflict)
    assert isinstance(await one(full, c.CreateJobs(NOW, (new_job(spec(key="taken")),))), InsufficientStorage)
    await full.stop()


@pytest.mark.parametrize("capacity", [Capacity(most_jobs=2), Capacity(most_bytes=2 * size())])
async def test_a_purge_makes_room(make_store: MakeStore, raw: Raw, capacity: Capacity):
    jobs = [new_job(), new_job()]
    store = await filled(make_store, capacity, *jobs)
    assert isinstance(await one(store, c.CreateJobs(NOW, (new_job(),))), InsufficientStorage)
    assert await one(store, c.CancelJob(NOW, TENANT, jobs[0].job_id)) == []
    assert isinstance(await one(store, c.CreateJobs(NOW, (new_job(),))), InsufficientStorage)
    assert await one(store, c.PurgeJob(TENANT, jobs[0].job_id)) is False
    assert await one(store, c.CreateJobs(NOW, (new_job(),))) is None
    assert isinstance(await one(store, c.CreateJobs(NOW, (new_job(),))), InsufficientStorage)
    purged, made, refused = await store.apply(
        [c.PurgeJob(TENANT, jobs[1].job_id), c.CreateJobs(NOW, (new_job(),)), c.CreateJobs(NOW, (new_job(),))]
    )
    assert (purged, made, type(refused)) == (False, None, InsufficientStorage)
    assert await store.get_load() == await counted(raw) == Load(2, 2 * size())
    await store.stop()


async def test_a_purge_of_several_pages_returns_its_room_once_at_its_end(make_store: MakeStore, raw: Raw):
    store = await filled(make_store, Capacity(most_jobs=1), job := new_job())
    for n in range(4):
        await add_execution(store, job.job_id, NOW + n)
    while await one(store, c.PurgeJob(TENANT, job.job_id, 2)):
        assert await store.get_load() == await counted(raw) == Load(1, size())
    assert await store.get_load() == await counted(raw) == Load(0, 0)
    await store.stop()


async def test_a_command_refused_for_another_reason_does_not_change_the_load(make_store: MakeStore, raw: Raw):
    job = new_job(spec(key="taken"))
    store = await filled(make_store, Capacity(10, 10_000), job, other := new_job())
    before = await store.get_load()
    commands: list[tuple[c.Command, type[Exception]]] = [
        (c.CreateJobs(NOW, (new_job(spec(key="taken")),)), Conflict),
        (c.CreateJobs(NOW, (new_job(), new_job(spec(key="taken")))), Conflict),
        (change_of(other.job_id, spec(key="taken", description="longer")), Conflict),
        (change_of(other.job_id, spec(description="longer"), 9), PreconditionFailed),
        (c.PurgeJob("other", job.job_id), NotFound),
        (c.PurgeJob(TENANT, new_id()), NotFound),
    ]
    for command, refusal in commands:
        assert type(await one(store, command)) is refusal
    assert [type(answer) for answer in await store.apply([one for one, _ in commands])] == [r for _, r in commands]
    assert await store.get_load() == await counted(raw) == before
    await store.stop()


async def test_a_definition_counts_with_its_stored_bytes(store: Store, raw: Raw):
    texts = ["ü🕰", "\x00\x1f", '"quoted" \\ \\u0000', "\u2028</script>", "1e400"]
    for text in texts:
        await add_job(store, spec(description=text, tags={"a": text[:2]} if "\x00" not in text else {}))
    assert await store.get_load() == await counted(raw)
    for n, text in enumerate(texts):
        job_id = await add_job(store, spec(name=f"{n}"))
        assert await one(store, change_of(job_id, spec(description=text * 2))) == 2
    assert await store.get_load() == await counted(raw)


# After any operations


@pytest.mark.usefixtures("several_connections")
@pytest.mark.parametrize("operations", [3000, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.soak])])
async def test_the_load_equals_a_recount_after_many_mixed_operations(make_store: MakeStore, raw: Raw, operations: int):
    store = make_store(Capacity(most_jobs=operations // 10, most_bytes=70 * operations))
    await store.start()
    storm = Storm(store, 1, operations // 100)
    for _ in range(4):
        await storm.run(operations // 4)
        assert await store.get_load() == await counted(raw)
    assert storm.operations >= operations
    for name in ("NoneType", "str", "Conflict", "InsufficientStorage", "QuotaExceeded"):
        assert storm.done[f"CreateJobs {name}"] > 0, storm.done
    for name in ("ChangeJob int", "ChangeJob PreconditionFailed", "ChangeJob InsufficientStorage", "PurgeJob bool"):
        assert storm.done[name] > 0, storm.done
    for tenant in TENANTS:
        ((jobs,),) = await raw(f"SELECT count(*) FROM jobs WHERE tenant = '{tenant}'")
        assert await store.count_jobs(JobQuery(tenant)) == jobs
    found = await verified(store, page=500)
    assert (found.broken, found.entries) == (None, storm.entries)
    await store.stop()


@pytest.mark.parametrize("lines", [1, 10])
async def test_the_load_equals_a_recount_after_a_kill(
    make_store: MakeStore, raw: Raw, backend: str, tmp_path: Path, lines: int
):
    """The audit has an entry for each stored change, and none for others."""
    with child(CHILD, backend, str(tmp_path), "storm") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        for _ in range(lines):
            process.stdout.readline()
        process.kill()

    store = make_store()
    await store.start()
    load = await store.get_load()
    assert load == await counted(raw)
    assert load.jobs > 0
    assert (await verified(store, page=500)).broken is None
    noted = await store.list_audit(AuditQuery(TENANT, limit=100_000))
    made = sum(record.entry.after["jobs"] for record in noted)
    assert made == load.jobs
    await store.stop()


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_a_crash_around_a_commit_leaves_load_jobs_and_audit_consistent(
    make_store: MakeStore, raw: Raw, backend: str, tmp_path: Path, point: str
):
    with child(CHILD, backend, str(tmp_path), "storm", DUETIME_CRASH_AT=f"{point}:8") as process:
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -9
    store = make_store()
    await store.start()
    assert await store.get_load() == await counted(raw)
    noted = await store.list_audit(AuditQuery(TENANT, limit=100_000))
    assert sum(record.entry.after["jobs"] for record in noted) == (await store.get_load()).jobs
    assert (await verified(store)).broken is None
    await store.stop()
