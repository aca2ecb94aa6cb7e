"""Dead letters: found by filter, redriven at a pace, and the timetable does not wait for those that wait."""

from __future__ import annotations

from typing import Any

import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import Overlap, RetryPolicy
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import ExecutionQuery, Store
from samples import (
    NOW,
    TENANT,
    add_job,
    claim_waiting,
    ended,
    execution,
    executions_of,
    finish,
    fire,
    new_id,
    one,
    spec,
)
from snapshot import recount, totals

LATER = NOW + HOUR
GONE = Outcome(ErrorType.HTTP_ERROR, "the target answered 404", 404)


async def dead(store: Store, node: int, outcome: Outcome = GONE, **fields: Any) -> str:
    """A dead letter of a new job."""
    owner = fields.pop("owner", "ann")
    job = spec("immediate", retry_policy=RetryPolicy(max_retries=0), **fields)
    job_id = await add_job(store, job, owner=owner)
    _, (claim,) = await fire(store, node, NOW, job_id)
    await finish(store, node, NOW, ended(claim, outcome))
    return claim.execution_id


def fresh(*dead_ids: str, at: int = LATER) -> tuple[tuple[str, str], ...]:
    return tuple((dead_id, new_id(at)) for dead_id in dead_ids)


async def due_ats(store: Store, pairs: Any) -> list[int]:
    return [(await execution(store, new)).due_at - LATER for _, new in pairs]


# At a pace


async def test_dead_letters_redriven_at_a_pace_are_due_one_after_the_other_in_the_given_order(store: Store, node: int):
    letters = [await dead(store, node) for _ in range(5)]
    pairs = fresh(*letters[::-1])
    assert await one(store, c.Redrive(LATER, TENANT, pairs, per_second=2.5)) == list(pairs)
    assert await due_ats(store, pairs) == [0, 400, 800, 1200, 1600]
    assert {(await execution(store, new)).scheduled_at for _, new in pairs} == {LATER}
    assert await totals(store) == await recount(store)


async def test_the_pace_continues_across_the_pages_of_one_request(store: Store, node: int):
    letters = [await dead(store, node) for _ in range(4)]
    first, second = fresh(*letters[:2]), fresh(*letters[2:])
    await one(store, c.Redrive(LATER, TENANT, first, per_second=1))
    await one(store, c.Redrive(LATER, TENANT, second, per_second=1, driven=2))
    assert await due_ats(store, first + second) == [0, SECOND, 2 * SECOND, 3 * SECOND]


async def test_executions_that_are_not_redriven_take_no_turn(store: Store, node: int):
    letters = [await dead(store, node), new_id(), await dead(store, node)]
    pairs = fresh(*letters)
    assert await one(store, c.Redrive(LATER, TENANT, pairs, per_second=1)) == [pairs[0], pairs[2]]
    assert await due_ats(store, (pairs[0], pairs[2])) == [0, SECOND]


async def test_several_dead_letters_of_one_job_are_redriven_together(store: Store, node: int):
    job_id = await add_job(store, spec("every 1m", retry_policy=RetryPolicy(max_retries=0), overlap=Overlap.ALLOW))
    letters = []
    for minute in (1, 2, 3):
        _, (claim,) = await fire(store, node, NOW + minute * MINUTE, job_id)
        await finish(store, node, NOW + minute * MINUTE, ended(claim, GONE))
        letters.append(claim.execution_id)
    assert await one(store, c.Redrive(LATER, TENANT, (first := fresh(*letters[:2])))) == list(first)
    assert await one(store, c.Redrive(LATER, TENANT, (rest := fresh(letters[2])))) == list(rest)  # in the same ms
    assert len(await claim_waiting(store, node, LATER)) == 3


async def test_no_node_claims_a_redriven_execution_before_its_turn(store: Store, node: int):
    letters = [await dead(store, node) for _ in range(3)]
    pairs = fresh(*letters)
    await one(store, c.Redrive(LATER, TENANT, pairs, per_second=1))
    other = int(await one(store, c.StartNode(LATER, "node-2")))
    claimed = []
    for at in (LATER, LATER + 999, LATER + SECOND, LATER + 2 * SECOND):
        for who in (node, other):
            claimed.append([claim.execution_id for claim in await claim_waiting(store, who, at)])
    new = [new for _, new in pairs]
    assert claimed == [[new[0]], [], [], [], [new[1]], [], [new[2]], []]


