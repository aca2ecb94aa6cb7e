"""Builds the SQL of lists for users: filters and orders from fixed pieces. Values are always bound."""

from __future__ import annotations

from duetime.domain.ids import instant_of
from duetime.domain.instants import LATEST
from duetime.domain.job import JobStatus
from duetime.domain.states import OPEN
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery
from duetime.store.filtering import Sql, audit_values, execution_values, given, job_values

# A job's next run as users see it. A job on demand is stored as due at LATEST, and has no next run.
NEXT = f"nullif(t.due_at, {LATEST})"

JOB_ROW = """
SELECT rtrim(json_build_array(j.id, j.tenant, j.owner, t.version, t.status, j.created_at, j.updated_at, t.due_at,
                              t.resume_at, t.fired, t.runs, t.successes, t.failures, t.busy_ms, t.last_run_at,
                              t.last_state, j.paused_by, j.paused_at, j.pause_reason)::text, ']')
       || ',' || j.spec || ']' AS row
FROM jobs AS j JOIN timers AS t ON t.job = j.id
"""
HELD_JOB_ROW = JOB_ROW.replace(
    "j.spec", 'CASE WHEN j.size > 4608 THEN \'{"type":"large","spec":\' || j.spec || \'}\' ELSE j.spec END'
)
EXECUTION_ROW = """
SELECT json_build_array(e.id, e.job, e.scheduled_at, e.trigger, coalesce(o.state, e.state), e.reason, e.priority,
                        coalesce(o.due_at, e.due_at, e.scheduled_at), coalesce(o.held, false),
                        coalesce(o.attempt, e.attempt), coalesce(o.token, e.token), n.name,
                        coalesce(o.started_at, e.started_at), e.ended_at, a.error_type, a.error_message, a.http_status,
                        a.exit_code, a.response, e.dead)::text AS row
"""
# The state of an open execution is in its row in open_runs.
_EXECUTIONS = """
FROM executions AS e
LEFT JOIN open_runs AS o ON o.job = e.job AND o.execution = e.id AND e.state IS NULL
"""
_DETAILS = """
LEFT JOIN attempts AS a ON a.scheduled_at = e.scheduled_at AND a.execution = e.id
                           AND a.attempt = coalesce(o.attempt, e.attempt)
LEFT JOIN nodes AS n ON n.id = coalesce(o.node, e.node)
"""

# PostgreSQL can't extract anything from JSON text that contains a NUL, so NULs are replaced.
_ENTRY = r"replace(a.entry, '\u0000', '\ufffd')::json"

# The conditions of a query's values.
_OF_JOBS = {
    "type": "j.type = :type::text",
    "owner": "j.owner = :owner::text",
    "name": 'strpos(lower(j.name), lower(:name::text COLLATE "C")) > 0',
}
_OF_EXECUTIONS = {
    "job": "e.job = :job::uuid",
    "since": "e.scheduled_at >= :since::bigint",
    "until": "e.scheduled_at < :until::bigint",
}
_OF_ATTEMPTS = {
    "error_type": "l.error_type = :error_type::text",
    "status_from": "l.http_status >= :status_from::integer AND l.http_status < :status_below::integer",
}
_OF_AUDIT = {
    "resource": (
        f"(a.resource = :resource::text OR (a.resource = '' AND ({_ENTRY} ->> 0)::bigint = :created_at::bigint"
        " AND strpos(a.entry, :resource::text) > 0))"
    ),
    "actor": f"({_ENTRY} ->> 2)::text = :actor::text",
    "action": f"({_ENTRY} ->> 5)::text = :action::text",
    "since": f"({_ENTRY} ->> 0)::bigint >= :since::bigint",
    "until": f"({_ENTRY} ->> 0)::bigint < :until::bigint",
    "before": "a.number < :before::bigint",
}


def get_job(job_id: str, tenant: str) -> Sql:
    values = {"job": job_id, "tenant": tenant}
    return f"{HELD_JOB_ROW} WHERE j.id = :job::uuid AND j.tenant = :tenant::text", values


def get_job_by_key(key: str, tenant: str) -> Sql:
    return f"{HELD_JOB_ROW} WHERE j.key = :key::text AND j.tenant = :tenant::text", {"key": key, "tenant": tenant}


def jobs_where(query: JobQuery) -> Sql:
    values = job_values(query)
    where = ["j.tenant = :tenant::text"]
    if query.status is not None:
        where.append(_status(query.status))
    where += _partial("j", query.tenant, query.owner)
    where += given(values, _OF_JOBS)
    if query.tag is not None:
        has_value = "tag_value" in values
        where.append("j.tags ->> :tag_key::text = :tag_value::text" if has_value else "j.tags ? :tag_key::text")
    return " AND ".join(where), values


