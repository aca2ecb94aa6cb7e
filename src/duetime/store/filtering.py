"""The values that filter users' lists: those of a query, under the names that the SQL of the stores uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duetime.domain.ids import instant_of, is_id
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery

Sql = tuple[str, dict[str, Any]]  # a statement and its values


def job_values(query: JobQuery) -> dict[str, Any]:
    tag_key, tag_value = query.tag or (None, None)
    after = {} if query.after is None else {"after_value": query.after[0], "after_id": query.after[1]}
    return after | _given(
        tenant=query.tenant, status=query.status, type=query.type, owner=query.owner, name=query.name, tag_key=tag_key,
        tag_value=tag_value, limit=query.limit, offset=query.offset,
    )  # fmt: skip


def execution_values(query: ExecutionQuery) -> dict[str, Any]:
    status_from, status_below = query.http_status or (None, None)
    after_at = None if query.after is None else instant_of(query.after)  # the row itself may have been pruned
    return _given(
        tenant=query.tenant, job=query.job_id, state=query.state, owner=query.owner, since=query.since,
        until=query.until, error_type=query.error_type, status_from=status_from, status_below=status_below,
        after=query.after, after_at=after_at, limit=query.limit, offset=query.offset,
    )  # fmt: skip


def audit_values(query: AuditQuery) -> dict[str, Any]:
    """`created_at`: jobs that were created in a batch share one entry, and their ids begin with its instant."""
    resource = query.resource
    created_at = None if resource is None else instant_of(resource) if is_id(resource) else -1
    return _given(
        tenant=query.tenant, resource=resource, created_at=created_at, actor=query.actor, action=query.action,
        since=query.since, until=query.until, before=query.before, limit=query.limit,
    )  # fmt: skip


def given(values: Mapping[str, Any], conditions: Mapping[str, str]) -> list[str]:
    """Returns the conditions whose values are given."""
    return [condition for name, condition in conditions.items() if name in values]


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