async def test_the_pace_survives_a_restart(make_store: MakeStore):
    store = make_store()
    await store.start()
    node = int(await one(store, c.StartNode(NOW, "node-1")))
    pairs = fresh(await dead(store, node), await dead(store, node))
    await one(store, c.Redrive(LATER, TENANT, pairs, per_second=0.1))
    await store.stop()
    again = make_store()
    await again.start()
    try:
        successor = int(await one(again, c.StartNode(LATER, "node-1")))
        assert [claim.execution_id for claim in await claim_waiting(again, successor, LATER + 9 * SECOND)] == [
            pairs[0][1]
        ]
        assert await again.next_waiting_at() == LATER + 10 * SECOND
        assert [claim.execution_id for claim in await claim_waiting(again, successor, LATER + 10 * SECOND)] == [
            pairs[1][1]
        ]
    finally:
        await again.stop()


async def test_a_redriven_execution_that_is_cancelled_before_its_turn_never_runs(store: Store, node: int):
    pairs = fresh(await dead(store, node), await dead(store, node))
    await one(store, c.Redrive(LATER, TENANT, pairs, per_second=0.1))
    assert await one(store, c.CancelExecution(LATER, TENANT, pairs[1][1])) is State.CANCELLED
    assert [claim.execution_id for claim in await claim_waiting(store, node, LATER + MINUTE)] == [pairs[0][1]]
    assert await totals(store) == await recount(store)


async def test_the_next_waiting_execution_of_a_job_is_returned(store: Store, node: int):
    letter = await dead(store, node)
    job_id = (await execution(store, letter)).job_id
    assert await store.next_waiting_of(job_id) is None
    await one(store, c.Redrive(LATER, TENANT, fresh(letter), per_second=1, driven=7))
    assert await store.next_waiting_of(job_id) == LATER + 7 * SECOND
    await claim_waiting(store, node, LATER + MINUTE)
    assert await store.next_waiting_of(job_id) is None


# Next to the timetable


async def failed_hourly(store: Store, node: int, overlap: Overlap) -> tuple[str, str]:
    """A job that runs every minute. Its first execution failed and is redriven, to run in an hour."""
    job_id = await add_job(store, spec("every 1m", overlap=overlap, retry_policy=RetryPolicy(max_retries=0)))
    at = NOW + MINUTE
    _, (claim,) = await fire(store, node, at, job_id)
    await finish(store, node, at, ended(claim, GONE, now=at))
    pairs = fresh(claim.execution_id, at=at)
    assert await one(store, c.Redrive(at, TENANT, pairs, per_second=1, driven=3600)) == list(pairs)
    return job_id, pairs[0][1]


@pytest.mark.parametrize("overlap", Overlap)
async def test_the_timetable_continues_while_a_redriven_execution_waits_for_its_turn(
    store: Store, node: int, overlap: Overlap
):
    job_id, waiting = await failed_hourly(store, node, overlap)
    _, (claim,) = await fire(store, node, NOW + 2 * MINUTE, job_id)
    assert claim.scheduled_at == NOW + 2 * MINUTE
    assert (await execution(store, waiting)).state is State.QUEUED


async def test_a_newer_execution_that_replaces_the_running_one_does_not_cancel_a_redriven_one(store: Store, node: int):
    job_id, waiting = await failed_hourly(store, node, Overlap.CANCEL_RUNNING)
    _, (claim,) = await fire(store, node, NOW + 2 * MINUTE, job_id)
    fired, _ = await fire(store, node, NOW + 3 * MINUTE, job_id)
    assert fired.to_cancel == (claim.execution_id,)
    assert (await execution(store, waiting)).state is State.QUEUED