def _partial(row: str, tenant: str, owner: str | None) -> list[str]:
    """Returns the conditions of the partial indexes that apply here, so that the planner can use them."""
    found = [f"{row}.tenant <> 'default'"] if tenant != "default" else []
    return found + ([f"{row}.owner <> 'local'"] if owner not in (None, "local") else [])


def _status(status: str) -> str:
    if status in set(JobStatus):
        return "t.status = :status::text"
    if status in OPEN:
        return "EXISTS (SELECT 1 FROM open_runs AS o WHERE o.job = t.job AND o.state = :status::text)"
    return "t.last_state = :status::text"


def list_jobs(query: JobQuery) -> Sql:
    where, values = jobs_where(query)
    down = query.order == "desc"
    later = "<" if down else ">"
    direction = "DESC" if down else "ASC"
    if query.sort == "created_at":  # an id begins with the instant of its creation
        order = f"j.id {direction}"
        after = f"j.id {later} :after_id::uuid"
    elif query.sort == "name":
        order = f"j.name {direction}, j.id {direction}"
        after = f"(j.name, j.id) {later} (:after_value::text, :after_id::uuid)"
    else:  # jobs without a next run come last in both directions
        order = f"{NEXT} {direction} NULLS LAST, j.id {direction}"
        if query.after is not None and query.after[0] is None:
            after = f"{NEXT} IS NULL AND j.id {later} :after_id::uuid"
        else:
            after = f"({NEXT} IS NULL OR (t.due_at, j.id) {later} (:after_value::bigint, :after_id::uuid))"
    if query.after is not None:
        where += f" AND {after}"
    return f"{JOB_ROW} WHERE {where} ORDER BY {order} LIMIT :limit::bigint OFFSET :offset::bigint", values


def count_jobs(query: JobQuery) -> Sql:
    where, values = jobs_where(query)
    return f"SELECT count(*)::text AS row FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE {where}", values


def executions_where(query: ExecutionQuery) -> Sql:
    values = execution_values(query)
    where = ["e.tenant = :tenant::text", *_partial("e", query.tenant, None), *given(values, _OF_EXECUTIONS)]
    if query.state is not None:
        where.append("o.state = :state::text" if query.state in OPEN else "e.state = :state::text")
    if query.owner is not None:
        owned = " AND ".join(
            ["j.tenant = :tenant::text", "j.owner = :owner::text", *_partial("j", "default", query.owner)]
        )
        where.append(f"e.job IN (SELECT j.id FROM jobs AS j WHERE {owned})")
    if query.dead:
        where.append("e.dead")
    if last := given(values, _OF_ATTEMPTS):
        same = "l.scheduled_at = e.scheduled_at AND l.execution = e.id AND l.attempt = coalesce(o.attempt, e.attempt)"
        where.append(f"EXISTS (SELECT 1 FROM attempts AS l WHERE {' AND '.join([same, *last])})")
    if query.runnable:
        where.append("EXISTS (SELECT 1 FROM timers AS t WHERE t.job = e.job AND t.status <> 'CANCELLED')")
    return " AND ".join(where), values


def get_execution(execution_id: str, tenant: str) -> Sql:
    # The id contains the instant, which selects the partition.
    values = {"id": execution_id, "at": instant_of(execution_id), "tenant": tenant}
    where = "e.scheduled_at = :at::bigint AND e.id = :id::uuid AND e.tenant = :tenant::text"
    return f"{EXECUTION_ROW}{_EXECUTIONS}{_DETAILS} WHERE {where}", values


def list_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    if query.after is not None:
        where += " AND (e.scheduled_at, e.id) < (:after_at::bigint, :after::uuid)"
    return (
        f"{EXECUTION_ROW}{_EXECUTIONS}{_DETAILS} WHERE {where} ORDER BY e.scheduled_at DESC, e.id DESC"
        " LIMIT :limit::bigint OFFSET :offset::bigint",
        values,
    )


def count_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    return f"SELECT count(*)::text AS row {_EXECUTIONS} WHERE {where}", values


def list_audit(query: AuditQuery) -> Sql:
    values = audit_values(query)
    where = " AND ".join(["a.tenant = :tenant::text", *given(values, _OF_AUDIT)])
    return (
        "SELECT '[' || a.number || ',' || a.entry || ']' AS row FROM audit AS a"
        f" WHERE {where} ORDER BY a.number DESC LIMIT :limit::bigint",
        values,
    )
