"""Several late instants of one job in one fire: the overlap policy applies to the open execution and among them."""

from __future__ import annotations

from collections import Counter

import pytest

from duetime.domain import commands as c
from duetime.domain import overlap
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.states import State
from duetime.ports.store import Store
from samples import (
    NOW,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    executions_of,
    finish,
    fire,
    job_of,
    spec,
)
from snapshot import recount, totals

FIRST = NOW + SECOND  # when `every 1s` is first due
LATE = FIRST + 5 * SECOND  # five more instants have passed, all within the grace
SKIPPED = (State.SKIPPED, "overlap")
HELD = (State.QUEUED, None)


def every_second(policy: str, **fields: object) -> JobSpec:
    return spec("every 1s", overlap=policy, **fields)


async def decisions(store: Store, job_id: str) -> list[tuple[State, str | None]]:
    assert await totals(store) == await recount(store)
    return [(found.state, found.reason) for found in await executions_of(store, job_id)]


async def five_beside_an_open_one(store: Store, node: int, policy: str) -> tuple[str, str, c.Fired]:
    job_id = await add_job(store, every_second(policy))
    _, (running,) = await fire(store, node, FIRST)
    fired, _ = await fire(store, node, LATE)
    return job_id, running.execution_id, fired


async def test_the_policy_skip_skips_all_instants_during_an_open_execution(store: Store, node: int):
    job_id, _, fired = await five_beside_an_open_one(store, node, "skip")
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [SKIPPED] * 5
    assert len(fired.not_claimed) == 5
    found = await job_of(store, job_id)
    assert (found.fired, found.due_at) == (1, LATE + SECOND)


async def test_the_policy_queue_one_holds_the_oldest_and_skips_the_others_during_an_open_execution(
    store: Store, node: int
):
    job_id, _, fired = await five_beside_an_open_one(store, node, "queue_one")
    assert await decisions(store, job_id) == [(State.RUNNING, None), HELD] + [SKIPPED] * 4
    assert len(fired.not_claimed) == 5
    assert (await job_of(store, job_id)).fired == 2


async def test_the_policy_queue_one_skips_all_instants_if_one_waits_already(store: Store, node: int):
    job_id = await add_job(store, every_second("queue_one"))
    await fire(store, node, FIRST)
    await fire(store, node, FIRST + SECOND)
    await fire(store, node, LATE)
    assert await decisions(store, job_id) == [(State.RUNNING, None), HELD] + [SKIPPED] * 4


async def test_the_policy_queue_all_holds_all_instants_during_an_open_execution_and_runs_them_in_order(
    store: Store, node: int
):
    job_id = await add_job(store, every_second("queue_all"))
    _, (claim,) = await fire(store, node, FIRST)
    await fire(store, node, LATE)
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [HELD] * 5
    order = [claim.scheduled_at]
    for _ in range(5):
        await finish(store, node, LATE, ended(claim, now=LATE))
        (claim,) = await claim_waiting(store, node, LATE)
        order.append(claim.scheduled_at)
    assert order == [FIRST + n * SECOND for n in range(6)]


async def test_the_policy_cancel_running_runs_the_newest_and_cancels_the_open_execution(store: Store, node: int):
    job_id, running, fired = await five_beside_an_open_one(store, node, "cancel_running")
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [SKIPPED] * 4 + [(State.RUNNING, None)]
    assert fired.to_cancel == (running,)
    assert len(fired.not_claimed) == 4
    assert (await job_of(store, job_id)).fired == 2
    await one_cancelled(store, node, running)


async def one_cancelled(store: Store, node: int, execution_id: str) -> None:
    """The store has marked this execution to stop, and no other."""
    (successor,) = await store.apply([c.StartNode(NOW, "node-1")])
    expired = await store.list_expired_claims(successor, 10)
    assert [claim.execution_id for claim in expired if claim.cancel_requested] == [execution_id]


async def test_the_policy_cancel_running_cancels_a_waiting_execution(store: Store, node: int):
    job_id = await add_job(store, every_second("cancel_running"))
    await fire(store, node, FIRST, claim=False)
    _, claims = await fire(store, node, LATE)
    assert [claim.scheduled_at for claim in claims] == [LATE]
    assert await decisions(store, job_id) == (
        [(State.CANCELLED, "replaced by a newer run")] + [SKIPPED] * 4 + [(State.RUNNING, None)]
    )


