"""Jobs, commands and short sequences of store calls that many tests begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from duetime.domain import commands as c
from duetime.domain.audit import BEFORE_ALL, Entry, Head, Verifier, entry
from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude
from duetime.domain.identity import Caller, Role, Tier, rights_of
from duetime.domain.ids import execution_id, make_id, shard_of
from duetime.domain.job import HttpJob, JobSpec
from duetime.domain.payloads import HttpRequest
from duetime.domain.plan import DueTimer, FirePlan, plan
from duetime.domain.schedule import first_due, timetable
from duetime.domain.states import Trigger
from duetime.ports.store import ExecutionQuery, ExecutionRecord, JobRecord, Store
from duetime.testing import SUCCESS

NOW = 1_767_225_600_000  # 2026-01-01T00:00Z, a Thursday
URL = "https://hook.example/run"
TENANT = "acme"

_numbers = count(1)


def new_id(at: int = NOW) -> str:
    """Ids that ascend in the order of their creation."""
    return make_id(at, (next(_numbers) << 4).to_bytes(10, "big"))


def spec(schedule: str = "every 1m", *, url: str = URL, **fields: Any) -> JobSpec:
    return HttpJob(**{"name": "report", "schedule": schedule, "payload": HttpRequest(url)} | fields)


def new_job(job: JobSpec | None = None, *, now: int = NOW, tenant: str = TENANT, **fields: Any) -> c.NewJob:
    """The test may set `due_at` and `job_id`; by default the first follows from the schedule."""
    job = job or spec()
    job_id = fields.pop("job_id", None) or new_id(now)
    due_at = fields.pop("due_at", None)
    if due_at is None:
        due_at, _ = first_due(job, job_id, now)
    recurs = timetable(job, job_id, now).recurs
    owner = fields.pop("owner", "ann")
    assert not fields, fields
    return c.NewJob(job_id, tenant, job.key, job.name, job.type, owner, shard_of(job_id), recurs, due_at, job)


def claim_of(job: JobSpec, **fields: Any) -> Claim:
    """The claim of an execution of this job."""
    known = {"execution_id": new_id(), "job_id": new_id(), "tenant": TENANT, "scheduled_at": NOW}
    known |= {"trigger": Trigger.SCHEDULE, "priority": job.priority, "endpoint": 1, "attempt": 1, "token": 1}
    return Claim(**known | {"cancel_requested": False, "spec": job} | fields)


async def one(store: Store, command: c.Command) -> Any:
    """Applies one command and returns its result."""
    (answer,) = await store.apply([command])
    return answer


async def add_job(store: Store, job: JobSpec | None = None, *, now: int = NOW, **fields: Any) -> str:
    made = new_job(job, now=now, **fields)
    assert await one(store, c.CreateJobs(now, (made,))) is None
    return made.job_id


async def due_timers(store: Store, until: int, *job_ids: str) -> list[DueTimer]:
    timers = await store.list_due_timers(until, 1000)
    return [timer for timer in timers if not job_ids or timer.job_id in job_ids]


def planned_id(job_id: str, at: int) -> str:
    """The id that `decide` gives an execution: a test can compute it."""
    return execution_id(at, int(job_id.replace("-", "")[-16:], 16))


def decide(timers: Sequence[DueTimer], now: int) -> FirePlan:
    page = plan(timers, now, 0)
    for rows in (page.executions, page.claims):
        rows[:] = [msgspec.structs.replace(row, execution_id=planned_id(row.job_id, row.scheduled_at)) for row in rows]
    return page


async def fire(store: Store, node: int, now: int, *job_ids: str, claim: bool = True) -> tuple[c.Fired, list[Claim]]:
    """Plans and fires due timers (of these jobs); returns the result of the store, and the claims."""
    timers = await due_timers(store, now, *job_ids)
    page = decide(timers, now)
    fired = await one(store, c.Fire(node, now, claim, tuple(page.moves), tuple(page.executions), tuple(page.skips)))
    assert isinstance(fired, c.Fired), fired
    claims = [
        one
        for one in page.claims
        if claim and one.execution_id not in fired.not_claimed and one.job_id not in fired.stale_jobs
    ]
    return fired, claims


async def claim_waiting(store: Store, node: int, now: int, limit: int = 100, full: tuple[int, ...] = ()) -> list[Claim]:
    """Claims for every tenant with waiting executions; `full` endpoints are those of TENANT."""
    tenants = tuple(await store.list_waiting_tenants(now, "", 1000))
    claimed = await one(
        store, c.ClaimExecutions(node, now, limit, tenants, tuple((TENANT, endpoint) for endpoint in full))
    )
    assert isinstance(claimed, list), claimed
    return claimed


def ended(claim: Claim, outcome: Outcome = SUCCESS, *, started_at: int | None = None, now: int = NOW) -> AttemptEnd:
    """The end of an attempt; the wait for its retry, if any, is the longest that the jitter allows."""
    return conclude(claim, outcome, now if started_at is None else started_at, now, 1.0)


async def finish(store: Store, node: int, now: int, *attempts: AttemptEnd) -> list[str]:
    refused: list[str] = await one(store, c.Finish(node, now, attempts))
    assert isinstance(refused, list), refused
    return refused


async def add_execution(store: Store, job_id: str, now: int = NOW, tenant: str = TENANT, **fields: Any) -> str:
    trigger = fields.pop("trigger", Trigger.MANUAL)
    execution_id = fields.pop("execution_id", None) or new_id(now)
    answer = await one(store, c.AddExecution(now, tenant, job_id, execution_id, trigger))
    assert answer == execution_id, answer
    return execution_id


async def execution(store: Store, execution_id: str, tenant: str = TENANT) -> ExecutionRecord:
    found = await store.get_execution(tenant, execution_id)
    assert found is not None
    return found


async def job_of(store: Store, job_id: str, tenant: str = TENANT) -> JobRecord:
    found = await store.get_job(tenant, job_id)
    assert found is not None
    return found


async def executions_of(store: Store, job_id: str, tenant: str = TENANT) -> list[ExecutionRecord]:
    """Oldest first."""
    return (await store.list_executions(ExecutionQuery(tenant, job_id=job_id, limit=1000)))[::-1]


# Callers, and the audit of their commands

ANN = Caller(TENANT, "ann", Role.USER, Tier.FREE, rights_of(Role.USER, None), "jwt", request_id="request-1")


def entry_of(action: str, resource: str = "", at: int = NOW, caller: Caller = ANN, **fields: Any) -> Entry:
    return entry(caller, at, action, resource, **fields)


def new_key(key_id: str = "key-1", tenant: str = TENANT, **fields: Any) -> c.NewKey:
    known = {"user_id": "ann", "name": "ci", "role": Role.USER, "tier": Tier.FREE, "scopes": ("read",)}
    return c.NewKey(**{"key_id": key_id, "tenant": tenant, "secret_hash": "00ff", "created_by": "ann"} | known | fields)


def change_of(job_id: str, job: JobSpec, version: int = 1, *, now: int = NOW, **fields: Any) -> c.ChangeJob:
    """Another definition with the same due instant."""
    known = {"now": now, "tenant": TENANT, "job_id": job_id, "version": version, "key": job.key, "name": job.name}
    return c.ChangeJob(
        **known | {"type": job.type, "recurs": True, "due_at": None, "spec": job, "replan": False} | fields
    )


async def verified(store: Store, earlier: Mapping[int, Head] | None = None, page: int = 7) -> Verifier:
    """Reads and verifies the whole audit of the store."""
    checkpoints = {it.chain: (it.link, it.hash) for it in await store.list_audit_checkpoints()}
    verifier, after = Verifier(earlier, checkpoints), BEFORE_ALL
    while pages := await store.list_audit_pages(after, page):
        for found in pages:
            verifier.add(found.chain, found.link, found.hash, found.rows)
        after = pages[-1].chain, pages[-1].link
    verifier.end()
    return verifier
