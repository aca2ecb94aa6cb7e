"""Reads and claims of the engine are bounded in bytes: large jobs are read a few at a time."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain import commands as c
from duetime.domain.endpoints import endpoint_of, endpoint_of_url
from duetime.domain.execution import Claim
from duetime.domain.held_specs import PLACE_BYTES, plain, whole
from duetime.domain.instants import MINUTE
from duetime.domain.job import HttpJob, PythonJob
from duetime.domain.payloads import HttpRequest, PythonCall
from duetime.domain.states import State
from duetime.ports.store import Store
from samples import (
    NOW,
    TENANT,
    URL,
    add_execution,
    add_job,
    claim_waiting,
    due_timers,
    ended,
    execution,
    finish,
    job_of,
    one,
    spec,
)

BODY = [[]] * 40_000
SIZE = len(msgspec.json.encode(BODY))  # 120 kB


def large(schedule: str = "every 1m", url: str = URL) -> HttpJob:
    return HttpJob(name="large", schedule=schedule, payload=HttpRequest(url, body=BODY))


async def waiting(store: Store, count: int, tenant: str = TENANT, url: str = URL) -> None:
    job_id = await add_job(store, large(url=url), tenant=tenant)
    for n in range(count):
        await add_execution(store, job_id, NOW - n, tenant)


async def claimed(store: Store, node: int, most_bytes: int, *tenants: str, **fields: object) -> list[Claim]:
    found = await one(store, c.ClaimExecutions(node, NOW, 100, tenants or (TENANT,), bytes=most_bytes, **fields))
    assert isinstance(found, list), found
    return found


@pytest.mark.parametrize(("most_bytes", "count"), [(4 * SIZE, 3), (SIZE // 2, 1), (100 * SIZE, 6)])
async def test_a_claim_is_bounded_in_bytes_and_returns_at_least_one(
    store: Store, node: int, most_bytes: int, count: int
):
    await waiting(store, 6)
    found = await claimed(store, node, most_bytes)
    assert [claim.scheduled_at for claim in found] == [NOW - 5 + n for n in range(count)], "in their order"
    assert len(await claim_waiting(store, node, NOW)) == 6 - count, "the others wait still"


async def test_a_claim_without_full_endpoints_is_bounded_too(store: Store, node: int):
    await waiting(store, 3, url="https://full.example/")
    await waiting(store, 6)
    full = ((TENANT, endpoint_of_url("https://full.example/")),)
    found = await claimed(store, node, 4 * SIZE, full_endpoints=full)
    assert [claim.endpoint for claim in found] == [endpoint_of_url(URL)] * 3


async def test_a_claim_takes_at_least_one_execution_of_each_tenant(store: Store, node: int):
    for tenant in ("a", "b", "c"):
        await waiting(store, 3, tenant)
    assert [claim.tenant for claim in await claimed(store, node, SIZE, "a", "b", "c")] == ["a", "b", "c"]


async def test_a_worker_claims_no_more_than_fits_into_a_response(store: Store):
    worker = await one(store, c.JoinWorker(NOW, TENANT, "ann", "w", ("f",), 100))
    job = PythonJob(name="large", schedule="every 1m", payload=PythonCall("f", BODY))
    job_id = await add_job(store, job)
    for n in range(6):
        await add_execution(store, job_id, NOW - n)
    (first, *others) = await claimed(store, worker, 4 * SIZE, only=(endpoint_of(job, TENANT),))
    assert len(others) == 2
    assert isinstance(first.spec, PythonJob)
    assert plain(first.spec.payload.args) == BODY


async def test_a_claim_holds_its_body_as_text_and_counts_with_its_memory(store: Store, node: int):
    await waiting(store, 1)
    (claim,) = await claimed(store, node, 4 * SIZE)
    assert isinstance(claim.spec, HttpJob)
    assert bytes(claim.spec.payload.body) == msgspec.json.encode(BODY)
    assert claim.places in range(2 * SIZE // PLACE_BYTES, 2 * SIZE // PLACE_BYTES + 3)
    assert await finish(store, node, NOW, ended(claim)) == []


async def test_a_timer_and_its_execution_count_with_their_memory(store: Store, node: int):
    await add_job(store, large("2026-01-01T00:01:00Z"))
    await add_job(store, spec("2026-01-01T00:01:00Z"))
    first, second = await due_timers(store, NOW + MINUTE)
    assert (first.places > 50, second.places) == (True, 1)
    assert isinstance(first.spec, HttpJob)
    assert bytes(first.spec.payload.body) == msgspec.json.encode(BODY)


async def test_claims_of_a_lost_node_are_read_a_few_at_a_time(store: Store, node: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetime.store.reads.PAGE_BYTES", 4 * SIZE)
    await waiting(store, 6)
    assert len(await claim_waiting(store, node, NOW)) == 6
    await one(store, c.FenceNodes(NOW, (node,)))
    other = await one(store, c.StartNode(NOW, "node-2"))
    assert len(await store.list_expired_claims(other, 100)) == 3


async def test_a_released_execution_waits_again(store: Store, node: int):
    await waiting(store, 2)
    claims = await claim_waiting(store, node, NOW)
    assert await one(store, c.Release(node, NOW, tuple(claims))) is None
    assert {(await execution(store, claim.execution_id)).state for claim in claims} == {State.QUEUED}
    assert [claim.attempt for claim in await claim_waiting(store, node, NOW)] == [1, 1]


async def test_a_job_is_read_with_its_body_as_text_and_can_be_decoded(store: Store, node: int):
    job_id = await add_job(store, large())
    record = await job_of(store, job_id)
    assert isinstance(record.spec, HttpJob)
    assert isinstance(record.spec.payload.body, msgspec.Raw)
    assert whole(record.spec) == large()
    small = await job_of(store, await add_job(store, spec()))
    assert whole(small.spec) is small.spec
