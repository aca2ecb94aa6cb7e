"""Workers in the ledger: they claim executions that only they can run, and are treated like nodes otherwise."""

from __future__ import annotations

from typing import Any

import msgspec

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import StaleWrite
from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude, expire
from duetime.domain.instants import DAY
from duetime.domain.job import Delivery, PythonJob, RetryPolicy, ScriptJob
from duetime.domain.payloads import PythonCall, Script
from duetime.domain.states import ErrorType, State, Trigger
from duetime.ports.store import Store, WorkerRecord
from samples import NOW, TENANT, add_job, execution, new_id, one, spec

ADD, OTHER = "shop.add", "shop.other"
AT = endpoint_of_function(TENANT, ADD)
AT_OTHER = endpoint_of_function(TENANT, OTHER)


def call(function: str = ADD, **fields: Any) -> PythonJob:
    return PythonJob(**{"name": "sum", "schedule": "every 1m", "payload": PythonCall(function)} | fields)


async def join(store: Store, tenant: str = TENANT) -> int:
    worker_id = await one(store, c.JoinWorker(NOW, tenant, "ann", "host:1", (ADD, OTHER), 10))
    assert isinstance(worker_id, int)
    return worker_id


async def waiting(store: Store, job: Any = None, at: int = NOW) -> str:
    """Returns the id of a waiting execution."""
    job_id = await add_job(store, job or call())
    execution_id = new_id(at)
    assert await one(store, c.AddExecution(at, TENANT, job_id, execution_id, Trigger.MANUAL)) == execution_id
    return execution_id


async def claim_waiting(store: Store, node: int, *only: int, limit: int = 10, now: int = NOW) -> list[Claim]:
    claims = await one(store, c.ClaimExecutions(node, now, limit, (TENANT,), only=only))
    assert isinstance(claims, list)
    return claims


async def finish(store: Store, worker: int, *attempts: AttemptEnd) -> list[str]:
    refused = await one(store, c.Finish(worker, NOW + 9, attempts))
    assert isinstance(refused, list)
    return refused


async def test_a_node_does_not_claim_executions_for_workers(store: Store, node: int):
    mine, theirs = await waiting(store, spec()), await waiting(store)
    assert await store.next_waiting_at() == NOW
    assert [claim.execution_id for claim in await claim_waiting(store, node)] == [mine]
    assert await store.next_waiting_at() is None
    assert (await execution(store, theirs)).state is State.QUEUED


async def test_a_node_does_not_claim_executions_for_workers_when_endpoints_are_full(store: Store, node: int):
    mine, _ = await waiting(store, spec()), await waiting(store)
    claimed = await one(store, c.ClaimExecutions(node, NOW, 10, (TENANT,), ((TENANT, 1),)))
    assert [claim.execution_id for claim in claimed] == [mine]


async def test_a_worker_claims_the_named_functions_by_priority_and_then_by_age(store: Store):
    worker = await join(store)
    late, early = await waiting(store, at=NOW + 5), await waiting(store, at=NOW + 1)
    high = await waiting(store, call(priority=9), at=NOW + 3)
    await waiting(store, call("shop.third"))
    await waiting(store, spec())
    assert await store.next_waiting_at(TENANT, [AT]) == NOW + 1
    assert await store.next_waiting_at(TENANT, [AT_OTHER]) is None
    claims = await claim_waiting(store, worker, AT, AT_OTHER, now=NOW + 9)
    assert {claim.execution_id for claim in claims} == {high, early, late}
    assert {(claim.attempt, claim.token, claim.endpoint) for claim in claims} == {(1, 1, AT)}
    assert await claim_waiting(store, worker, AT, now=NOW + 9) == []


async def test_a_claim_stays_within_its_limit_and_takes_urgent_executions_first(store: Store):
    worker = await join(store)
    await waiting(store)
    high = await waiting(store, call(OTHER, priority=9), at=NOW + 3)
    (claim,) = await claim_waiting(store, worker, AT, AT_OTHER, limit=1, now=NOW + 9)
    assert claim.execution_id == high


async def test_an_execution_that_is_due_later_is_not_claimed(store: Store):
    worker = await join(store)
    await waiting(store, at=NOW + 5)
    assert await claim_waiting(store, worker, AT, now=NOW + 4) == []


