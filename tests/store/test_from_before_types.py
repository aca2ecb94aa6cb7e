"""A database from before jobs had types: every job is a webhook then, and is read, planned and counted as one."""

from __future__ import annotations

from pathlib import Path

import apsw
import msgspec

from duetime.domain.capacity import JOB_OVERHEAD_BYTES
from duetime.domain.ids import make_id
from duetime.domain.job import HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.ports.store import Store
from duetime.store.postgres.blocks import load_migrations as postgres_migrations
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.blocks import load_migrations as sqlite_migrations
from duetime.store.sqlite.connection import FILE_NAME
from samples import NOW, TENANT, URL
from store.postgres_server import connected, fresh_database, patient_store

JOB = make_id(NOW, bytes(10))
SPEC = msgspec.json.encode({"name": "old", "schedule": "every 1m", "payload": {"url": URL}}).decode()
SIZE = len(SPEC) + JOB_OVERHEAD_BYTES
SQLITE_BEFORE, POSTGRES_BEFORE = 4, 2


async def check(store: Store) -> None:
    await store.start()
    try:
        record = await store.get_job(TENANT, JOB)
        assert record is not None
        assert record.spec == HttpJob(name="old", schedule="every 1m", payload=HttpRequest(URL))
        (timer,) = await store.list_due_timers(NOW, 10)
        assert (timer.job_id, timer.spec) == (JOB, record.spec)
        load = await store.get_load()
        assert (load.jobs, load.bytes) == (1, JOB_OVERHEAD_BYTES + len(msgspec.json.encode(record.spec)))
    finally:
        await store.stop()


async def test_on_sqlite(tmp_path: Path):
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    for number, sql in sqlite_migrations():
        if number <= SQLITE_BEFORE:
            list(connection.execute(f"{sql}; PRAGMA user_version = {number}"))
    job = bytes.fromhex(JOB.replace("-", ""))
    values = {"job": job, "tenant": TENANT, "spec": SPEC, "size": SIZE, "now": NOW}
    list(
        connection.execute(
            "INSERT INTO jobs (id, tenant, name, type, owner, created_at, updated_at, spec, size) "
            "VALUES (:job, :tenant, 'old', 'http_request', 'ann', :now, :now, :spec, :size);"
            "INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at) "
            "VALUES (:job, :tenant, 0, 'PENDING', 1, 1, :now);"
            "UPDATE counters SET value = 1 WHERE tenant = '' AND name = 'jobs';"
            "UPDATE counters SET value = :size WHERE tenant = '' AND name = 'bytes'",
            values,
        )
    )
    connection.close()
    await check(SqliteStore(tmp_path))


async def test_on_postgres():
    async with fresh_database() as url:
        async with connected(url) as connection:
            await connection.execute(
                "CREATE TABLE schema_versions (version integer PRIMARY KEY, at timestamptz DEFAULT now())"
            )
            for number, sql in postgres_migrations():
                if number <= POSTGRES_BEFORE:
                    await connection.execute(sql)
                    await connection.execute("INSERT INTO schema_versions (version) VALUES ($1)", number)
            await connection.execute(
                "INSERT INTO jobs (id, tenant, name, type, owner, created_at, updated_at, spec, size) "
                "VALUES ($1, $2, 'old', 'http_request', 'ann', $3, $3, $4, $5)", JOB, TENANT, NOW, SPEC, SIZE,
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO timers (job, tenant, shard, status, version, recurs, due_at) "
                "VALUES ($1, $2, 0, 'PENDING', 1, true, $3)", JOB, TENANT, NOW,
            )  # fmt: skip
            await connection.execute("UPDATE counters SET value = 1 WHERE tenant = '' AND name = 'jobs'")
            await connection.execute("UPDATE counters SET value = $1 WHERE tenant = '' AND name = 'bytes'", SIZE)
        await check(patient_store(url))
