"""Functions of two tenants share the hash that workers claim by: neither gets, sees or ends the other's executions.

The hash of an endpoint has 48 bits: a tenant that may choose names of functions can find a collision. Here all collide.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract.store.conftest import DATABASE, FACTORIES
from duetime.domain import commands as c
from duetime.domain import endpoints
from duetime.domain.capacity import UNBOUNDED
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import NotFound, StaleWrite
from duetime.domain.job import PythonJob
from duetime.domain.payloads import PythonCall
from duetime.domain.states import State
from duetime.domain.work import Assignment, Ended, Joining, Note, Polling, Reporting, WorkClaim
from duetime.ports.store import Store
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import NOW, add_execution, add_job, execution, one
from store.postgres_server import emptied_database

VICTIM, THIEF = "acme", "evil"
FUNCTION = "pay"


@pytest.fixture(autouse=True)
def collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every endpoint has the same number."""
    monkeypatch.setattr(endpoints, "_number", lambda text: 4711)
    assert endpoint_of_function(VICTIM, FUNCTION) == endpoint_of_function(THIEF, "other")


@pytest.fixture(params=sorted(FACTORIES))
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    if request.param == "postgres":
        monkeypatch.setenv(DATABASE, await emptied_database())
    made = FACTORIES[request.param](tmp_path, UNBOUNDED)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def stage(store: Store) -> Stage:
    made = Stage(store, HandClock(), ScriptedExecutor())
    await made.join()
    return made


def call(name: str, schedule: str = "immediate") -> PythonJob:
    return PythonJob(name=name, schedule=schedule, payload=PythonCall(FUNCTION, [name]))


async def hire(stage: Stage, tenant: str) -> int:
    return (await stage.engine.term.worker_gateway.join(tenant, "u", Joining("host", (FUNCTION,), 10))).worker_id


async def poll(stage: Stage, tenant: str, worker: int) -> list[Assignment]:
    return (await stage.engine.term.worker_gateway.poll(tenant, Polling(worker, 10, 0))).assignments


async def test_a_poll_returns_only_executions_of_the_tenant(stage: Stage):
    for tenant in (VICTIM, THIEF):
        await stage.add_job(call(tenant), tenant=tenant)
    await stage.tick()
    thief, victim = await hire(stage, THIEF), await hire(stage, VICTIM)
    assert [one.args for one in await poll(stage, THIEF, thief)] == [[THIEF]]
    assert await poll(stage, THIEF, thief) == []
    assert [one.args for one in await poll(stage, VICTIM, victim)] == [[VICTIM]]


async def test_a_worker_of_another_tenant_is_not_found(stage: Stage):
    victim = await hire(stage, VICTIM)
    with pytest.raises(NotFound):
        await poll(stage, THIEF, victim)
    with pytest.raises(NotFound):
        await stage.engine.term.worker_gateway.report(THIEF, Reporting(victim, []))
    with pytest.raises(NotFound):
        await stage.engine.term.worker_gateway.leave(THIEF, victim)


async def test_a_report_does_not_change_executions_of_another_tenant(stage: Stage):
    job_id = await stage.add_job(call(VICTIM), tenant=VICTIM)
    await stage.tick()
    thief, victim = await hire(stage, THIEF), await hire(stage, VICTIM)
    (held,) = await poll(stage, VICTIM, victim)
    key = (held.execution_id, held.attempt, held.token)
    said: dict[str, Any] = {
        "ended": [Ended(*key, 1, 2, result=json.dumps("stolen"))], "notes": [Note(*key, "stolen\n")],
        "unbegun": [WorkClaim(*key)],
    }  # fmt: skip
    reported = await stage.engine.term.worker_gateway.report(THIEF, Reporting(thief, [WorkClaim(*key)], **said))
    assert reported.refused == [WorkClaim(*key)]
    (still,) = await stage.executions(job_id)
    assert (still.state, still.response) == (State.RUNNING, None)
    assert (await stage.engine.term.worker_gateway.report(VICTIM, Reporting(victim, [], **said))).refused == []


# The store itself


async def waiting(store: Store, tenant: str) -> str:
    job_id = await add_job(store, call(tenant, "every 1h"), tenant=tenant)
    return await add_execution(store, job_id, tenant=tenant)


async def join(store: Store, tenant: str) -> int:
    return int(await one(store, c.JoinWorker(NOW, tenant, "u", "host", (FUNCTION,), 10)))


def claim_of(tenant: str, worker: int) -> c.ClaimExecutions:
    return c.ClaimExecutions(worker, NOW, 10, (tenant,), only=(endpoint_of_function(tenant, FUNCTION),))


async def test_the_store_refuses_a_claim_for_a_worker_of_another_tenant(store: Store):
    theirs = await waiting(store, VICTIM)
    thief, victim = await join(store, THIEF), await join(store, VICTIM)
    assert isinstance(await one(store, claim_of(VICTIM, thief)), StaleWrite)
    assert (await execution(store, theirs, VICTIM)).state is State.QUEUED
    assert await one(store, claim_of(THIEF, thief)) == []
    assert [claim.execution_id for claim in await one(store, claim_of(VICTIM, victim))] == [theirs]


async def test_the_store_limits_reads_and_reports_of_a_worker_to_its_tenant(store: Store):
    theirs = await waiting(store, VICTIM)
    victim = await join(store, VICTIM)
    (claim,) = await one(store, claim_of(VICTIM, victim))
    assert await store.get_claims(victim, [theirs], THIEF) == []
    assert [found.execution_id for found in await store.get_claims(victim, [theirs], VICTIM)] == [theirs]
    assert await store.list_claims(victim, THIEF, 10) == []
    assert [row[0] for row in await store.list_claims(victim, VICTIM, 10)] == [theirs]
    key = (claim.execution_id, claim.job_id, claim.attempt, claim.token)
    assert await one(store, c.SaveProgress(THIEF, *key, "1")) is False
    assert await store.get_progress([theirs]) == {}
    assert await one(store, c.SaveProgress(VICTIM, *key, "1")) is True
