"""A database of a released version: the present version migrates it, reads all its rows, and runs due executions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from litestar.types import ASGIApp

from compat.dump import sqlite_rows, sqlite_schema
from compat.frozen import VERSIONS, Exchange, exchanges_of, make_postgres, make_sqlite, sql_of
from compat.messages import missing
from compat.scenario import ENCRYPTION_KEY, SIGNING_SECRET, TENANT, TOKEN
from duetime.api.app import create_app
from duetime.api.auth.tokens import sign
from duetime.client import admin_operations, operations
from duetime.client.calls import Answer, Call
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY, HOUR
from duetime.domain.payloads import HttpRequest
from duetime.domain.states import State
from duetime.node import Node
from duetime.ports.store import JobQuery, Store
from duetime.process.clock import SystemClock
from duetime.registry.postgres import PostgresRegistry
from duetime.sdk.asking import exchange
from duetime.settings.loading import load
from duetime.store.postgres.connections import Address
from duetime.store.postgres.schema import migrate as migrate_postgres
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.connection import FILE_NAME
from duetime.store.sqlite.connection import migrate as migrate_sqlite
from duetime.testing import SUCCESS, HandClock, ScriptedExecutor
from duetime.vault.aes import open_vault
from engine.stage import Stage
from engine.test_worker_gateway import hire
from samples import verified
from store.postgres_server import connected, fresh_database, patient_store

pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.base_exceptions.LitestarDeprecationWarning")
JWT_SECRET = "a secret of this test alone, which signs nothing else"
TYPES = {"http_request", "script", "sql_query", "python"}
# Depends on the present time, or on other state of the process.
VOLATILE = re.compile(r"^/(jobs/\d+/)?(next_run_time|next|summary|holds|holding)[/:]")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Schemas


def normal(text: str) -> list[str]:
    """The statements, ignoring spaces."""
    return [" ".join(statement.split()) for statement in text.split(";")]


def test_a_migrated_empty_sqlite_database_equals_a_new_one(version: str, tmp_path: Path):
    make_sqlite(tmp_path, sql_of(version, "sqlite", "schema", "fresh"))
    with closing(apsw.Connection(":memory:")) as fresh, closing(apsw.Connection(str(tmp_path / FILE_NAME))) as old:
        for connection in (fresh, old):
            migrate_sqlite(connection)
        assert normal(sqlite_schema(old)) == normal(sqlite_schema(fresh))
        assert sqlite_rows(old) == sqlite_rows(fresh)


POSTGRES_SCHEMA = """
    SELECT c.relname::text, c.relkind::text, c.reloptions::text, pg_get_expr(c.relpartbound, c.oid), ''
    FROM pg_class AS c WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || a.attidentity::text,
           pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
    ORDER BY 1, 2, 3, 4
"""


async def test_a_migrated_empty_postgresql_database_equals_a_new_one(version: str):
    async with fresh_database() as old, fresh_database() as fresh:
        async with connected(old) as connection:
            await make_postgres(connection, sql_of(version, "postgres", "schema", "fresh"))
        found = []
        for url in (old, fresh):
            await migrate_postgres(Address(url))
            registry = PostgresRegistry(url)
            await registry.start()
            await registry.stop()
            async with connected(url) as connection:
                found.append([tuple(row) for row in await connection.fetch(POSTGRES_SCHEMA)])
        assert found[0] == found[1]
        assert len(found[0]) > 300


# Rows


class Used:
    """A database with rows in it, recorded at `at`. `settings` name it for a node."""

    def __init__(self, store: Store, settings: dict[str, str], at: int) -> None:
        self.store, self.settings, self.at = store, settings, at


@pytest.fixture(params=["sqlite", "postgres"])
async def used(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> AsyncIterator[Used]:
    sql = sql_of(version, request.param, "schema", "rows")
    responses = [one.response for one in exchanges_of(version) if isinstance(one.response, dict)]
    at = max(instant_of(response["job_id"]) for response in responses if "job_id" in response)
    data = tmp_path / "data"
    if request.param == "sqlite":
        make_sqlite(data, sql)
        yield Used(SqliteStore(data), {"DATA": str(data)}, at)
        return
    async with fresh_database() as url:
        async with connected(url) as connection:
            await make_postgres(connection, sql)
        yield Used(patient_store(url), {"DATA": str(data), "DATABASE_URL": url}, at)


def settings_of(used: Used) -> Any:
    """The settings of a node that runs nothing."""
    given = {
        "ROLES": "api", "METRICS_PORT": "0", "JWT_SECRET": JWT_SECRET, "ENCRYPTION_KEYS": ENCRYPTION_KEY,
        "SIGNING_SECRETS": SIGNING_SECRET, "ALLOW_SCRIPTS": "true", "ALLOW_SQL": "true",
        "ALLOW_PRIVATE_TARGETS": "127.0.0.0/8", "NODE_NAME": "later",
    }  # fmt: skip
    return load({**given, **used.settings}, {})


class Reader:
    """An admin who reads through the API of the present version, with its client's types."""

    def __init__(self, app: ASGIApp, at: int) -> None:
        named = {"tenant": TENANT, "user_id": "ada", "role": "admin", "tier": "enterprise"}
        self._app = app
        self._headers = {"authorization": f"Bearer {sign(JWT_SECRET, 'duetime', 'duetime', named, at, 3600)}"}

    async def get(self, path: str, **headers: str) -> Any:
        return await exchange(self._app, "GET", path, {**self._headers, **headers}, None)

    async def ask(self, call: Call[Any]) -> Any:
        answered = await self.get(call.path)
        return call.read(Answer(answered.status, answered.body, answered.headers.get))


