"""Limits, room and the audit with several nodes: no two of them grant the same, or break each other's chains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from duetime.domain import capacity as capacity_rules
from duetime.domain import commands as c
from duetime.domain.capacity import Capacity, Load
from duetime.domain.errors import Conflict, InsufficientStorage, QuotaExceeded
from duetime.domain.instants import DAY
from duetime.domain.limits import Limit, Quota
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.blocks import statement
from duetime.store.postgres.filters import list_executions, list_jobs
from patience import PATIENCE_SECONDS
from samples import NOW, TENANT, add_job, change_of, entry_of, new_job, new_key, one, spec, verified
from store.postgres_server import patient_store

QUOTA = Quota(TENANT, "ann", Limit("jobs", 100, DAY))


async def recount(session: asyncpg.Connection) -> Load:
    """Of all tenants; the counters of each tenant must match its rows."""
    counted = await session.fetch(
        "SELECT tenant, name, sum(value)::bigint FROM counters WHERE tenant <> '' AND name IN ('jobs', 'bytes')"
        " GROUP BY 1, 2 HAVING sum(value) > 0 ORDER BY 1, 2"
    )
    by_row = "SELECT tenant, 'jobs', count(*) FROM jobs GROUP BY 1 UNION ALL SELECT tenant, 'bytes', sum(size)::bigint"
    assert counted == await session.fetch(f"{by_row} FROM jobs GROUP BY 1 ORDER BY 1, 2")
    sizes = await session.fetch("SELECT size, octet_length(spec) FROM jobs")
    assert all(size == octets + 512 for size, octets in sizes)
    return Load(len(sizes), sum(size for size, _ in sizes))


# Limits


async def test_a_hundred_of_two_hundred_concurrent_creates_on_two_nodes_pass(
    store: PostgresStore, other: PostgresStore
):
    creates = [c.CreateJobs(NOW, (new_job(),), quota=QUOTA) for _ in range(200)]
    answers = await asyncio.gather(*(one((store, other)[n % 2], create) for n, create in enumerate(creates)))
    assert sum(answer is None for answer in answers) == 100
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 100
    assert await store.count_jobs(JobQuery(TENANT)) == 100


async def test_a_create_waits_for_a_concurrent_one_of_its_user_and_counts_its_jobs(
    store: PostgresStore, session: asyncpg.Connection
):
    await one(store, c.CreateJobs(NOW, (new_job(),), quota=QUOTA))
    full_at = (NOW + DAY) * 1000
    async with session.transaction():
        await session.execute("UPDATE limits SET full_at = $1", full_at)
        create = asyncio.ensure_future(one(store, c.CreateJobs(NOW, (new_job(),), quota=QUOTA)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await session.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"):
                assert not create.done(), "it did not wait"
    assert isinstance(await create, QuotaExceeded)
    assert await session.fetchval("SELECT full_at FROM limits") == full_at


async def test_users_that_share_commits_in_any_order_never_deadlock(store: PostgresStore, other: PostgresStore):
    users = [Quota(TENANT, f"user {n}", Limit("jobs", 1000, DAY)) for n in range(8)]

    async def ask(node: PostgresStore, order: list[Quota]) -> list[Any]:
        return await node.apply([c.CreateJobs(NOW, (new_job(),), quota=quota) for quota in order])

    answers = await asyncio.gather(
        *(ask((store, other)[n % 2], users if n % 3 else users[::-1]) for n in range(40))
    )  # fmt: skip
    assert answers == [[None] * 8] * 40
    rows = await asyncio.gather(*(one(store, c.TakeRequests(NOW, user, 0)) for user in users))
    assert [full_at - NOW * 1000 for _, full_at in rows] == [40 * user.limit.emission for user in users]


# Room


@pytest.fixture
async def limited(url: str) -> AsyncIterator[Any]:
    """Makes stores on one database with a capacity, and stops them."""
    made: list[PostgresStore] = []

    async def make(capacity: Capacity) -> PostgresStore:
        store = patient_store(url, capacity=capacity)
        await store.start()
        made.append(store)
        return store

    yield make
    for store in made:
        await store.stop()


@pytest.fixture(params=["small", "larger than what is ample"])
def ample(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is always near, and one that is far at first: in that case creates do not wait for each other."""
    if request.param != "small":
        monkeypatch.setattr(capacity_rules, "AMPLE", (64, 64 * 1024))


