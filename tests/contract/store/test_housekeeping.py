"""Retention and health."""

from __future__ import annotations

from contract.store.conftest import Raw
from duetime.domain import commands as c
from duetime.domain.capacity import Load
from duetime.domain.errors import StaleWrite
from duetime.domain.instants import DAY, HOUR, MINUTE
from duetime.domain.plan import Skipped, TimerMove
from duetime.domain.states import State
from duetime.ports.store import ExecutionQuery, ExecutionRecord, Store
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    execution,
    executions_of,
    finish,
    new_job,
    new_key,
    one,
)
from snapshot import recount, snapshot, totals


async def ended_executions(store: Store, node: int, count: int, at: int = NOW, tenant: str = TENANT) -> list[str]:
    """Ended executions that were scheduled from `at` on, a minute apart. Oldest first."""
    job_id = await add_job(store, tenant=tenant)
    for n in range(count):
        await add_execution(store, job_id, at + n * MINUTE, tenant)
    claims = await claim_waiting(store, node, at + DAY, limit=count)
    assert await finish(store, node, at + DAY, *map(ended, claims)) == []
    return [claim.execution_id for claim in claims]


async def executions_left(store: Store) -> list[ExecutionRecord]:
    return await store.list_executions(ExecutionQuery(TENANT))


async def test_only_executions_scheduled_before_the_limit_are_pruned(store: Store, node: int):
    ids = await ended_executions(store, node, 4)
    assert await one(store, c.Prune(NOW + 2 * MINUTE, 0, 0, 100)) == 2
    left = [execution_id for execution_id in ids if await store.get_execution(TENANT, execution_id)]
    assert left == ids[2:]
    assert await store.list_attempts(ids[0]) == []
    assert len(await store.list_attempts(ids[2])) == 1
    assert await totals(store) == await recount(store)


async def test_the_oldest_executions_are_pruned_first_a_page_at_a_time(store: Store, node: int):
    ids = await ended_executions(store, node, 5)
    assert await one(store, c.Prune(NOW + DAY, 0, 0, 2)) == 2
    assert [e for e in ids if await store.get_execution(TENANT, e)] == ids[2:]
    assert [await one(store, c.Prune(NOW + DAY, 0, 0, 2)) for _ in range(3)] == [2, 1, 0]


async def test_executions_beyond_the_age_limit_are_pruned_and_younger_ones_stay(store: Store, node: int):
    old = await ended_executions(store, node, 5, NOW - 2 * DAY)
    yesterday = await ended_executions(store, node, 5, NOW - HOUR)
    young = await ended_executions(store, node, 5, NOW + HOUR)
    removed = 0
    while count := await one(store, c.Prune(NOW, NOW, 0, 4)):
        removed += count
    assert removed == 10
    for execution_id in old + yesterday:
        assert await store.get_execution(TENANT, execution_id) is None
        assert await store.list_attempts(execution_id) == []
    assert [await store.get_execution(TENANT, execution_id) is not None for execution_id in young] == [True] * 5
    assert await totals(store) == await recount(store)
    assert await store.count_history() == 5


async def test_open_executions_are_never_pruned(store: Store, node: int):
    job_id = await add_job(store)
    for n in range(2):
        await add_execution(store, job_id, NOW + n)
    (running,) = await claim_waiting(store, node, NOW, limit=1)
    assert await one(store, c.Prune(NOW + DAY, NOW + DAY, 0, 100)) == 0
    assert {e.state for e in await executions_of(store, job_id)} == {State.RUNNING, State.QUEUED}
    assert (await execution(store, running.execution_id)).state is State.RUNNING


async def test_the_history_of_every_tenant_is_pruned_and_counted(store: Store, node: int):
    await ended_executions(store, node, 3)
    await ended_executions(store, node, 2, tenant="other")
    assert await store.count_history() == 5
    assert await one(store, c.Prune(NOW + DAY, NOW + DAY, 0, 100)) == 5
    assert await store.count_history() == 0
    assert await totals(store, "other") == await recount(store, "other")


async def test_old_idempotency_keys_are_removed_and_younger_ones_stay(store: Store):
    for n in range(3):
        record = c.IdempotencyRecord(TENANT, f"k{n}", "f", "answer")
        await one(store, c.CreateJobs(NOW + n * HOUR, (new_job(),), record))
    await one(store, c.Prune(0, 0, NOW + HOUR, 100))
    found = [await store.get_response(TENANT, f"k{n}") for n in range(3)]
    assert found == [None, ("f", "answer"), ("f", "answer")]


async def test_old_entries_of_the_ledger_are_removed(store: Store, node: int):
    job_id = await add_job(store)
    due_at = NOW + MINUTE
    for n in range(3):
        at = due_at + n * HOUR
        skip = Skipped(job_id, TENANT, at, at + MINUTE, 1, "missed")
        move = TimerMove(job_id, at, 1, at + HOUR, 0)
        await one(store, c.Fire(node, at, True, (move,), (), (skip,)))
    await one(store, c.Prune(due_at + 2 * HOUR, due_at + 2 * HOUR, 0, 100))
    assert [skip.first_at for skip in await store.list_skipped(job_id, 10)] == [due_at + 2 * HOUR]


