"""The doctor on a real database: each problem is caused, and then found; nothing is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

import duetime.operate.doctor
from duetime.domain.commands import FenceShards, JoinWorker, StartNode
from duetime.domain.doctor import Check, Status
from duetime.domain.ids import SHARDS
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
from duetime.operate.doctor import run_checks
from duetime.registry.postgres import PostgresRegistry
from duetime.settings.loading import load
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.connections import Address
from duetime.store.postgres.doctor import PostgresDoctor
from duetime.store.postgres.partitions import make_day
from patience import PATIENCE_SECONDS
from samples import add_execution, add_job, one
from store.postgres_server import connected, fresh_database, patient_store

OK, WARNING, PROBLEM = Status.OK, Status.WARNING, Status.PROBLEM
ROLES = ("api", "timer", "worker", "alerts")
ALL_CHECKS = [
    "connection", "server version", "writable", "durability", "autovacuum", "clock skew", "connections", "schema",
    "nodes", "shards", "epochs", "due timers", "waiting executions", "waiting functions",
    "lost executions", "history", "stray history",
    "dead rows",
]  # fmt: skip

Doctor = Callable[[], Awaitable[dict[str, Check]]]


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    async with connected(url) as connection:
        yield connection


@pytest.fixture
def doctor(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.chdir(tmp_path)

    async def ask() -> dict[str, Check]:
        checks = await run_checks(load({"DATABASE_URL": url}, {}))
        assert [check.check for check in checks] == ALL_CHECKS
        assert all(check.found.endswith(".") and bool(check.advice) is (check.status is not OK) for check in checks)
        return {check.check: check for check in checks}

    return ask


@pytest.fixture
async def cluster(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresRegistry, int]]:
    """A living node that owns every shard; it fires nothing."""
    store, registry = patient_store(url), PostgresRegistry(url, ttl_seconds=60)
    await store.start()
    await registry.start()
    node = int(await one(store, StartNode(now(), "a")))
    await registry.join(node, "a", ROLES)
    taken = await registry.take(node, range(SHARDS))
    await one(store, FenceShards(node, tuple(taken.items())))
    yield store, registry, node
    await registry.stop()
    await store.stop()


Cluster = tuple[PostgresStore, PostgresRegistry, int]


def not_ok(checks: dict[str, Check]) -> dict[str, Status]:
    """Except for durability: a test's server has no fsync."""
    assert checks["durability"].found.startswith("fsync is off")
    return {name: it.status for name, it in checks.items() if it.status is not OK and name != "durability"}


async def test_a_healthy_cluster_has_no_findings_except_fsync(doctor: Doctor, cluster: Cluster):
    checks = await doctor()
    assert not_ok(checks) == {}
    assert f"1 node lives: a (id {cluster[2]}; alerts, api, timer, worker; 64 shards" in checks["nodes"].found


async def test_for_an_empty_database_the_advice_is_to_migrate(doctor: Doctor):
    checks = await doctor()
    assert checks["schema"].advice == "Run `duetime migrate`, or start a node."
    assert checks["connection"].status is OK
    assert checks["due timers"].status is PROBLEM


async def test_a_newer_schema_is_a_problem(doctor: Doctor, cluster: Cluster, session: asyncpg.Connection):
    await session.execute("INSERT INTO schema_versions (version) VALUES (99)")
    checks = await doctor()
    assert "The schema is 99" in checks["schema"].found
    assert checks["schema"].status is PROBLEM


async def test_a_cluster_without_nodes_is_a_problem(doctor: Doctor, cluster: Cluster):
    _, registry, node = cluster
    await registry.leave(node)
    assert not_ok(await doctor()) == {"nodes": PROBLEM, "shards": PROBLEM}


async def test_shards_without_an_owner_are_a_problem(doctor: Doctor, cluster: Cluster):
    _, registry, node = cluster
    await registry.release(node, {3: 1, 5: 1})
    checks = await doctor()
    assert not_ok(checks) == {"shards": PROBLEM}
    assert checks["shards"].found.startswith("2 of 64 shards have no living owner (3, 5)")


