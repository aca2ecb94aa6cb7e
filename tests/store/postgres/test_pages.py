"""Pages of fires and finishes: the fast path of nearly all pages, and the slow path of those with a stale row."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import MINUTE
from duetime.domain.job import JobStatus, RetryPolicy
from duetime.domain.states import ErrorType, State
from duetime.store.blocks import COMMANDS
from duetime.store.postgres import PostgresStore
from duetime.store.postgres.apply import Applier
from duetime.store.postgres.blocks import load_blocks
from duetime.store.postgres.columns import columns
from duetime.store.postgres.connections import PLANS, Address
from duetime.store.postgres.schema import migrate
from samples import (
    NOW,
    add_job,
    decide,
    due_timers,
    ended,
    execution,
    executions_of,
    finish,
    fire,
    job_of,
    new_job,
    one,
    spec,
)
from snapshot import recount, totals
from store.postgres_server import connected, fresh_database

DUE = NOW + MINUTE
FAILED = Outcome(ErrorType.HTTP_ERROR, "no", http_status=503)
PLAIN = ("fire_timers", "fire_executions", "finish_timers", "end_executions", "retry_executions", "list_decided")


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> list[type[c.Command]]:
    """The commands that took the slow path."""
    seen: list[type[c.Command]] = []
    slow_path = Applier._on_slow_path

    async def noted(self: Applier, command: c.Command, to_undo: str) -> Any:
        seen.append(type(command))
        return await slow_path(self, command, to_undo)

    monkeypatch.setattr(Applier, "_on_slow_path", noted)
    return seen


def test_a_column_with_the_same_value_in_all_rows_is_sent_once():
    assert columns(a=[1, 1], b=[None, None], c=[None, 1]) == {
        "a": None, "same_a": 1, "b": None, "same_b": None, "c": [None, 1], "same_c": None,
    }  # fmt: skip


async def test_a_page_of_ends_and_retries_is_written_on_the_fast_path(
    store: PostgresStore, node: int, careful: list[Any]
):
    jobs = [await add_job(store, spec(retry_policy=RetryPolicy(max_retries=n - 1))) for n in (1, 2, 3, 1)]
    _, claims = await fire(store, node, DUE)
    by_job = {claim.job_id: claim for claim in claims}
    last, again, later, good = (by_job[job_id] for job_id in jobs)
    results = [ended(last, FAILED, now=DUE), ended(again, FAILED, now=DUE + 1), ended(later, FAILED, now=DUE + 2)]
    assert await finish(store, node, DUE, *results, ended(good, now=DUE + 3)) == []
    assert careful == []
    states = [(await execution(store, claim.execution_id)).state for claim in (last, again, later, good)]
    assert states == [State.FAILED, State.RETRYING, State.RETRYING, State.COMPLETED]
    found = [await job_of(store, job_id) for job_id in jobs]
    counts = [(job.runs, job.successes, job.failures, job.last_run_at) for job in found]
    assert counts == [(1, 0, 1, DUE), (0, 0, 0, None), (0, 0, 0, None), (1, 1, 0, DUE + 3)]
    assert await totals(store) == await recount(store)


@pytest.mark.parametrize("beside", [False, True])
async def test_a_page_with_a_stale_result_writes_the_others(
    store: PostgresStore, node: int, careful: list[Any], beside: bool
):
    for _ in range(3):
        await add_job(store, spec("immediate"))
    _, claims = await fire(store, node, NOW)
    stale = msgspec.structs.replace(ended(claims[1]), token=7)
    command = c.Finish(node, NOW, (ended(claims[0]), stale, ended(claims[2])))
    if beside:  # not alone in its commit: only its own writes are undone
        made = new_job()
        assert await store.apply([c.CreateJobs(NOW, (made,)), command]) == [None, [stale.execution_id]]
        assert (await job_of(store, made.job_id)).status is JobStatus.PENDING
    else:
        assert await one(store, command) == [stale.execution_id]
    assert careful == [c.Finish]
    found = {claim.job_id: await job_of(store, claim.job_id) for claim in claims}
    assert [(found[claim.job_id].status, found[claim.job_id].runs) for claim in claims] == [
        (JobStatus.COMPLETED, 1), (JobStatus.PENDING, 0), (JobStatus.COMPLETED, 1),
    ]  # fmt: skip
    assert await totals(store) == await recount(store)


@pytest.mark.parametrize("outcome", [Outcome(), FAILED])
async def test_a_result_of_an_execution_that_does_not_run_is_refused_without_its_attempt_in_history(
    store: PostgresStore, node: int, session: asyncpg.Connection, outcome: Outcome
):
    """The primary key of `attempts` refuses it as well. But the fence is in `open_runs`: history may be pruned."""
    await add_job(store, spec("immediate", retry_policy=RetryPolicy(max_retries=3)))
    _, (claim,) = await fire(store, node, NOW)
    await finish(store, node, NOW, ended(claim, FAILED))
    await session.execute("DELETE FROM attempts")
    assert await finish(store, node, DUE, ended(claim, outcome)) == [claim.execution_id]
    assert (await execution(store, claim.execution_id)).state is State.RETRYING
    assert await totals(store) == await recount(store)


async def test_a_page_with_a_decided_instant_fires_the_others(
    store: PostgresStore, node: int, session: asyncpg.Connection, careful: list[Any]
):
    first, second = [await add_job(store, spec(overlap="allow")) for _ in range(2)]
    await fire(store, node, DUE)
    # The timer of the first is at its old instant: as after a restore of timers alone.
    await session.execute("UPDATE timers SET due_at = $1 WHERE job = $2", DUE, first)
    page = decide(await due_timers(store, DUE + MINUTE), DUE)
    again = [msgspec.structs.replace(new, execution_id=new.execution_id[:-4] + "ffff") for new in page.executions]
    moves = tuple(move for move in page.moves if move.job_id == first)
    fired = await one(store, c.Fire(node, DUE, True, moves, tuple(new for new in again if new.job_id == first)))
    assert careful == [c.Fire]
    assert fired.stale_jobs == frozenset()
    assert [(await job_of(store, job_id)).fired for job_id in (first, second)] == [1, 1]
    assert await totals(store) == await recount(store)


async def test_an_instant_that_is_twice_in_a_page_is_fired_once(store: PostgresStore, node: int, careful: list[Any]):
    job_id = await add_job(store, spec(overlap="allow"))
    page = decide(await due_timers(store, DUE), DUE)
    (new,) = page.executions
    twin = msgspec.structs.replace(new, execution_id=new.execution_id[:-4] + "ffff")
    fired = await one(store, c.Fire(node, DUE, True, tuple(page.moves), (new, twin)))
    assert isinstance(fired, c.Fired), fired
    assert careful == [c.Fire]
    assert [found.execution_id for found in await executions_of(store, job_id)] == [new.execution_id]
    assert await totals(store) == await recount(store)


async def test_an_execution_without_its_timer_is_refused(
    store: PostgresStore, node: int, session: asyncpg.Connection, careful: list[Any]
):
    job_id = await add_job(store)
    _, (claim,) = await fire(store, node, DUE)
    await session.execute("DELETE FROM timers WHERE job = $1", job_id)
    assert await finish(store, node, DUE, ended(claim, now=DUE)) == [claim.execution_id]
    assert careful == [c.Finish]


async def test_a_second_result_of_an_attempt_that_is_retried_is_refused(store: PostgresStore, node: int):
    await add_job(store, spec(retry_policy=RetryPolicy(max_retries=1)))
    _, (claim,) = await fire(store, node, DUE)
    assert await finish(store, node, DUE, ended(claim, FAILED, now=DUE)) == []
    assert await finish(store, node, DUE, ended(claim, now=DUE)) == [claim.execution_id]
    assert (await execution(store, claim.execution_id)).state is State.RETRYING


async def test_counts_of_a_refused_page_are_undone_before_the_slow_path(
    store: PostgresStore, node: int, careful: list[Any]
):
    other = await add_job(store, spec(overlap="allow"))
    replaced = await add_job(store, spec(overlap="cancel_running"))
    await fire(store, node, DUE)
    page = decide(await due_timers(store, DUE + MINUTE), DUE + MINUTE)
    (new,) = [new for new in page.executions if new.job_id == replaced]
    twin = msgspec.structs.replace(new, execution_id=new.execution_id[:-4] + "ffff")
    # The others are written and counted before the two with the same instant are refused.
    fired = await one(store, c.Fire(node, DUE + MINUTE, True, tuple(page.moves), (*page.executions, twin)))
    assert isinstance(fired, c.Fired), fired
    assert careful == [c.Fire]
    assert len(await executions_of(store, other)) == len(await executions_of(store, replaced)) == 2
    assert await totals(store) == await recount(store)


@pytest.mark.parametrize("block", PLAIN)
async def test_no_page_reads_a_table_to_find_its_rows(store: PostgresStore, session: asyncpg.Connection, block: str):
    """One index probe per row, with any statistics: a hash would read all waiting executions, or all history."""
    plan = await plan_of(session, block)
    assert "hashed" not in plan
    assert "Seq Scan" not in plan
    assert "Bitmap" not in plan


@pytest.mark.parametrize(
    ("block", "table", "index"),
    [
        ("fire_timers", "timers", "timers_pkey"),
        ("claim", "open_runs", "open_runs_waiting"),
        ("claim_only", "open_runs", "open_runs_waiting_at"),
        ("claim_beside", "open_runs", "open_runs_waiting_at"),
    ],
)
async def test_on_a_new_database_rows_are_found_by_their_own_index(block: str, table: str, index: str):
    """A plan is made when a node starts, and kept: the best plan for empty tables must be good for full ones."""
    async with fresh_database() as url:
        await migrate(Address(url))
        async with connected(url) as session:
            for known in ("nothing", "that all are empty"):
                if known != "nothing":
                    await session.execute("DEALLOCATE page; ANALYZE")
                plan = await plan_of(session, block)
                used = set(re.findall(rf"Scan using (\w+) on {table}\b", plan)) - {"open_runs_pkey"}  # for the update
                assert used == {index}, f"when the planner knows {known}:\n{plan}"


async def plan_of(session: asyncpg.Connection, block: str) -> str:
    """Returns the plan of a statement as a node's connections make it."""
    await session.execute("; ".join(f"SET {name} = '{value}'" for name, value in PLANS.items()))
    statement = load_blocks(*COMMANDS)[block]
    await session.execute(f"PREPARE page AS {statement.sql}")
    nulls = ", ".join("NULL" for _ in statement.names)
    return "\n".join(row[0] for row in await session.fetch(f"EXPLAIN EXECUTE page ({nulls})"))