@asynccontextmanager
async def reading(used: Used) -> AsyncIterator[Reader]:
    node = Node(settings_of(used))
    # At the time of the recording: later, keys and probes would have expired.
    later = SystemClock().now() - used.at
    now, wait = SystemClock.now, SystemClock.wait
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SystemClock, "now", lambda clock: now(clock) - later)
        patched.setattr(SystemClock, "wait", lambda clock, event, until: wait(clock, event, until + later))
        async with node.running() as context:
            yield Reader(create_app(context, node.gate), context.clock.now())


async def test_all_rows_of_a_migrated_database_are_read(used: Used, version: str):
    async with reading(used) as reader:
        ask = reader.ask
        page = await ask(operations.list_jobs().page(100))
        assert {job.type for job in page.jobs} == TYPES
        states, attempts = set(), 0
        for job in page.jobs:
            assert (await ask(operations.get_job(job.job_id))).name == job.name
            assert (await ask(operations.job_why(job.job_id))).summary
            await ask(operations.job_next(job.job_id))
            await ask(operations.job_status(job.job_id))
            for execution in (await ask(operations.job_executions(job.job_id).page(100))).executions:
                states.add(execution.state)
                attempts += len((await ask(operations.get_execution(execution.execution_id))).attempts)
        assert states == {*State}
        assert attempts > 10
        assert (await ask(operations.dead_letters().page(100))).executions
        assert (await ask(admin_operations.list_circuits())).circuits
        assert (await ask(admin_operations.list_connections())).connections
        assert (await ask(admin_operations.list_subscriptions())).subscriptions
        assert (await ask(admin_operations.audit().page(100))).entries
        assert {key.revoked_at is None for key in (await ask(admin_operations.list_api_keys())).keys} == {True, False}
        assert (await ask(admin_operations.list_workers())).workers


async def test_the_audit_of_a_migrated_database_is_verified(used: Used):
    await used.store.start()
    verifier = await verified(used.store)
    await used.store.stop()
    assert verifier.broken is None
    assert verifier.entries > 50


@pytest.mark.parametrize("used", ["sqlite"], indirect=True)  # the recorded responses are of this one
async def test_recorded_reads_of_a_migrated_database_return_the_same_values(used: Used, version: str):
    """Each recorded read, with its filters: every recorded field is present, with the same value."""
    recorded = [one for one in exchanges_of(version) if one.step == "reads"]
    assert len(recorded) > 60
    async with reading(used) as reader:
        for one in recorded:
            answered = await reader.get(one.path)
            assert answered.status == one.status, one
            assert [line for line in differences(one, answered.body) if not VOLATILE.search(line)] == [], one


def differences(one: Exchange, body: bytes) -> list[str]:
    return missing(one.response, msgspec.json.decode(body))


@pytest.mark.parametrize("used", ["sqlite"], indirect=True)
async def test_the_api_keys_of_a_migrated_database_are_accepted(used: Used, version: str):
    (made,) = [
        one.response
        for one in exchanges_of(version)
        if one.operation == "create_api_key" and one.response["user_id"] == "ada"
    ]
    async with reading(used) as reader:
        answered = await exchange(reader._app, "GET", "/api/v1/jobs", {"x-api-key": made["key"]}, None)
        assert answered.status == 200


# Running


class AnyExecutor(ScriptedExecutor):
    """Succeeds at once, whatever the type of the job."""

    async def execute(self, attempt: Any) -> Any:
        self.attempts.append(attempt)
        self.finished.append(attempt)
        return SUCCESS


async def test_due_executions_of_a_migrated_database_run(used: Used):
    """Jobs of each type, and an execution whose next attempt was due."""
    async with AsyncExitStack() as stack:
        await used.store.start()
        stack.push_async_callback(used.store.stop)
        jobs = {job.spec.name: job for job in await used.store.list_jobs(JobQuery(TENANT, limit=1000))}
        clock, executor = HandClock(max(job.updated_at for job in jobs.values())), AnyExecutor()
        stage = Stage(used.store, clock, executor)
        stage.vault = open_vault(settings_of(used).encryption_keys, None)
        await stage.join()
        clock.set(clock.now() + DAY + HOUR)
        await stage.tick()
        names = {job.job_id: name for name, job in jobs.items()}
        ours = [one for one in executor.attempts if one.claim.job_id in names]  # the others are notifications
        ran = {names[one.claim.job_id]: one.payload for one in ours}
        assert {"http", "script", "sql", "interval", "retrying"} <= ran.keys()
        assert isinstance(ran["http"], HttpRequest)
        assert (ran["http"].headers, ran["http"].body) == ({"Authorization": TOKEN}, {"pin": 1, "n": [2]})
        assert ran["script"].env == {"WHO": "the script"}
        assert ran["sql"].parameters == ["pin"]
        hand = await hire(stage, "greet", "later", "by_hand")
        polled = {one.job_name: one for one in await hand.poll()}
        assert polled.keys() >= {"python", "function later", "by hand 2"}
        assert polled["python"].kwargs == {"mark": "?"}
        assert polled["function later"].attempt == 2
        await stage.engine.stop()