async def test_a_worker_is_listed_as_it_joined_with_its_heartbeats(store: Store):
    worker = await join(store)
    other = await join(store, "globex")
    assert await one(store, c.BeatWorkers(NOW + 7, (worker,))) == []
    assert await store.get_worker(worker) == WorkerRecord(
        worker, TENANT, "ann", "host:1", (ADD, OTHER), 10, NOW, NOW + 7, 1
    )
    assert [found.worker_id for found in await store.list_workers(TENANT, 10)] == [worker]
    assert [found.worker_id for found in await store.list_workers(None, 10)] == [other, worker]
    assert await store.get_worker(10**12) is None


async def test_an_ended_worker_can_neither_send_heartbeats_nor_claim(store: Store):
    worker, other = await join(store), await join(store)
    await waiting(store)
    await one(store, c.FenceNodes(NOW, (worker,)))
    assert await one(store, c.BeatWorkers(NOW, (worker, other))) == [worker]
    assert isinstance(await one(store, c.ClaimExecutions(worker, NOW, 10, (TENANT,), only=(AT,))), StaleWrite)
    assert await store.get_worker(worker) is None
    assert [found.worker_id for found in await store.list_workers(TENANT, 10)] == [other]


async def test_claims_of_an_ended_worker_have_expired_and_get_the_next_attempt(store: Store, node: int):
    worker = await join(store)
    execution_id = await waiting(store)
    (claim,) = await claim_waiting(store, worker, AT)
    assert await store.list_expired_claims(node, 10) == []
    await one(store, c.FenceNodes(NOW, (worker,)))
    (expired,) = await store.list_expired_claims(node, 10)
    assert expired == claim
    assert await finish(store, node, expire(expired, NOW)) == []
    (again,) = await claim_waiting(store, await join(store), AT)
    assert (again.execution_id, again.attempt, again.token) == (execution_id, 2, 2)
    assert await finish(store, worker, conclude(claim, Outcome(), NOW, NOW + 1, 0)) == [execution_id]  # too late


async def test_a_lost_attempt_names_the_worker_that_ran_it(store: Store, node: int):
    worker = await join(store)
    last = call(delivery=Delivery.AT_MOST_ONCE)
    ids = [await waiting(store), await waiting(store, last)]  # one is retried, one has failed
    await claim_waiting(store, worker, AT)
    await one(store, c.FenceNodes(NOW, (worker,)))
    expired = await store.list_expired_claims(node, 10)
    assert await finish(store, node, *(expire(claim, NOW) for claim in expired)) == []
    stale = msgspec.structs.replace(expire(expired[0], NOW), token=9)
    assert await finish(store, node, stale) == [expired[0].execution_id]
    for execution_id in ids:
        (attempt,) = await store.list_attempts(execution_id)
        assert attempt.worker_id == "host:1"


async def test_a_page_with_a_stale_row_names_the_worker_too(store: Store, node: int):
    worker = await join(store)
    ids = [await waiting(store), await waiting(store, call(delivery=Delivery.AT_MOST_ONCE)), await waiting(store)]
    await claim_waiting(store, worker, AT)
    await one(store, c.FenceNodes(NOW, (worker,)))
    lost = {claim.execution_id: expire(claim, NOW) for claim in await store.list_expired_claims(node, 10)}
    page = [lost[ids[0]], lost[ids[1]], msgspec.structs.replace(lost[ids[2]], token=9)]
    assert await finish(store, node, *page) == [ids[2]]
    for execution_id in ids[:2]:
        (attempt,) = await store.list_attempts(execution_id)
        assert attempt.worker_id == "host:1"


async def test_a_worker_reads_its_running_and_cancelled_executions(store: Store):
    worker, other = await join(store), await join(store)
    first, second = await waiting(store), await waiting(store)
    await claim_waiting(store, worker, AT)
    await one(store, c.CancelExecution(NOW, TENANT, second))
    assert sorted(await store.list_claims(worker, TENANT, 10)) == sorted([(first, 1, 1, False), (second, 1, 1, True)])
    assert await store.list_claims(other, TENANT, 10) == []
    claims = await store.get_claims(worker, [first, second, new_id()])
    assert {(claim.execution_id, claim.cancel_requested) for claim in claims} == {(first, False), (second, True)}
    assert await store.get_claims(other, [first]) == []