async def adding(nodes: list[PostgresStore], jobs: int) -> list[Any]:
    """48 concurrent clients, each of which creates one job after the other."""
    answers: list[Any] = []
    left = iter(range(jobs))

    async def client(node: PostgresStore) -> None:
        for _ in left:
            answers.append(await one(node, c.CreateJobs(NOW, (new_job(),))))

    await asyncio.gather(*(client(nodes[n % len(nodes)]) for n in range(48)))
    return answers


@pytest.mark.usefixtures("ample")
async def test_concurrent_creates_on_two_nodes_fill_the_store_exactly_to_its_limit(
    limited: Any, session: asyncpg.Connection
):
    nodes = [await limited(Capacity(most_jobs=400)) for _ in range(2)]
    answers = await adding(nodes, 600)
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 200
    assert all(isinstance(answer, InsufficientStorage) and answer.current == 400 for answer in refused)
    assert await recount(session) == await nodes[0].get_load() == await nodes[1].get_load()
    assert (await nodes[0].get_load()).jobs == 400


@pytest.mark.usefixtures("ample")
async def test_concurrent_creates_of_a_tenant_on_two_nodes_leave_the_reserve(limited: Any, session: asyncpg.Connection):
    nodes = [await limited(Capacity(most_jobs=400, tenant_percent=75)) for _ in range(2)]
    answers = await adding(nodes, 600)
    refused = [answer for answer in answers if answer is not None]
    assert len(refused) == 300
    assert {(type(answer), answer.current, answer.limit) for answer in refused} == {(InsufficientStorage, 300, 300)}
    assert [await one(node, c.CreateJobs(NOW, (new_job(tenant="other"),))) for node in nodes] == [None, None]
    assert (await recount(session)).jobs == 302


@pytest.mark.usefixtures("ample")
async def test_two_nodes_never_exceed_the_limit_of_bytes(limited: Any, session: asyncpg.Connection):
    most = 300 * 700
    nodes = [await limited(Capacity(most_bytes=most)) for _ in range(2)]
    answers = await adding(nodes, 600)
    load = await recount(session)
    assert load == await nodes[0].get_load()
    assert most - 1024 < load.bytes <= most
    assert sum(answer is None for answer in answers) == load.jobs
    kinds = {answer.kind for answer in answers if answer is not None}
    assert kinds == {"memory"}


@pytest.mark.usefixtures("ample")
async def test_jobs_that_grow_on_two_nodes_never_exceed_the_limit(limited: Any, session: asyncpg.Connection):
    most = 100 * 700 + 40 * 200
    nodes = [await limited(Capacity(most_bytes=most)) for _ in range(2)]
    jobs = [new_job() for _ in range(100)]
    assert await one(nodes[0], c.CreateJobs(NOW, tuple(jobs))) is None
    grown = spec(description="x" * 200)
    answers = await asyncio.gather(*(one(nodes[n % 2], change_of(job.job_id, grown)) for n, job in enumerate(jobs)))
    assert all(answer == 2 or isinstance(answer, InsufficientStorage) for answer in answers)
    load = await recount(session)
    assert load == await nodes[1].get_load()
    assert most - 1024 < load.bytes <= most


@pytest.mark.usefixtures("ample")
async def test_a_page_larger_than_the_room_is_refused_at_any_limit(limited: Any, session: asyncpg.Connection):
    node = await limited(Capacity(most_jobs=400))
    assert await one(node, c.CreateJobs(NOW, tuple(new_job() for _ in range(100)))) is None
    refused = await one(node, c.CreateJobs(NOW, tuple(new_job() for _ in range(301))))
    assert (refused.kind, refused.current, refused.limit, refused.requested) == ("job_count", 100, 400, 301)
    assert await one(node, c.CreateJobs(NOW, tuple(new_job() for _ in range(300)))) is None
    assert await recount(session) == await node.get_load()


async def test_near_a_limit_only_transactions_that_add_jobs_wait(limited: Any, session: asyncpg.Connection):
    node = await limited(Capacity(most_jobs=3))
    job_id = await add_job(node)
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(hashtextextended('duetime room', 0))")
        create = asyncio.ensure_future(one(node, c.CreateJobs(NOW, (new_job(),))))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await session.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"):
                assert not create.done(), "it did not take its turn"
        assert await one(node, c.PauseJob(NOW, TENANT, job_id, "ann", "")) == "PAUSED"
        assert await one(node, c.PurgeJob(TENANT, job_id)) is False
        assert not create.done()
    assert await create is None


