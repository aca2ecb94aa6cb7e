"""Bounded growth: after each retention period, every table is back at its size.

The test names no table. A new table without a prune fails it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from contract.store.conftest import Raw
from duetime.audit_files import AuditFolder, files_of, verify_files
from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import RetryPolicy, Webhooks
from duetime.domain.limits import Limit, Quota
from duetime.domain.states import ErrorType
from duetime.ports.store import ExecutionQuery, Store
from duetime.testing import HandClock, ScriptedExecutor
from engine.stage import Stage
from samples import claim_waiting, entry_of, new_id, new_job, new_key, one, spec, verified

KEPT = 30 * DAY
BAD, HOOK = "https://bad.example/run", "https://told.example/hook"
FAILURE = Outcome(ErrorType.HTTP_ERROR, "answered 404", 404)

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1",
    "postgres": "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
    " AND relnamespace = current_schema()::regnamespace ORDER BY 1",
}
PARTITIONS = "SELECT count(*) FROM pg_class WHERE relispartition AND relkind = 'r'"


async def sizes(raw: Raw, backend: str) -> dict[str, int]:
    found = {name: (await raw(f"SELECT count(*) FROM {name}"))[0][0] for (name,) in await raw(TABLES[backend])}
    if backend == "postgres":
        found["(partitions)"] = (await raw(PARTITIONS))[0][0]
    return found


class Churn:
    """Everything that users of two new tenants do in a day, with its effects."""

    def __init__(self, stage: Stage, cycle: int) -> None:
        self._stage = stage
        self._store = stage.store
        self._cycle = cycle
        self._clock = stage.clock

    @property
    def now(self) -> int:
        return self._clock.now()

    async def do(self, command: c.Command) -> object:
        answer = await one(self._store, command)
        assert not isinstance(answer, Exception), answer
        return answer

    async def all_of_a_day(self) -> None:
        for number in range(2):
            tenant = f"tenant-{self._cycle}-{number}"
            await self._identity(tenant)
            await self._jobs(tenant)
            await self._work(tenant)
            await self._end_of_day(tenant)

    async def _identity(self, tenant: str) -> None:
        for user in range(5):
            quota = Quota(tenant, f"user-{user}", Limit("requests", 100, HOUR))
            await self.do(c.TakeRequests(self.now, quota, 7))
        revoked, expired = f"{tenant}-revoked", f"{tenant}-expired"
        await self.do(c.AddKey(self.now, new_key(revoked, tenant), entry_of("api_key.create", revoked, self.now)))
        await self.do(c.RevokeKey(self.now, tenant, revoked, entry_of("api_key.revoke", revoked, self.now)))
        await self.do(c.AddKey(self.now, new_key(expired, tenant, expires_at=self.now + HOUR)))
        self._subscription = new_id(self.now)
        events = ("execution.completed", "execution.failed")
        await self.do(c.AddSubscription(self.now, tenant, self._subscription, HOOK, events, "ann"))
        await self._stage.engine.term.subscribers.run_once()
        await self.do(c.PutConnection(self.now, tenant, "sales", "encrypted", "postgresql://db/sales", "ann"))

    async def _add(self, tenant: str, schedule: str, *, quota: Quota | None = None, **fields: object) -> str:
        job = new_job(spec(schedule, **fields), now=self.now, tenant=tenant)
        record = c.IdempotencyRecord(tenant, f"key of {job.job_id}", "f", "answer")
        noted = entry_of("job.create", job.job_id, self.now)
        await self.do(c.CreateJobs(self.now, (job,), record, quota, (noted,)))
        self._stage.engine.term.timer.hint(job.due_at)
        return job.job_id

    async def _jobs(self, tenant: str) -> None:
        quota = Quota(tenant, "ann", Limit("jobs", 100, DAY))
        await self._add(tenant, "immediate", quota=quota, webhooks=Webhooks(on_success=HOOK))
        once = RetryPolicy(max_retries=0)
        await self._add(tenant, "immediate", url=f"{BAD}/{tenant}", retry_policy=once)
        later = await self._add(tenant, "2030-01-01T00:00:00Z")
        repeated = await self._add(tenant, "every 1h")
        paused = await self._add(tenant, "every 1m")
        await self.do(c.PauseJob(self.now, tenant, paused, "ann", "a holiday"))
        for job_id in (later, repeated, paused):
            await self.do(c.CancelJob(self.now, tenant, job_id, audit=entry_of("job.cancel", job_id, self.now)))
        first = await self._add(tenant, "every 1m", key="first")
        self._purged = [first, await self._add(tenant, "on_demand", key="then", after=("first",))]
        for _ in range(3):
            await self._stage.pass_time(60, step=60)
        dead = await self._store.list_executions(ExecutionQuery(tenant, dead=True))
        await self.do(c.Redrive(self.now, tenant, tuple((it.execution_id, new_id(self.now)) for it in dead)))
        await self._stage.tick()

    async def _work(self, tenant: str) -> None:
        """A worker and a node start, run executions, report progress, and leave."""
        await self._stage.let_run()
        functions = ("report",)
        worker = await self.do(c.JoinWorker(self.now, tenant, "ann", f"worker of {tenant}", functions, 4))
        node = await self.do(c.StartNode(self.now, f"node of {tenant}"))
        job_id = await self._add(tenant, "2030-01-01T00:00:00Z")
        await self.do(c.AddExecution(self.now, tenant, job_id, new_id(self.now), "manual"))
        for claim in await claim_waiting(self._store, int(str(node)), self.now):
            saved = c.SaveProgress(
                tenant, claim.execution_id, claim.job_id, claim.attempt, claim.token, '{"percent": 50}'
            )
            assert await self.do(saved) is True
            await self.do(c.Release(int(str(node)), self.now, (claim,)))
        await self._stage.tick()
        await self.do(c.CancelJob(self.now, tenant, job_id))
        await self.do(c.FenceNodes(self.now, (int(str(worker)), int(str(node)))))

    async def _end_of_day(self, tenant: str) -> None:
        await self.do(c.RemoveSubscription(tenant, self._subscription))
        await self._stage.engine.term.subscribers.run_once()
        await self.do(c.RemoveConnection(tenant, "sales"))
        for job_id in self._purged:
            await self.do(c.CancelJob(self.now, tenant, job_id))
            await self.do(c.PurgeJob(tenant, job_id))


async def keep_house(stage: Stage, until: int) -> None:
    """Lets time pass until then; at each instant the housekeeping runs until it finds nothing."""
    retention = stage.engine.term.retention
    while stage.clock.now() < until:
        stage.clock.set(min(stage.clock.now() + 2 * DAY, until))
        while (next_at := await retention.run_once()) < stage.clock.now() + MINUTE:
            stage.clock.set(next_at)


def grown(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {table: (first[table], count) for table, count in last.items() if count > first[table]}


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [2, pytest.param(4, marks=pytest.mark.soak)])
async def test_every_table_is_back_at_its_size_after_each_retention_period(
    store: Store, raw: Raw, backend: str, tmp_path: Path, cycles: int
):
    executor = ScriptedExecutor()
    executor.answer(lambda task: FAILURE if task.payload.url.startswith(BAD) else Outcome(http_status=200))
    stage = Stage(store, HandClock(), executor)
    stage.archive = AuditFolder(tmp_path / "audit")
    await stage.join(history_seconds=KEPT / SECOND, audit_seconds=KEPT / SECOND)
    measured, busiest = [], []
    for cycle in range(cycles):
        await Churn(stage, cycle).all_of_a_day()
        busiest.append(await sizes(raw, backend))
        await keep_house(stage, stage.clock.now() + KEPT + 10 * DAY)
        measured.append(await sizes(raw, backend))
    assert busiest[0]["executions"] > 20, "nothing was churned"
    assert grown(measured[0], measured[-1]) == {}
    left = await verified(store)
    exported = verify_files(files_of(tmp_path / "audit"))
    assert (left.broken, exported.broken) == (None, None)
    assert exported.entries > 3 * busiest[0]["audit"] // 2, "nothing was exported"
