"""Totals of jobs by status equal a recount, whatever changes a job's status: kept by the commands, in their commits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from contract.store.conftest import MakeStore, Raw
from contract.store.test_capacity import check_statuses
from duetime.domain import commands as c
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import Claim, Outcome
from duetime.domain.instants import HOUR, MINUTE, SECOND
from duetime.domain.states import ErrorType, Trigger
from duetime.ports.store import Store, Totals
from samples import (
    NOW,
    TENANT,
    add_execution,
    add_job,
    change_of,
    claim_waiting,
    due_timers,
    ended,
    finish,
    fire,
    job_of,
    new_id,
    new_job,
    one,
    spec,
)  # fmt: skip

DUE = NOW + MINUTE
ONCE = "2026-01-01T00:01:00Z"
FAILED = Outcome(ErrorType.REJECTED)
OTHER = "other"


async def jobs(store: Store, tenant: str = TENANT) -> dict[str, int]:
    """The jobs by status, without those of which there are none."""
    return {status: number for status, number in (await store.get_totals(tenant)).jobs.items() if number}


async def test_an_empty_store_has_totals_of_zero(store: Store):
    found = await store.get_totals(TENANT)
    assert found.jobs == {"PENDING": 0, "PAUSED": 0, "COMPLETED": 0, "CANCELLED": 0}
    assert set(found.executions) == {
        "QUEUED", "RUNNING", "RETRYING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "SKIPPED",
    }  # fmt: skip
    assert not any(found.executions.values())


async def test_each_tenant_has_its_own_totals_and_all_have_a_sum(store: Store):
    for tenant in (TENANT, OTHER, OTHER):
        job_id = await add_job(store, tenant=tenant)
        await one(store, c.PauseJob(NOW, tenant, job_id, "ann", ""))
    await add_job(store, tenant=OTHER)
    assert await jobs(store) == {"PAUSED": 1}
    assert await jobs(store, OTHER) == {"PENDING": 1, "PAUSED": 2}
    assert (await store.get_all_totals()).jobs == {"PENDING": 1, "PAUSED": 3, "COMPLETED": 0, "CANCELLED": 0}


async def test_a_job_is_counted_as_it_is_paused_resumed_changed_cancelled_and_purged(store: Store, raw: Raw):
    job_id = await add_job(store, spec("every 1m"))
    assert await jobs(store) == {"PENDING": 1}
    await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
    await one(store, c.PauseJob(NOW, TENANT, job_id, "ann", ""))
    assert await jobs(store) == {"PAUSED": 1}
    await one(store, c.ResumeJob(NOW, TENANT, job_id, 2, DUE, None))
    assert await jobs(store) == {"PENDING": 1}
    await one(store, change_of(job_id, spec("every 2m"), 3, replan=True, due_at=None))
    assert await jobs(store) == {"COMPLETED": 1}
    await one(store, change_of(job_id, spec("every 2m"), 4, replan=True, due_at=DUE))
    assert await jobs(store) == {"PENDING": 1}
    for _ in range(2):
        await one(store, c.CancelJob(NOW, TENANT, job_id))
        assert await jobs(store) == {"CANCELLED": 1}
    await one(store, c.PurgeJob(TENANT, job_id))
    assert await jobs(store) == {}
    await check_statuses(raw)


async def test_a_job_that_completes_is_counted_once_also_if_it_runs_again(store: Store, node: int, raw: Raw):
    job_id = await add_job(store, spec(ONCE))
    _, (claim,) = await fire(store, node, DUE)
    assert await jobs(store) == {"PENDING": 1}
    await finish(store, node, DUE, ended(claim))
    assert await jobs(store) == {"COMPLETED": 1}
    for n in range(2):
        await add_execution(store, job_id, DUE + n)
        (again,) = await claim_waiting(store, node, DUE + HOUR)
        await finish(store, node, DUE, ended(again))
        assert await jobs(store) == {"COMPLETED": 1}
    await check_statuses(raw)


async def test_a_stale_result_is_not_counted(store: Store, node: int, raw: Raw):
    await add_job(store, spec(ONCE))
    _, (claim,) = await fire(store, node, DUE)
    assert await finish(store, node, DUE, ended(claim), ended(claim)) == []
    assert await finish(store, node, DUE, ended(claim)) == [claim.execution_id]
    assert await jobs(store) == {"COMPLETED": 1}
    await check_statuses(raw)


async def test_a_refused_command_changes_no_total(store: Store, raw: Raw):
    job_id = await add_job(store)
    refused = [
        c.ResumeJob(NOW, TENANT, job_id, 1, DUE, None),
        change_of(job_id, spec("every 2m"), 9, replan=True, due_at=None),
        c.PauseJob(NOW, TENANT, new_id(), "ann", ""),
    ]
    answers = await store.apply(refused)
    assert all(isinstance(answer, DuetimeError) for answer in answers)
    assert await jobs(store) == {"PENDING": 1}
    await check_statuses(raw)


async def test_a_sweep_uncounts_the_jobs_that_it_removes(store: Store, node: int, raw: Raw):
    job_id = await add_job(store, spec(ONCE))
    cancelled = await add_job(store)
    await one(store, c.CancelJob(NOW, TENANT, cancelled))
    _, (claim,) = await fire(store, node, DUE, job_id)
    await finish(store, node, DUE, ended(claim))
    assert await jobs(store) == {"COMPLETED": 1, "CANCELLED": 1}
    while await one(store, c.Prune(NOW + 90 * HOUR, NOW + 90 * HOUR, 0, 100)):
        pass
    await one(store, c.SweepJobs(NOW + 90 * HOUR, NOW + 90 * HOUR, new_id(0), 100))
    assert await jobs(store) == {}
    await check_statuses(raw)


async def test_a_recount_corrects_totals_that_another_version_has_left(store: Store, raw: Raw):
    first, _ = [await add_job(store) for _ in range(2)]
    await one(store, c.PauseJob(NOW, TENANT, first, "ann", ""))
    assert await one(store, c.RecountJobs(NOW)) == 0
    await raw("DELETE FROM job_totals WHERE status = 'PAUSED' AND tenant <> '' RETURNING 1")
    assert await jobs(store) == {"PENDING": 2}
    assert await one(store, c.RecountJobs(NOW)) == 1
    assert await jobs(store) == {"PENDING": 1, "PAUSED": 1}
    assert await one(store, c.RecountJobs(NOW)) == 0
    await check_statuses(raw)


class Storm:
    """Some clients at once create, fire, finish, run again, pause, resume, change, cancel and purge the same jobs."""

    def __init__(self, store: Store, node: int, seed: int) -> None:
        self._store = store
        self._node = node
        self._rng = random.Random(seed)
        self._jobs: list[tuple[str, str]] = []
        self._claims: list[Claim] = []
        self._now = DUE

    async def run(self, steps: int, clients: int) -> None:
        kinds: Sequence[Callable[[], Awaitable[object]]] = (
            self._create, self._create, self._fire, self._fire, self._finish, self._finish, self._finish, self._again,
            self._again, self._claim, self._claim, self._change, self._several, self._end,
        )  # fmt: skip

        async def client() -> None:
            for _ in range(steps):
                await self._rng.choice(kinds)()

        await asyncio.gather(*(client() for _ in range(clients)))

    async def _create(self) -> None:
        made = []
        for _ in range(self._rng.randrange(1, 12)):
            schedule, overlap = self._rng.choice((ONCE, ONCE, "every 1m")), self._rng.choice(("allow", "skip"))
            most = self._rng.choice((None, 1, 2)) if schedule != ONCE else None
            tenant = self._rng.choice((TENANT, OTHER))
            made.append(new_job(spec(schedule, overlap=overlap, max_runs=most), tenant=tenant))
        await one(self._store, c.CreateJobs(NOW, tuple(made)))
        self._jobs += [(job.tenant, job.job_id) for job in made]

    async def _fire(self) -> None:
        self._now += self._rng.choice((0, SECOND, MINUTE))
        if await due_timers(self._store, self._now):
            _, claims = await fire(self._store, self._node, self._now)
            self._claims += claims

    async def _finish(self) -> None:
        number = self._rng.choice((1, 3, 30))
        taken, self._claims = self._claims[:number], self._claims[number:]
        if self._rng.random() < 0.2:
            taken += taken[:1]  # a page with a stale result
        outcomes = [self._rng.choice((Outcome(), FAILED, Outcome(ErrorType.CONNECTION_ERROR))) for _ in taken]
        ends = [ended(claim, outcome, now=self._now) for claim, outcome in zip(taken, outcomes, strict=True)]
        await finish(self._store, self._node, self._now, *ends)

    async def _again(self) -> None:
        for tenant, job_id in self._some(4):
            await self._store.apply(
                [c.AddExecution(self._now, tenant, job_id, new_id(self._now), Trigger.MANUAL)]
            )  # fmt: skip

    async def _claim(self) -> None:
        tenants = (TENANT, OTHER)
        claims = await one(self._store, c.ClaimExecutions(self._node, self._now + HOUR, 50, tenants))
        self._claims += claims

    async def _change(self) -> None:
        for tenant, job_id in self._some(3):
            await self._store.apply([await self._change_of(tenant, job_id)])

    async def _several(self) -> None:
        await self._store.apply([await self._change_of(tenant, job_id) for tenant, job_id in self._some(6)])

    async def _change_of(self, tenant: str, job_id: str) -> c.Command:
        found = await self._store.get_job(tenant, job_id)
        version = 1 if found is None else found.version
        due_at = self._rng.choice((None, self._now))
        return self._rng.choice(
            (
                c.PauseJob(self._now, tenant, job_id, "ann", ""),
                c.ResumeJob(self._now, tenant, job_id, version, due_at, None),
                change_of(job_id, spec("every 1m"), version, tenant=tenant, replan=True, due_at=due_at),
            )
        )

    async def _end(self) -> None:
        for tenant, job_id in self._some(2):
            command: c.Command = self._rng.choice(
                (c.CancelJob(self._now, tenant, job_id), c.PurgeJob(tenant, job_id, 1))
            )
            await self._store.apply([command])

    def _some(self, most: int) -> list[tuple[str, str]]:
        return self._rng.sample(self._jobs, min(most, len(self._jobs))) if self._jobs else []


@pytest.mark.usefixtures("several_connections")
@pytest.mark.parametrize("seed", [1, 2])
async def test_totals_equal_a_recount_after_many_operations_at_once(make_store: MakeStore, raw: Raw, seed: int):
    store = make_store()
    await store.start()
    storm = Storm(store, await one(store, c.StartNode(NOW, "node-1")), seed)
    for _ in range(3):
        await storm.run(60, 6)
        await check_statuses(raw)
    found = [await store.get_totals(tenant) for tenant in (TENANT, OTHER)]
    assert min(sum(total.jobs[status] for total in found) for status in found[0].jobs) > 0, found
    assert await one(store, c.RecountJobs(NOW)) == 0
    await check_executions(raw, found)
    await store.stop()


async def check_executions(raw: Raw, found: Sequence[Totals]) -> None:
    ((number,),) = await raw("SELECT count(*) FROM executions")
    assert sum(sum(total.executions.values()) for total in found) == number


async def test_a_job_whose_skipped_last_run_is_uncounted_is_pending_again(store: Store, node: int, raw: Raw):
    job_id = await add_job(store, spec("every 1m", max_runs=2, overlap="skip"))
    _, (first,) = await fire(store, node, DUE)
    await fire(store, node, DUE + MINUTE)  # skipped: the first one runs
    assert (await job_of(store, job_id)).status == "PENDING"
    await finish(store, node, DUE + MINUTE, ended(first))
    assert await jobs(store) == {"PENDING": 1}
    await check_statuses(raw)