async def test_nodes_that_ended_long_ago_are_removed_and_living_ones_stay(store: Store, node: int, raw: Raw):
    ended, lately = [await one(store, c.StartNode(NOW, name)) for name in ("ended", "lately")]
    worker = await one(store, c.JoinWorker(NOW, TENANT, "ann", "worker", ("report",), 4))
    await one(store, c.FenceNodes(NOW + HOUR, (ended, worker)))
    await one(store, c.StopNode(NOW + 2 * HOUR, lately))
    prune = c.Prune(0, 0, 0, 1, nodes_before=NOW + 2 * HOUR)
    assert [await one(store, prune) for _ in range(3)] == [1, 1, 0]
    assert await raw("SELECT id FROM nodes ORDER BY id") == [(node,), (lately,)]
    assert await one(store, c.StartNode(NOW + DAY, "next")) > worker, "an id is never given again"


async def test_the_row_of_a_node_stays_as_long_as_history_can_name_it(store: Store, node: int):
    (execution_id, *_) = await ended_executions(store, node, 3)
    await one(store, c.StopNode(NOW + DAY, node))
    assert (await execution(store, execution_id)).worker_id == "node-1"
    prune = c.Prune(NOW + 2 * DAY, 0, 0, 2, nodes_before=NOW + 2 * DAY)
    answers = [await one(store, prune)]
    assert [left.worker_id for left in await executions_left(store)] == ["node-1"]
    answers += [await one(store, prune), await one(store, prune)]
    assert answers == [2, 1, 0]


async def test_executions_of_a_node_whose_row_was_removed_are_taken_over(store: Store, node: int):
    """A missing row means the same as an ended one: writes of this node are refused."""
    lost = await one(store, c.StartNode(NOW, "lost"))
    await add_execution(store, await add_job(store), NOW)
    (claim,) = await claim_waiting(store, lost, NOW, limit=1)
    await one(store, c.FenceNodes(NOW, (lost,)))
    assert await one(store, c.Prune(0, 0, 0, 100, nodes_before=NOW + DAY)) == 1
    assert [found.execution_id for found in await store.list_expired_claims(node, 10)] == [claim.execution_id]
    assert isinstance(await one(store, c.ClaimExecutions(lost, NOW, 1, (TENANT,))), StaleWrite)


async def test_api_keys_that_were_revoked_or_expired_long_ago_are_removed(store: Store):
    ends = {"revoked": None, "expired": NOW + HOUR, "both": NOW + 9 * DAY, "soon": NOW + 5 * DAY, "for ever": None}
    for name, expires_at in ends.items():
        await one(store, c.AddKey(NOW, new_key(name, expires_at=expires_at)))
    for name in ("revoked", "both"):
        await one(store, c.RevokeKey(NOW + HOUR, TENANT, name))
    assert await one(store, c.Prune(0, 0, 0, 100, revoked_before=NOW + HOUR)) == 0
    prune = c.Prune(0, 0, 0, 2, revoked_before=NOW + HOUR + 1)
    assert [await one(store, prune) for _ in range(3)] == [2, 1, 0]
    assert {key.key_id for key in await store.list_keys(TENANT, 10)} == {"soon", "for ever"}


async def test_a_full_page_reports_that_there_may_be_more(store: Store):
    """Otherwise data that arrives faster than a page a minute would grow for ever."""
    for n in range(5):
        record = c.IdempotencyRecord(TENANT, f"k{n}", "f", "answer")
        await one(store, c.CreateJobs(NOW, (new_job(),), record))
    assert [await one(store, c.Prune(0, 0, NOW + 1, 2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_pruning_nothing_changes_nothing(store: Store, node: int):
    await ended_executions(store, node, 2)
    before = await snapshot(store)
    assert await one(store, c.Prune(0, 0, 0, 100)) == 0
    assert await snapshot(store) == before


async def test_a_store_that_reads_and_writes_is_healthy(store: Store):
    assert await store.check() is None
    await add_job(store)
    assert await store.check() is None


async def test_an_empty_store_returns_a_result_for_every_read(store: Store):
    assert await snapshot(store) == {
        "due": [],
        "next_due_at": None,
        "next_waiting_at": None,
        "load": Load(0, 0),
        TENANT: {
            "jobs": [],
            "executions": [],
            "attempts": {},
            "skipped": {},
            "links": {},
            "totals": dict.fromkeys([*State, "all", "jobs"], 0),
            "keys": [],
            "audit": [],
        },
    }
    assert await store.count_history() == 0


async def test_the_newest_instant_is_that_of_a_node_start_or_an_execution(store: Store):
    assert await store.newest_at() is None
    await one(store, c.StartNode(NOW, "node-1"))
    assert await store.newest_at() == NOW
    job_id = await add_job(store)
    await add_execution(store, job_id, NOW - 5)
    assert await store.newest_at() == NOW
    await add_execution(store, job_id, NOW + 5)
    assert await store.newest_at() == NOW + 5
    await one(store, c.StopNode(NOW + 9, 1))
    assert await store.newest_at() == NOW + 5