async def test_a_registry_behind_the_store_is_a_problem_and_the_advice_solves_it(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    store, registry, node = cluster
    await one(store, FenceShards(node, ((7, 9),)))
    checks = await doctor()
    assert not_ok(checks) == {"epochs": PROBLEM}
    await registry.leave(node)  # "Stop all nodes"
    await session.execute(checks["epochs"].advice.split("; ")[1])
    later = int(await one(store, StartNode(now(), "a")))
    await registry.join(later, "a", ROLES)
    taken = await registry.take(later, range(SHARDS))
    assert await one(store, FenceShards(later, tuple(taken.items()))) is None
    assert not_ok(await doctor()) == {}


async def test_an_epoch_that_is_not_fenced_yet_is_a_warning(doctor: Doctor, cluster: Cluster):
    _, registry, node = cluster
    await registry.release(node, {3: 1})
    await registry.take(node, [3])
    assert not_ok(await doctor()) == {"epochs": WARNING}


NOW = "(extract(epoch FROM now()) * 1000)::bigint"
TIMER = f"""
INSERT INTO timers (job, due_at, version, shard, recurs, status, tenant)
VALUES (gen_random_uuid(), {NOW} - $1::bigint, 1, $2::smallint, true, 'PENDING', 't')
"""
OPEN_EXECUTION = f"""
INSERT INTO open_runs (job, execution, scheduled_at, endpoint, due_at, extra, attempt, token, node, priority, held,
                       state, trigger, tenant)
VALUES (gen_random_uuid(), gen_random_uuid(), 0, 1, {NOW} - $1::bigint, 0, 1, 1, $2::integer, 5, $3::boolean,
        $4::text, 'schedule', 't')
"""


async def test_timers_in_the_past_are_counted_with_the_latest(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    for late, shard in ((10_000, 0), (30_000, 63), (-60_000, 1)):
        await session.execute(TIMER, late, shard)
    checks = await doctor()
    assert not_ok(checks) == {"due timers": WARNING}
    assert checks["due timers"].found.startswith("2 timers are due in the past, the earliest by 3")
    await session.execute(TIMER, 3_600_000, 5)
    assert not_ok(await doctor()) == {"due timers": PROBLEM}


async def test_waiting_executions_are_counted_without_held_ones_and_those_not_due(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    for late, held, state in ((20_000, False, "QUEUED"), (10_000, False, "RETRYING"), (900_000, True, "QUEUED"),
                              (-60_000, False, "RETRYING")):  # fmt: skip
        await session.execute(OPEN_EXECUTION, late, None, held, state)
    checks = await doctor()
    assert not_ok(checks) == {"waiting executions": WARNING}
    assert checks["waiting executions"].found.startswith("2 executions wait for a worker, the earliest for 2")


async def test_executions_of_ended_nodes_are_found_even_if_only_the_lease_ended(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    store, _, node = cluster
    await session.execute(OPEN_EXECUTION, 0, node, False, "RUNNING")
    assert not_ok(await doctor()) == {}
    expired = int(
        await one(store, StartNode(now(), "b"))
    )  # no registry has its lease, and the store has no record of its end
    await session.execute(OPEN_EXECUTION, 0, expired, False, "RUNNING")
    checks = await doctor()
    assert not_ok(checks) == {"lost executions": WARNING}
    assert checks["lost executions"].found.startswith("1 execution is held")
    await session.execute("UPDATE nodes SET ended_at = 0 WHERE id = $1", expired)
    assert not_ok(await doctor()) == {"lost executions": PROBLEM}


async def test_an_unreadable_registry_makes_no_execution_a_lost_one(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    await session.execute(OPEN_EXECUTION, 0, cluster[2], False, "RUNNING")
    await session.execute("DROP TABLE leases")
    checks = await doctor()
    assert not_ok(checks) == {"nodes": PROBLEM, "shards": PROBLEM, "epochs": PROBLEM}
    assert "run `duetime migrate`" in checks["nodes"].found


async def test_strays_and_the_oldest_day_of_history_are_reported(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection
):
    await make_day(session, "BEGIN", 10)  # 1970-01-11
    await session.execute("""
        INSERT INTO executions (scheduled_at, id, job, endpoint, extra, priority, trigger, tenant)
        SELECT n, gen_random_uuid(), gen_random_uuid(), 1, 0, 5, 'schedule', 't' FROM generate_series(1, 1001) AS n
    """)
    checks = await doctor()
    assert not_ok(checks) == {"history": WARNING, "stray history": WARNING}
    assert "the oldest of 1970-01-11" in checks["history"].found
    assert checks["stray history"].found == "1,001 rows are outside the partitions by day."


async def test_settings_of_the_database_are_those_of_our_connections(
    doctor: Doctor, cluster: Cluster, url: str, session: asyncpg.Connection
):
    name = urlsplit(url).path[1:]
    await session.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await session.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await session.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 20")
    checks = await doctor()
    assert checks["durability"].found.startswith("fsync and synchronous_commit are off")
    assert checks["writable"].status is PROBLEM
    assert checks["connections"].status is WARNING
    # Everything else could be checked: nothing is written.
    assert not_ok({**checks, "durability": Check("durability", PROBLEM, "fsync is off")}) == {
        "writable": PROBLEM, "connections": WARNING,
    }  # fmt: skip


async def test_a_locked_table_is_a_problem_after_a_timeout_and_blocks_no_other_check(
    doctor: Doctor, cluster: Cluster, session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(duetime.operate.doctor, "CHECK_SECONDS", 2.0)
    async with session.transaction(), asyncio.timeout(PATIENCE_SECONDS):
        await session.execute("LOCK TABLE timers")
        checks = await doctor()
    assert not_ok(checks) == {"due timers": PROBLEM}
    assert checks["due timers"].found.startswith("This check could not be made: ")


@pytest.mark.parametrize(("ahead", "status"), [(0.0, OK), (1.5, WARNING), (-3.0, PROBLEM)])
async def test_the_skew_of_the_clocks_is_measured(url: str, ahead: float, status: Status):
    doctor = PostgresDoctor(url, 5.0, lambda: time.time() + ahead)
    try:
        check = await doctor.clock_skew()
    finally:
        await doctor.stop()
    assert check.status is status, check
    if ahead:
        assert f"{abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} this machine's" in check.found


async def test_an_unreachable_server_is_reported_once_and_other_checks_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    checks = await run_checks(load({"DATABASE_URL": "postgresql://ann:s3cret@127.0.0.1:1/shop"}, {}))
    assert [check.check for check in checks] == ALL_CHECKS
    assert {check.status for check in checks} == {PROBLEM}
    assert checks[0].found.startswith("127.0.0.1:1/shop can't be reached: ")
    assert all("s3cret" not in check.found + check.advice for check in checks)


async def test_a_server_that_never_responds_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(duetime.operate.doctor, "CHECK_SECONDS", 0.5)
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with asyncio.timeout(PATIENCE_SECONDS):
        checks = await run_checks(load({"DATABASE_URL": f"postgresql://ann@127.0.0.1:{port}/shop"}, {}))
    silent.close()
    assert {check.status for check in checks} == {PROBLEM}


async def test_a_pooler_gets_no_query_that_it_does_not_support(cluster: Cluster, url: str):
    doctor = PostgresDoctor(f"{url}{'&' if '?' in url else '?'}pgbouncer=true", 5.0)
    try:
        assert (await doctor.connection()).status is OK
        assert "PgBouncer shares" in (await doctor.connections(25, 3)).found
    finally:
        await doctor.stop()
    assert Address(url).url == url


async def test_waiting_functions_without_a_worker_are_named(doctor: Doctor, cluster: Cluster):
    store, _, _ = cluster
    at = now() - 20_000
    calls = [("acme", "known"), ("acme", "lost"), ("acme", "lost"), ("other", "known"), ("acme", "gone")]
    for tenant, function in calls:
        job = PythonJob(name="call", schedule="on_demand", payload=PythonCall(function))
        job_id = await add_job(store, job, now=at, tenant=tenant)
        await add_execution(store, job_id, at, tenant)
    await one(store, JoinWorker(at, "acme", "ann", "w", ("known", "more"), 1))
    checks = await doctor()
    assert checks["waiting functions"].status is WARNING
    assert checks["waiting functions"].found.startswith("5 functions wait for a worker, the earliest for ")
    assert checks["waiting functions"].found.endswith(" s. No worker has gone, known, lost.")
