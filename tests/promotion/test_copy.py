"""The target equals the source: every table, every state, every next run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from duetime.bus.local import LocalBus
from duetime.domain.audit import BEFORE_ALL
from duetime.domain.commands import AddKey, PruneAudit, StartNode
from duetime.domain.ids import SHARDS
from duetime.domain.instants import DAY
from duetime.domain.states import State
from duetime.engine.engine import Engine
from duetime.engine.settings import EngineSettings
from duetime.events import EventHub
from duetime.operate.promote import Check
from duetime.ports.store import ExecutionQuery
from duetime.registry.memory import MemoryRegistry
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.load import NODES, WANTED, Load
from duetime.store.postgres.partitions import list_days
from duetime.store.sqlite import SqliteStore
from duetime.testing import HandClock, ScriptedExecutor
from patience import PATIENCE_SECONDS
from promotion.source import OTHER, Silent, promotion, rows_of
from samples import NOW, TENANT, entry_of, new_key, one, verified
from snapshot import recount, snapshot, totals
from store.postgres_server import connected, patient_store


async def in_sqlite(folder: Path) -> dict[str, object]:
    """Reads the source through the port, before the promotion: no store opens a promoted folder."""
    store = SqliteStore(folder)
    await store.start()
    try:
        return await snapshot(store, TENANT, OTHER)
    finally:
        await store.stop()


async def test_all_data_of_the_port_is_equal(source: Path, target: str):
    before = await in_sqlite(source)
    await promotion(source, target).run()
    store = patient_store(target)
    await store.start()
    try:
        assert await snapshot(store, TENANT, OTHER) == before
        for tenant in (TENANT, OTHER):
            assert await totals(store, tenant) == await recount(store, tenant)
    finally:
        await store.stop()


async def test_a_pruned_audit_is_verified_from_its_checkpoint_on_the_target_too(source: Path, target: str):
    before = SqliteStore(source)
    await before.start()
    await one(before, AddKey(NOW, new_key("last"), entry_of("key.create", "last")))
    pages = await before.list_audit_pages(BEFORE_ALL, 100)
    await one(before, PruneAudit(NOW, pages[-2].chain, pages[-2].link, pages[-2].hash))
    heads = (await verified(before)).heads
    await before.stop()
    await promotion(source, target).run()
    store = patient_store(target)
    await store.start()
    try:
        found = await verified(store, heads)
        assert (found.broken, found.heads) == (None, heads)
        assert [page.link for page in await store.list_audit_pages(BEFORE_ALL, 100)] == [pages[-1].link]
    finally:
        await store.stop()


async def test_the_source_has_rows_in_every_table(source: Path):
    """Otherwise the test above would compare too little."""
    for table in ("jobs", "timers", "executions", "attempts", "chains", "skips", "counters", "idempotency_keys",
                  "nodes", "api_keys", "limits", "audit", "audit_links"):  # fmt: skip
        assert rows_of(source, f"SELECT 1 FROM {table} LIMIT 1"), table
    states = {state for (state,) in rows_of(source, "SELECT DISTINCT state FROM executions")}
    assert states >= {"QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "CANCELLED"}
    statuses = {status for (status,) in rows_of(source, "SELECT DISTINCT status FROM timers")}
    assert statuses == {"PENDING", "PAUSED", "CANCELLED", "COMPLETED"}
    assert rows_of(source, "SELECT is_done FROM chains ORDER BY key") == [(1,), (0,)]
    assert rows_of(source, "SELECT 1 FROM executions WHERE held = 1")
    assert rows_of(source, "SELECT 1 FROM executions WHERE dead = 1")
    assert len(rows_of(source, f"SELECT DISTINCT scheduled_at / {DAY} FROM executions")) > 1


async def test_no_column_of_either_schema_is_forgotten(source: Path, target: str):
    """A migration that adds a column must add it here, too."""
    left_behind = {
        "counters": "counted again",
        "shard_epochs": "not valid without their owner",
        "promotion": "the mark itself",
    }
    left_behind |= {"circuits": "counted again on the target", "workers": "they join again"}
    left_behind |= {"circuit_changes": "as circuits are", "job_totals": "counted again"}
    left_behind |= {"statistics_rolled": "set by the next roll-up", "node_reports": "written anew every two seconds"}
    for (table,) in rows_of(source, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        columns = {name for (name,) in rows_of(source, f"SELECT name FROM pragma_table_info('{table}')")}
        assert table in left_behind or columns == set({**WANTED, "nodes": NODES}[table]), table
    load = Load(target)
    written = {table: set(columns) for name in WANTED for table, columns, _ in load.convert(name, [])}
    written |= {"nodes": set(NODES), "counters": {"tenant", "name", "day", "slot", "value"}}
    await promotion(source, target).run()
    sql = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND table_schema = current_schema()"
    async with connected(target) as connection:
        for table, columns in written.items():
            numbered = {"number"} if table == "audit" else set()  # numbered again, in the same order
            assert {row[0] for row in await connection.fetch(sql, table)} - numbered == columns, table


async def test_data_that_only_the_node_reads_is_equal(source: Path, target: str):
    timers = "job, shard, due_at, resume_at, version, fired, recurs, status, busy_ms, last_run_at"
    before = rows_of(source, f"SELECT {timers} FROM timers ORDER BY job")
    opened = "id, attempt, token, held, cancel_requested, priority, endpoint, extra, due_at"
    waiting = rows_of(
        source, f"SELECT {opened} FROM executions WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING') ORDER BY 1"
    )
    await promotion(source, target).run()
    async with connected(target) as connection:
        after = [
            (row[0].bytes, *row[1:]) for row in await connection.fetch(f"SELECT {timers} FROM timers ORDER BY job")
        ]
        sql = f"SELECT {opened.replace('id', 'execution', 1)} FROM open_runs ORDER BY 1"
        moved = [(row[0].bytes, *row[1:]) for row in await connection.fetch(sql)]
    assert after == before
    assert moved == waiting
    assert waiting


async def test_the_comparison_is_printed_and_the_bar_counts_all_rows(source: Path, target: str):
    person = Silent()
    outcome = await promotion(source, target, person).run()
    assert person.asked == []
    assert person.rows == person.done > 0
    assert all(check.source == check.target for check in outcome.checks)
    compared = {check.what: check.source for check in outcome.checks}
    (jobs,) = rows_of(source, "SELECT count(*) FROM jobs")
    assert (compared["jobs"], compared["counter jobs"], compared["executions RUNNING"]) == (*jobs, *jobs, 2)
    assert {
        "checksum of timers",
        "checksum of executions",
        "earliest due 5",
        "skips",
        "attempts",
        "nodes",
    } <= compared.keys()
    assert all(isinstance(check, Check) for check in outcome.checks)


async def test_history_is_in_the_partitions_of_its_days(source: Path, target: str):
    days = rows_of(source, f"SELECT DISTINCT scheduled_at / {DAY} FROM executions ORDER BY 1")
    await promotion(source, target).run()
    async with connected(target) as connection:
        assert await list_days(connection) == [day for (day,) in days]
        assert await connection.fetchval("SELECT count(*) FROM executions_rest") == 0


async def test_nodes_of_the_target_keep_their_ids_and_those_of_the_source_get_new_ones(source: Path, target: str):
    store = patient_store(target)
    await store.start()
    there = [int(await one(store, StartNode(NOW, f"there-{n}"))) for n in range(3)]
    await store.stop()
    await promotion(source, target).run()
    async with connected(target) as connection:
        rows = await connection.fetch("SELECT id, name, ended_at IS NULL FROM nodes ORDER BY id")
        of_runs = await connection.fetch("SELECT DISTINCT n.name FROM open_runs AS o JOIN nodes AS n ON n.id = o.node")
    assert [row[0] for row in rows[:3]] == there
    assert [(name, alive) for _, name, alive in rows[3:]] == [("earlier", False), ("node-1", False)]
    assert [tuple(row) for row in of_runs] == [("node-1",)]


async def test_unfinished_executions_run_once_and_running_ones_are_taken_over(source: Path, target: str):
    unfinished = rows_of(source, "SELECT count(*) FROM executions WHERE state IN ('QUEUED', 'RUNNING', 'RETRYING')")[0][
        0
    ]
    await promotion(source, target).run()
    store, executor, clock = patient_store(target), ScriptedExecutor(), HandClock(NOW + 10 * 60_000)
    registry = MemoryRegistry(clock)  # the database's clock is not the clock of the test
    engine = Engine(store, registry, LocalBus(), executor, clock, EventHub(), EngineSettings(node_name="new"))
    await store.start()
    await registry.start()
    opened = {e.execution_id: e for s in (State.QUEUED, State.RUNNING, State.RETRYING)
              for e in await store.list_executions(ExecutionQuery(TENANT, state=s, limit=100))}  # fmt: skip
    assert len(opened) == unfinished
    await engine.start()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all([await _is_done(store, id) for id in opened]):
                clock.advance(0.2)
                await asyncio.sleep(0.02)
        for id, before in opened.items():
            after = await store.get_execution(TENANT, id)
            assert after is not None
            assert after.attempt == before.attempt + 1
            assert after.token == before.token + 1
        ran = [attempt.claim.execution_id for attempt in executor.attempts]
        assert len(ran) == len(set(ran)), "an execution ran twice"
        assert set(opened) <= set(ran)
    finally:
        await engine.stop()
        await registry.stop()
        await store.stop()


async def _is_done(store: PostgresStore, execution_id: str) -> bool:
    found = await store.get_execution(TENANT, execution_id)
    return found is not None and found.state is State.COMPLETED


async def test_the_new_owner_is_not_fenced_by_the_old_epochs(source: Path, target: str):
    """An epoch of SQLite is a node's id. The epochs of the target's registry begin at 1, and must not look stale."""
    await promotion(source, target).run()
    async with connected(target) as connection:
        assert await connection.fetchval("SELECT count(*) FROM shard_epochs") == 0
    assert SHARDS == 64


async def test_an_empty_node_can_be_promoted(tmp_path: Path, target: str):
    store = SqliteStore(tmp_path)
    await store.start()
    await store.stop()
    outcome = await promotion(tmp_path, target).run()
    assert all(check.source == check.target for check in outcome.checks)