async def test_progress_is_stored_for_the_next_attempt_and_not_from_an_old_claim(store: Store, node: int):
    worker = await join(store)
    execution_id = await waiting(store)
    (claim,) = await claim_waiting(store, worker, AT)
    save = c.SaveProgress(TENANT, execution_id, claim.job_id, claim.attempt, claim.token, '{"done":1}')
    assert await one(store, save) is True
    assert await one(store, c.SaveProgress(TENANT, execution_id, claim.job_id, 1, 1, "[2]")) is True
    assert await store.get_progress([execution_id, new_id()]) == {execution_id: "[2]"}
    await one(store, c.FenceNodes(NOW, (worker,)))
    await finish(store, node, expire(claim, NOW))
    assert await one(store, save) is False
    assert await store.get_progress([execution_id]) == {execution_id: "[2]"}
    (again,) = await claim_waiting(store, await join(store), AT)
    assert (
        await one(store, c.SaveProgress(TENANT, execution_id, claim.job_id, again.attempt, again.token, None)) is True
    )
    assert await store.get_progress([execution_id]) == {}


async def test_progress_is_removed_with_its_execution(store: Store):
    worker = await join(store)
    pruned, purged = await waiting(store), await waiting(store, call(OTHER))
    for claim in await claim_waiting(store, worker, AT, AT_OTHER):
        await one(store, c.SaveProgress(TENANT, claim.execution_id, claim.job_id, claim.attempt, claim.token, "1"))
        await finish(store, worker, conclude(claim, Outcome(), NOW, NOW + 1, 0))
    assert set(await store.get_progress([pruned, purged])) == {pruned, purged}
    job_id = (await execution(store, purged)).job_id
    assert await one(store, c.PurgeJob(TENANT, job_id)) is False
    assert set(await store.get_progress([pruned, purged])) == {pruned}
    while await one(store, c.Prune(NOW + 3 * DAY, NOW + 3 * DAY, NOW, 10, NOW)):
        continue
    assert await store.get_progress([pruned]) == {}


async def test_an_exit_code_is_stored_with_the_attempt_and_shown_with_the_execution(store: Store, node: int):
    retries = RetryPolicy(max_retries=1)
    script = ScriptJob(name="tidy", schedule="every 1m", payload=Script(argv=("false",)), retry_policy=retries)
    execution_id = await waiting(store, script)
    (claim,) = await claim_waiting(store, node)
    outcome = Outcome(ErrorType.EXIT_CODE, "exited with 3", exit_code=3)
    assert await finish(store, node, conclude(claim, outcome, NOW, NOW + 1, 1.0)) == []
    assert [attempt.exit_code for attempt in await store.list_attempts(execution_id)] == [3]
    assert (await execution(store, execution_id)).exit_code == 3
    (claim,) = await claim_waiting(store, node, now=NOW + DAY)
    assert await finish(store, node, conclude(claim, Outcome(exit_code=0), NOW, NOW + 1, 1.0)) == []
    assert [attempt.exit_code for attempt in await store.list_attempts(execution_id)] == [3, 0]
    assert (await execution(store, execution_id)).exit_code == 0


async def test_a_worker_is_ended_only_without_a_heartbeat_since_the_check(store: Store, node: int):
    silent, beating, ended = [await join(store) for _ in range(3)]
    execution_id = await waiting(store)
    (claim,) = await claim_waiting(store, silent, AT)
    await one(store, c.BeatWorkers(NOW + 1, (silent, beating)))
    await one(store, c.BeatWorkers(NOW + 2, (beating,)))
    await one(store, c.FenceNodes(NOW + 3, (ended,)))
    end = c.FenceWorkers(NOW + 4, ((silent, 1), (beating, 1), (ended, 0), (node, 0), (10**9, 0)))
    assert await one(store, end) == [silent]
    assert [worker.worker_id for worker in await store.list_workers(TENANT, 10)] == [beating]
    assert await one(store, c.BeatWorkers(NOW + 5, (silent, beating))) == [silent]
    assert isinstance(await one(store, c.ClaimExecutions(silent, NOW + 5, 10, (TENANT,), only=(AT,))), StaleWrite)
    assert [expired.execution_id for expired in await store.list_expired_claims(node, 10)] == [execution_id]
    assert await claim_waiting(store, node) == []  # a node whose id is given by mistake continues
    assert await one(store, end) == await one(store, c.FenceWorkers(NOW + 6, ())) == []
    assert await finish(store, node, expire(claim, NOW + 6)) == []


async def test_workers_are_found_by_their_functions(store: Store):
    worker, theirs = await join(store), await join(store, "other")
    other = await one(store, c.JoinWorker(NOW, TENANT, "ann", "host:2", ("a 'quoted' \u2603",), 1))

    async def found(function: str, tenant: str | None = TENANT) -> list[int]:
        return [it.worker_id for it in await store.list_workers(tenant, 10, function=function)]

    assert await found(ADD) == [worker]
    assert await found(ADD, None) == [theirs, worker]
    assert await found("a 'quoted' \u2603") == [other]
    assert await found("shop") == await found("") == []
