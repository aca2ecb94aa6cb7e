"""The totals that a store keeps, so that counting jobs and executions reads a few rows: by tenant and name."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain.job import JobStatus
from duetime.domain.states import State
from duetime.ports.store import ExecutionQuery, Totals

JOBS, BYTES = "jobs", "bytes"  # the names that jobs and their sizes are counted under; an execution's is its state
ALL = ""  # the tenant under which the totals of all tenants are counted
JobMoves = dict[tuple[str, str], int]  # by tenant and status


def moved_jobs(tenant: str, before: str | None, after: str | None, number: int = 1) -> JobMoves:
    """Returns how totals change when jobs of a tenant change their status. None: there is no such job.

    Jobs that are PENDING are not counted: they are all the others, so a create counts only once.
    """
    if before == after:
        return {}
    moves = [(status, by) for status, by in ((before, -number), (after, number)) if status not in _UNCOUNTED]
    return {(of, str(status)): by for status, by in moves for of in (tenant, ALL)}


_UNCOUNTED = (None, JobStatus.PENDING)


def read_totals(rows: Iterable[tuple[str, int]]) -> Totals:
    """`rows`: names of totals and their values."""
    values = dict(rows)
    jobs = {str(status): values.get(status, 0) for status in JobStatus}
    jobs[JobStatus.PENDING] = values.get(JOBS, 0) - sum(jobs.values())
    return Totals(jobs, {str(state): values.get(f"{EXECUTIONS}{state}", 0) for state in State})


EXECUTIONS = "executions "  # precedes the states in the rows of `get_totals`: COMPLETED is a status of jobs, too


def totals_of(query: ExecutionQuery) -> list[str] | None:
    """Returns the names of the totals whose sum is the number of executions; None if the query has other filters."""
    filters = (query.job_id, query.owner, query.since, query.until, query.error_type, query.http_status)
    if all(value is None for value in filters) and not query.dead and not query.runnable:
        return [query.state] if query.state else [str(state) for state in State]
    return None