async def test_a_held_execution_does_not_wait_for_a_redriven_one(store: Store, node: int):
    job_id, waiting = await failed_hourly(store, node, Overlap.QUEUE_ALL)
    _, (claim,) = await fire(store, node, NOW + 2 * MINUTE, job_id)
    await fire(store, node, NOW + 3 * MINUTE, job_id)
    assert [found.held for found in await executions_of(store, job_id)].count(True) == 1
    await finish(store, node, NOW + 3 * MINUTE, ended(claim, now=NOW + 3 * MINUTE))
    (released,) = await claim_waiting(store, node, NOW + 3 * MINUTE)
    assert released.scheduled_at == NOW + 3 * MINUTE
    assert (await execution(store, waiting)).state is State.QUEUED


async def test_a_running_redriven_execution_counts_as_open_for_the_timetable(store: Store, node: int):
    job_id, waiting = await failed_hourly(store, node, Overlap.SKIP)
    (claim,) = await claim_waiting(store, node, LATER + MINUTE)
    assert (claim.execution_id, claim.trigger) == (waiting, Trigger.RETRY)
    _, claims = await fire(store, node, LATER + MINUTE, job_id)
    assert claims == []


async def test_lateness_excludes_the_wait_for_a_turn(store: Store, node: int):
    job_id, _ = await failed_hourly(store, node, Overlap.SKIP)
    before = await store.list_lateness(job_id, 10)
    (claim,) = await claim_waiting(store, node, LATER + MINUTE)
    await finish(store, node, LATER + MINUTE, ended(claim, now=LATER + MINUTE))
    assert await store.list_lateness(job_id, 10) == before


# By filter


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "abcd"),
        ({"error_type": ErrorType.HTTP_ERROR}, "abc"),
        ({"error_type": ErrorType.TIMEOUT}, "d"),
        ({"error_type": ErrorType.DNS_ERROR}, ""),
        ({"http_status": (503, 504)}, "b"),
        ({"http_status": (500, 600)}, "bc"),
        ({"http_status": (500, 503)}, "c"),
        ({"error_type": ErrorType.TIMEOUT, "http_status": (500, 600)}, ""),
        ({"owner": "bob"}, "c"),
        ({"owner": "bob", "http_status": (503, 504)}, ""),
        ({"runnable": True}, "bcd"),
        ({"tenant": "globex"}, ""),
        ({"tenant": "globex", "error_type": ErrorType.HTTP_ERROR}, ""),
    ],
)
async def test_dead_letters_are_found_by_the_outcome_of_the_last_attempt(
    store: Store, node: int, filters: dict[str, Any], expected: str
):
    letters = {
        "a": await dead(store, node),
        "b": await dead(store, node, Outcome(ErrorType.HTTP_ERROR, "busy", 503)),
        "c": await dead(store, node, Outcome(ErrorType.HTTP_ERROR, "oops", 500), owner="bob"),
        "d": await dead(store, node, Outcome(ErrorType.TIMEOUT, "slow")),
    }
    await one(store, c.CancelJob(NOW, TENANT, (await execution(store, letters["a"])).job_id))
    query = ExecutionQuery(**{"tenant": TENANT, "dead": True} | filters)
    found = {record.execution_id for record in await store.list_executions(query)}
    assert found == {letters[name] for name in expected}
    assert await store.count_executions(query) == len(expected)


async def test_the_filter_uses_the_last_attempt_of_open_executions_too(store: Store, node: int):
    job_id = await add_job(store, spec("immediate", retry_policy=RetryPolicy(delays=(1,))))
    _, (claim,) = await fire(store, node, NOW, job_id)
    await finish(store, node, NOW, ended(claim, Outcome(ErrorType.HTTP_ERROR, "busy", 503)))

    async def count(status: int) -> int:
        return await store.count_executions(ExecutionQuery(TENANT, http_status=(status, status + 1)))

    assert (await count(503), await count(404)) == (1, 0)
    (again,) = await claim_waiting(store, node, NOW + SECOND)
    await finish(store, node, NOW + SECOND, ended(again, GONE, now=NOW + SECOND))
    assert (await count(503), await count(404)) == (0, 1)