async def test_two_concurrent_reencrypts_of_a_job_keep_the_load_exact(
    store: PostgresStore, other: PostgresStore, session: asyncpg.Connection
):
    job_id = await add_job(store)
    async with session.transaction():
        await session.execute("SELECT 1 FROM timers WHERE job = $1 FOR UPDATE", job_id)
        encrypting = [
            asyncio.ensure_future(one(node, c.Reencrypt(((job_id, 1, spec(description="x" * size)),))))
            for node, size in ((store, 100), (other, 1000))
        ]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await session.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 2:
                assert not any(one.done() for one in encrypting)
    assert await asyncio.gather(*encrypting) == [1, 1]
    assert await store.get_load() == await recount(session)


# The audit


def on_slots(node: PostgresStore, *slots: int) -> None:
    for connection, slot in zip(node._writer._connections, slots, strict=True):
        connection._slot = slot


@pytest.mark.parametrize("slots", [None, (7, 7, 7), (7, 8, 7)])
async def test_chains_with_many_concurrent_writers_are_valid(
    store: PostgresStore, other: PostgresStore, session: asyncpg.Connection, slots: tuple[int, int, int] | None
):
    """Each connection has its own chain, as usual; and the connections of two nodes share chains, which can happen."""
    await add_job(store, spec(key="taken"))
    if slots is not None:
        on_slots(store, *slots)
        on_slots(other, *slots[::-1])

    async def create(number: int) -> Any:
        job = new_job(spec(key="taken") if number % 7 == 0 else None)
        noted = entry_of("job.create", job.job_id)
        answer = await one((store, other)[number % 2], c.CreateJobs(NOW, (job,), quota=QUOTA, audit=(noted,)))
        if answer is None and number % 3 == 0:
            pause = c.PauseJob(NOW, TENANT, job.job_id, "ann", "", entry_of("job.pause", job.job_id))
            await one((other, store)[number % 2], pause)
        return answer

    answers = [
        answer for start in range(0, 200, 50) for answer in await asyncio.gather(*map(create, range(start, start + 50)))
    ]
    created = sum(answer is None for answer in answers)
    assert created == 100
    assert {type(answer) for answer in answers if answer is not None} == {Conflict, QuotaExceeded}
    entries = [record.entry for record in await store.list_audit(AuditQuery(TENANT, limit=1000))]
    assert sum(entry.action == "job.create" for entry in entries) == created
    found = await verified(store)
    assert (found.broken, found.entries) == (None, len(entries))
    assert slots is None or set(found.heads) == set(slots)
    assert await session.fetch("SELECT chain, link, encode(hash, 'hex') FROM audit_heads ORDER BY 1") == [
        (chain, *head) for chain, head in sorted(found.heads.items())
    ]


async def test_a_failed_commit_leaves_no_entry_and_the_chain_continues(
    store: PostgresStore, session: asyncpg.Connection
):
    on_slots(store, 3, 3, 3)
    await one(store, c.AddKey(NOW, new_key("key-1"), entry_of("key.create", "key-1")))
    await session.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'no' USING ERRCODE = '40001'; END $$;"
        "CREATE TRIGGER fail BEFORE INSERT ON audit_links EXECUTE FUNCTION fail()"
    )
    try:
        failed = await asyncio.gather(
            one(store, c.AddKey(NOW, new_key("key-2"), entry_of("key.create", "key-2"))), return_exceptions=True
        )
        assert isinstance(failed[0], Exception)
    finally:
        await session.execute("DROP TRIGGER fail ON audit_links; DROP FUNCTION fail()")
    await one(store, c.AddKey(NOW, new_key("key-3"), entry_of("key.create", "key-3")))
    found = await verified(store)
    assert (found.broken, found.entries, found.heads[3][0]) == (None, 2, 2)
    assert await store.get_key("key-2") is None


# Lists with few rows


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (JobQuery("default", owner="bob"), "jobs_owner"),
        (JobQuery("acme", owner="bob"), "jobs_owner"),
        (JobQuery("acme"), "jobs_tenant"),
        (ExecutionQuery("acme"), "_tenant"),
    ],
    ids=str,
)
async def test_a_short_list_among_many_rows_is_found_by_an_index(
    session: asyncpg.Connection, query: JobQuery | ExecutionQuery, index: str
):
    await session.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    sql, values = list_jobs(query) if isinstance(query, JobQuery) else list_executions(query)
    block = statement(sql)
    plan = "\n".join(row[0] for row in await session.fetch(f"EXPLAIN {block.sql}", *block.arguments(values)))
    assert index in plan, plan
