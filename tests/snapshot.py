"""Everything that the port of a store returns, as one value: to check that a command changed nothing."""

from __future__ import annotations

from typing import Any

from duetime.domain.states import State
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery, Store
from samples import TENANT

ALL = 10_000


async def snapshot(store: Store, *tenants: str) -> dict[str, Any]:
    seen: dict[str, Any] = {
        "due": await store.list_due_timers(2**50, ALL),
        "next_due_at": await store.next_due_at(),
        "next_waiting_at": await store.next_waiting_at(),
        "load": await store.get_load(),
    }
    for tenant in tenants or (TENANT,):
        jobs = await store.list_jobs(JobQuery(tenant, limit=ALL))
        executions = await store.list_executions(ExecutionQuery(tenant, limit=ALL))
        seen[tenant] = {
            "jobs": jobs,
            "executions": executions,
            "attempts": {e.execution_id: await store.list_attempts(e.execution_id) for e in executions if e.attempt},
            "skipped": {job.job_id: await store.list_skipped(job.job_id, ALL) for job in jobs},
            "links": {job.job_id: await store.list_links(job.job_id) for job in jobs},
            "totals": await totals(store, tenant),
            "keys": await store.list_keys(tenant, ALL),
            "audit": [record.entry for record in await store.list_audit(AuditQuery(tenant, limit=ALL))],
        }
    return seen


async def totals(store: Store, tenant: str = TENANT) -> dict[str, int]:
    """The totals of the store, from its counters."""
    found = {state: await store.count_executions(ExecutionQuery(tenant, state=state)) for state in State}
    return {
        **found,
        "all": await store.count_executions(ExecutionQuery(tenant)),
        "jobs": await store.count_jobs(JobQuery(tenant)),
    }


async def recount(store: Store, tenant: str = TENANT) -> dict[str, int]:
    """The same totals, counted row by row."""
    executions = await store.list_executions(ExecutionQuery(tenant, limit=ALL))
    found = {state: sum(e.state is state for e in executions) for state in State}
    jobs = await store.list_jobs(JobQuery(tenant, limit=ALL))
    return {**found, "all": len(executions), "jobs": len(jobs)}
