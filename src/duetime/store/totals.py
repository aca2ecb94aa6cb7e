"""The totals that a store keeps, so that counting jobs and executions reads a few rows: by tenant and name."""

from __future__ import annotations

from duetime.domain.states import State
from duetime.ports.store import ExecutionQuery

JOBS, BYTES = "jobs", "bytes"  # the names that jobs and their sizes are counted under; an execution's is its state
ALL = ""  # the tenant under which the totals of all tenants are counted


def totals_of(query: ExecutionQuery) -> list[str] | None:
    """Returns the names of the totals whose sum is the number of executions; None if the query has other filters."""
    filters = (query.job_id, query.owner, query.since, query.until, query.error_type, query.http_status)
    if all(value is None for value in filters) and not query.dead and not query.runnable:
        return [query.state] if query.state else [str(state) for state in State]
    return None
