"""Circuits: ends of executions are counted on any node; one execution is the probe; a success closes a circuit."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contract.store.conftest import MakeStore
from duetime.domain import commands as c
from duetime.domain.breaker import Circuit, CircuitState, End, Rules, circuit_of, end_of
from duetime.domain.errors import NotFound
from duetime.domain.execution import AttemptEnd, Claim, Outcome
from duetime.domain.instants import DAY, MINUTE
from duetime.domain.job import RetryPolicy
from duetime.domain.states import ErrorType, State
from duetime.ports.store import AuditQuery, Store
from samples import (
    NOW,
    TENANT,
    URL,
    add_execution,
    add_job,
    claim_waiting,
    ended,
    entry_of,
    execution,
    executions_of,
    new_id,
    one,
    spec,
    verified,
)

RULES = Rules(threshold=3, cooldown=MINUTE)
NUMBER = circuit_of(TENANT, URL)
FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500)
Counted = list[tuple[int, Circuit | None]]


async def claimed(store: Store, node: int, tenant: str = TENANT, url: str = URL, now: int = NOW) -> Claim:
    job_id = await add_job(store, spec(url=url, retry_policy=RetryPolicy(max_retries=0)), tenant=tenant)
    await add_execution(store, job_id, now, tenant)
    (claim,) = await claim_waiting(store, node, now)
    return claim


def commands_of(node: int, claim: Claim, end: AttemptEnd, rules: Rules = RULES) -> list[c.Command]:
    """As the recorder passes them."""
    counted = end_of(claim, end)
    assert counted is not None
    return [c.Finish(node, end.ended_at, (end,)), c.CountEnds(end.ended_at, (counted,), rules)]


async def end_claim(store: Store, node: int, claim: Claim, outcome: Outcome = FAILURE, *, now: int = NOW) -> Counted:
    refused, counted = await store.apply(commands_of(node, claim, ended(claim, outcome, now=now)))
    assert refused == []
    return list(counted)


async def fail(store: Store, node: int, times: int = 1, *, now: int = NOW, tenant: str = TENANT) -> Circuit | None:
    counted: Counted = []
    for _ in range(times):
        counted = await end_claim(store, node, await claimed(store, node, tenant, now=now), now=now)
    ((number, circuit),) = counted
    assert number == circuit_of(tenant, URL)
    return circuit


def opened(at: int = NOW, failures: int = 3) -> Circuit:
    return Circuit(NUMBER, TENANT, URL, failures, at, at + MINUTE)


def probe(execution_id: str, now: int) -> c.TakeProbe:
    return c.TakeProbe(now, NUMBER, execution_id, RULES)


async def test_a_healthy_target_has_no_row(store: Store, node: int):
    assert await store.list_circuits(None, 10) == []
    assert await store.get_circuit(NUMBER) is None
    assert await one(store, probe(new_id(), NOW)) is None


async def test_failures_add_up_and_the_last_one_opens_the_circuit(store: Store, node: int):
    assert await fail(store, node) == Circuit(NUMBER, TENANT, URL, 1)
    assert await fail(store, node) == Circuit(NUMBER, TENANT, URL, 2)
    assert (await store.list_circuits(TENANT, 10))[0].state is CircuitState.CLOSED
    assert await fail(store, node, now=NOW + 7) == opened(NOW + 7)
    assert await store.get_circuit(NUMBER) == opened(NOW + 7)


@pytest.mark.usefixtures("several_connections")
async def test_failures_of_two_nodes_add_up(store: Store, node: int):
    other = int(await one(store, c.StartNode(NOW, "node-2")))
    claims = [(await claimed(store, who), who) for who in (node, other, node)]
    answers = await asyncio.gather(
        *(store.apply(commands_of(who, claim, ended(claim, FAILURE, now=NOW))) for claim, who in claims)
    )
    counts = sorted(circuit.failures for _, ((_, circuit),) in answers)
    assert counts == [1, 2, 3], "each saw what the others had written, and none was lost"
    assert await store.get_circuit(NUMBER) == opened()


@pytest.mark.usefixtures("several_connections")
async def test_concurrent_failures_of_many_targets_are_all_counted(store: Store, node: int):
    urls = [f"https://hook.example/{n}" for n in range(6)]
    claims = [await claimed(store, node, url=urls[n % 6]) for n in range(48)]
    pages = [claims[at::8] for at in range(8)]

    async def write(page: list[Claim]) -> None:
        attempts = tuple(ended(claim, FAILURE, now=NOW) for claim in page)
        ends = tuple(end for claim, a in zip(page, attempts, strict=True) if (end := end_of(claim, a)) is not None)
        refused, _ = await store.apply([c.Finish(node, NOW, attempts), c.CountEnds(NOW, ends, Rules(100, MINUTE))])
        assert refused == []

    await asyncio.gather(*map(write, pages))
    found = {circuit.url: circuit.failures for circuit in await store.list_circuits(None, 10)}
    assert found == dict.fromkeys(urls, 8)


async def test_a_page_can_hold_ends_of_several_targets_and_several_ends_of_a_target(store: Store, node: int):
    claims = [await claimed(store, node, url=f"https://hook.example/{n % 2}") for n in range(5)]
    attempts = tuple(ended(claim, FAILURE, now=NOW + n) for n, claim in enumerate(claims))
    ends = tuple(end for claim, a in zip(claims, attempts, strict=True) if (end := end_of(claim, a)) is not None)
    _, counted = await store.apply([c.Finish(node, NOW, attempts), c.CountEnds(NOW, ends, RULES)])
    assert {circuit.url[-1]: (circuit.failures, circuit.opened_at) for _, circuit in counted} == {
        "0": (3, NOW + 4),
        "1": (2, None),
    }


async def test_a_success_closes_the_circuit_and_removes_its_row(store: Store, node: int):
    await fail(store, node, 3)
    assert await end_claim(store, node, await claimed(store, node), Outcome(http_status=200)) == [(NUMBER, None)]
    assert await store.list_circuits(None, 10) == []
    assert await fail(store, node) == Circuit(NUMBER, TENANT, URL, 1)


async def test_a_success_of_a_target_without_a_row_writes_none(store: Store, node: int):
    assert await end_claim(store, node, await claimed(store, node), Outcome(http_status=200)) == [(NUMBER, None)]
    assert await store.list_circuits(None, 10) == []


async def test_failures_of_one_tenant_do_not_count_for_another(store: Store, node: int):
    await fail(store, node, 3, tenant="other")
    assert await fail(store, node, 2) == Circuit(NUMBER, TENANT, URL, 2)
    assert [circuit.tenant for circuit in await store.list_circuits(None, 10)] == ["other", TENANT]
    assert await store.list_circuits(TENANT, 10) == [Circuit(NUMBER, TENANT, URL, 2)]
    assert await store.list_circuits("nobody", 10) == []


async def test_a_refused_result_does_not_count(store: Store, node: int):
    claim = await claimed(store, node)
    stale = msgspec.structs.replace(claim, token=claim.token - 1)
    refused, counted = await store.apply(commands_of(node, stale, ended(stale, FAILURE)))
    assert (refused, list(counted)) == ([claim.execution_id], [])
    assert await store.list_circuits(None, 10) == []
    ((_, circuit),) = await end_claim(store, node, claim)
    assert circuit == Circuit(NUMBER, TENANT, URL, 1)


async def test_an_end_that_was_never_written_does_not_count(store: Store):
    nobody = End(NUMBER, TENANT, URL, new_id(), 1, 1, State.FAILED, NOW)
    assert await one(store, c.CountEnds(NOW, (nobody,), RULES)) == []
    assert await one(store, c.CountEnds(NOW, (), RULES)) == []
    assert await store.list_circuits(None, 10) == []


# The probe


@pytest.mark.usefixtures("several_connections")
async def test_one_of_several_concurrent_executions_is_the_probe(
    store: Store, make_store: MakeStore, backend: str, node: int
):
    await fail(store, node, 3)
    stores = [store]
    if backend == "postgres":  # two connections, as of two nodes
        stores.append(make_store())
        await stores[1].start()
    asking = [new_id() for _ in range(40)]
    answers = await asyncio.gather(
        *(one(stores[n % len(stores)], probe(mine, NOW + MINUTE)) for n, mine in enumerate(asking))
    )
    assert {answer.probe for answer in answers} <= set(asking)
    assert len({answer.probe for answer in answers}) == 1
    assert sum(answer.probe == mine for answer, mine in zip(answers, asking, strict=True)) == 1
    if len(stores) > 1:
        await stores[1].stop()


async def test_there_is_no_probe_before_the_end_of_the_cooldown(store: Store, node: int):
    await fail(store, node, 3)
    assert await one(store, probe(new_id(), NOW + MINUTE - 1)) == opened()
    assert await store.get_circuit(NUMBER) == opened()


async def test_a_lost_probe_is_replaced_after_another_cooldown(store: Store, node: int):
    await fail(store, node, 3)
    first, second = new_id(), new_id()
    await one(store, probe(first, NOW + MINUTE))
    assert (await one(store, probe(second, NOW + 2 * MINUTE - 1))).probe == first
    taken = await one(store, probe(second, NOW + 2 * MINUTE))
    assert (taken.probe, taken.state) == (second, CircuitState.HALF_OPEN)


async def test_a_failed_probe_opens_the_circuit_again_and_a_successful_one_closes_it(store: Store, node: int):
    await fail(store, node, 3)
    claim = await claimed(store, node, now=NOW + MINUTE)
    await one(store, probe(claim.execution_id, NOW + MINUTE))
    failed_at = NOW + MINUTE + 9
    assert await end_claim(store, node, claim, now=failed_at) == [(NUMBER, opened(failed_at, failures=4))]
    claim = await claimed(store, node, now=NOW + 3 * MINUTE)
    await one(store, probe(claim.execution_id, NOW + 3 * MINUTE))
    answered = Outcome(http_status=200)
    assert await end_claim(store, node, claim, answered, now=NOW + 3 * MINUTE) == [(NUMBER, None)]


# Executions that are not sent


async def test_an_execution_that_is_not_sent_is_skipped_with_the_reason(store: Store, node: int):
    claim = await claimed(store, node)
    refused = Outcome(ErrorType.CIRCUIT_OPEN, "the circuit is open")
    assert await one(store, c.Finish(node, NOW, (ended(claim, refused),))) == []
    (found,) = await executions_of(store, claim.job_id)
    assert (found.state, found.reason, found.dead, found.started_at, found.error_type) == (
        State.SKIPPED, "circuit_open", False, None, ErrorType.CIRCUIT_OPEN,
    )  # fmt: skip
    (attempt,) = await store.list_attempts(claim.execution_id)
    assert (attempt.started_at, attempt.error_message) == (None, "the circuit is open")


async def test_a_retry_that_is_not_sent_is_a_dead_letter(store: Store, node: int):
    job_id = await add_job(store, spec(retry_policy=RetryPolicy(delays=(1,))))
    await add_execution(store, job_id, NOW)
    (claim,) = await claim_waiting(store, node, NOW)
    await one(store, c.Finish(node, NOW, (ended(claim, FAILURE),)))
    (again,) = await claim_waiting(store, node, NOW + 1000)
    await one(store, c.Finish(node, NOW, (ended(again, Outcome(ErrorType.CIRCUIT_OPEN, "open"), now=NOW + 1000),)))
    found = await execution(store, claim.execution_id)
    assert (found.state, found.dead, found.attempt, found.error_type) == (
        State.FAILED, True, 2, ErrorType.CIRCUIT_OPEN,
    )  # fmt: skip
    assert found.started_at == NOW, "its first attempt did begin"


# Closing by hand, and pruning


async def test_a_tenant_can_close_its_circuit_by_hand_and_the_audit_records_it(store: Store, node: int):
    await fail(store, node, 3)
    for circuit, tenant in ((NUMBER, "other"), (7, TENANT)):
        assert isinstance(await one(store, c.CloseCircuit(NOW, tenant, circuit, entry_of("circuit.close"))), NotFound)
    assert await store.get_circuit(NUMBER) == opened()
    assert await store.list_audit(AuditQuery(TENANT, action="circuit.close")) == []
    name = f"{NUMBER:016x}"
    assert await one(store, c.CloseCircuit(NOW, TENANT, NUMBER, entry_of("circuit.close", name))) is None
    assert await store.list_circuits(None, 10) == []
    (noted,) = await store.list_audit(AuditQuery(TENANT, resource=name))
    assert noted.entry.before == {"url": URL, "state": "OPEN", "failures": 3}
    assert (await verified(store)).broken is None


async def test_open_circuits_are_listed_first_and_then_the_latest(store: Store, node: int):
    for n, url in enumerate(("a", "b", "c")):
        await end_claim(store, node, await claimed(store, node, url=f"https://{url}.example/"), now=NOW + n)
    await fail(store, node, 3, now=NOW - 5)
    assert [circuit.url for circuit in await store.list_circuits(TENANT, 3)] == [
        URL, "https://c.example/", "https://b.example/",
    ]  # fmt: skip


async def test_a_long_unused_circuit_is_removed(store: Store, node: int):
    await fail(store, node, 3)
    await end_claim(store, node, await claimed(store, node, url="https://a.example/"), now=NOW + 1)
    await one(store, c.Prune(0, 0, 0, 10, NOW + 1))
    assert [circuit.url for circuit in await store.list_circuits(None, 10)] == ["https://a.example/"]
    await one(store, c.Prune(0, 0, 0, 10))
    assert len(await store.list_circuits(None, 10)) == 1
    await one(store, c.Prune(0, 0, 0, 10, NOW + DAY))
    assert await store.list_circuits(None, 10) == []


async def test_circuits_survive_a_restart(make_store: MakeStore, store: Store, node: int):
    await fail(store, node, 3)
    await store.stop()
    again = make_store()
    await again.start()
    assert await again.list_circuits(None, 10) == [opened()]
    await again.stop()


async def test_open_circuits_of_a_tenant_hide_none_of_another(store: Store, node: int):
    first = Rules(threshold=1, cooldown=MINUTE)
    for tenant, count in (("globex", 1), (TENANT, 4)):
        for place in range(count):
            claim = await claimed(store, node, tenant, f"https://hook.example/{place}")
            await store.apply(commands_of(node, claim, ended(claim, FAILURE, now=NOW + place), first))
    assert [it.tenant for it in await store.list_open_circuits(3, 10)] == [TENANT, "globex", TENANT, TENANT]
    assert [it.tenant for it in await store.list_open_circuits(10, 2)] == [TENANT, "globex"]
    urls = [it.url for it in await store.list_open_circuits(1, 10)]
    assert urls == ["https://hook.example/3", "https://hook.example/0"]