@pytest.mark.parametrize("policy", ["skip", "queue_one", "queue_all"])
async def test_instants_without_an_open_execution_run_one_after_the_other(store: Store, node: int, policy: str):
    job_id = await add_job(store, every_second(policy))
    _, (claim,) = await fire(store, node, LATE)
    assert claim.scheduled_at == FIRST
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [HELD] * 5
    assert (await job_of(store, job_id)).fired == 6


async def test_the_policy_cancel_running_runs_only_the_newest_without_an_open_execution(store: Store, node: int):
    job_id = await add_job(store, every_second("cancel_running"))
    fired, (claim,) = await fire(store, node, LATE)
    assert claim.scheduled_at == LATE
    assert fired.to_cancel == ()
    assert await decisions(store, job_id) == [SKIPPED] * 5 + [(State.RUNNING, None)]
    assert (await job_of(store, job_id)).fired == 1


async def test_the_policy_allow_runs_all_instants(store: Store, node: int):
    job_id, _, fired = await five_beside_an_open_one(store, node, "allow")
    assert fired == c.Fired()
    assert await decisions(store, job_id) == [(State.RUNNING, None)] * 6


async def test_each_job_of_a_page_is_decided_separately(store: Store, node: int):
    busy = await add_job(store, every_second("skip"))
    await fire(store, node, FIRST)
    free = await add_job(store, every_second("skip"))
    other = await add_job(store, spec("every 1s", overlap="queue_one"))
    _, claims = await fire(store, node, LATE)
    assert {claim.job_id: claim.scheduled_at for claim in claims} == {free: FIRST, other: FIRST}
    assert await decisions(store, busy) == [(State.RUNNING, None)] + [SKIPPED] * 5
    assert await decisions(store, free) == [(State.RUNNING, None)] + [HELD] * 5


async def test_skipped_instants_do_not_use_up_max_runs(store: Store, node: int):
    job_id = await add_job(store, every_second("skip", max_runs=3))
    _, (running,) = await fire(store, node, FIRST)
    for _ in range(3):  # two, two and one: the remaining runs, each of them skipped
        await fire(store, node, LATE)
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [SKIPPED] * 5
    found = await job_of(store, job_id)
    assert (found.fired, found.status, found.due_at) == (1, JobStatus.PENDING, LATE + SECOND)
    await finish(store, node, LATE, ended(running, now=LATE))
    _, (claim,) = await fire(store, node, LATE + SECOND)
    assert claim.scheduled_at == LATE + SECOND


async def test_a_manual_execution_counts_as_open_for_all_instants(store: Store, node: int):
    job_id = await add_job(store, every_second("skip"))
    made = await add_execution(store, job_id, FIRST)
    (claim,) = await claim_waiting(store, node, FIRST)
    assert claim.execution_id == made
    await fire(store, node, LATE)
    assert Counter(await decisions(store, job_id)) == {(State.RUNNING, None): 1, SKIPPED: 6}


# The limit of waiting executions


async def test_the_policy_queue_all_skips_instants_beyond_the_limit(
    store: Store, node: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(overlap, "MOST_WAITING", 4)
    job_id = await add_job(store, spec("every 1m", overlap="queue_all"))
    _, (claim,) = await fire(store, node, NOW + MINUTE)
    for n in range(2, 8):
        await fire(store, node, NOW + n * MINUTE)
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [HELD] * 4 + [SKIPPED] * 2
    assert (await job_of(store, job_id)).fired == 5
    await finish(store, node, NOW + HOUR, ended(claim, now=NOW + HOUR))
    await fire(store, node, NOW + 8 * MINUTE)
    assert (await decisions(store, job_id))[-1] == HELD, "there is room again"


async def test_instants_of_a_page_are_held_up_to_the_limit(store: Store, node: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(overlap, "MOST_WAITING", 3)
    job_id = await add_job(store, every_second("queue_all"))
    await fire(store, node, FIRST)
    await fire(store, node, FIRST + SECOND)
    await fire(store, node, LATE)
    assert await decisions(store, job_id) == [(State.RUNNING, None)] + [HELD] * 3 + [SKIPPED] * 2
