"""Builds the SQL of lists for users: filters and orders from fixed pieces. Values are always bound."""

from __future__ import annotations

from duetime.domain.ids import make_id
from duetime.domain.instants import LATEST
from duetime.domain.job import JobStatus
from duetime.domain.states import OPEN
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery
from duetime.store.filtering import Sql, audit_values, execution_values, given, job_values
from duetime.store.sqlite.blocks import expand

# A job's next run as users see it. A job on demand is stored as due at LATEST, and has no next run.
NEXT = f"nullif(t.due_at, {LATEST})"

JOB_ROW = expand("""
SELECT rtrim(json_array(uuid_text(j.id), j.tenant, j.owner, t.version, t.status, j.created_at, j.updated_at, t.due_at,
                        t.resume_at, t.fired, t.runs, t.successes, t.failures, t.busy_ms, t.last_run_at, t.last_state,
                        j.paused_by, j.paused_at, j.pause_reason), ']') || ',' || j.spec || ']' AS row
FROM timers AS t CROSS JOIN jobs AS j ON j.id = t.job
""")
HELD_JOB_ROW = JOB_ROW.replace("j.spec", 'iif(j.size > 4608, \'{"type":"large","spec":\' || j.spec || \'}\', j.spec)')
EXECUTION_ROW = expand("""
SELECT rtrim(json_array(uuid_text(e.id), uuid_text(e.job), e.scheduled_at, e.trigger, e.state, e.reason, e.priority,
                        e.due_at), ']')
       || ',' || iif(e.held, 'true', 'false') || ','
       || trim(json_array(e.attempt, e.token, n.name, e.started_at, e.ended_at, a.error_type, a.error_message,
                          a.http_status, a.exit_code, a.response), '[]')
       || ',' || iif(e.dead, 'true', 'false') || ']' AS row
FROM executions AS e
LEFT JOIN attempts AS a ON a.execution = e.id AND a.attempt = e.attempt
LEFT JOIN nodes AS n ON n.id = e.node
""")

# The conditions of a query's values.
_OF_JOBS = {
    "type": "j.type = :type",
    "owner": "j.owner = :owner",
    "name": "instr(lower(j.name), lower(:name)) > 0",
}
_OF_TAGS = {"tag_key": "tag.key = :tag_key", "tag_value": "tag.value = :tag_value"}
_OF_EXECUTIONS = {
    "job": "e.job = unhex(:job, '-')",
    "state": "e.state = :state",
    "since": "e.id >= unhex(:since_id, '-') AND e.scheduled_at >= :since",
    "until": "e.id < unhex(:until_id, '-') AND e.scheduled_at < :until",
}
_OF_ATTEMPTS = {
    "error_type": "l.error_type = :error_type",
    "status_from": "l.http_status >= :status_from AND l.http_status < :status_below",
}
_OF_AUDIT = {
    "resource": (
        "(resource = :resource OR (resource = '' AND entry ->> 0 = :created_at AND instr(entry, :resource) > 0))"
    ),
    "actor": "entry ->> 2 = :actor",
    "action": "entry ->> 5 = :action",
    "since": "entry ->> 0 >= :since",
    "until": "entry ->> 0 < :until",
    "before": "number < :before",
}


def get_job(job_id: str, tenant: str) -> Sql:
    values = {"job": job_id, "tenant": tenant}
    return f"{HELD_JOB_ROW} WHERE j.id = unhex(:job, '-') AND j.tenant = :tenant", values


def get_job_by_key(key: str, tenant: str) -> Sql:
    return f"{HELD_JOB_ROW} WHERE j.tenant = :tenant AND j.key = :key", {"key": key, "tenant": tenant}


def jobs_where(query: JobQuery) -> Sql:
    values = job_values(query)
    where = ["t.tenant = :tenant", "j.tenant = :tenant"]
    if query.status is not None:
        where.append(_status(query.status))
    if is_narrow(query):  # SQLite uses a partial index only if its condition is here
        where.append("j.tenant <> 'default'" if query.owner is None else "j.owner <> 'local'")
    where += given(values, _OF_JOBS)
    if query.tag is not None:
        tags = " AND ".join(given(values, _OF_TAGS))
        where.append(f"EXISTS (SELECT 1 FROM json_each(j.spec, '$.tags') AS tag WHERE {tags})")
    return " AND ".join(where), values


def is_narrow(query: JobQuery) -> bool:
    """Returns whether a partial index covers these jobs (or few others): they may be few among many."""
    return query.tenant != "default" if query.owner is None else query.owner != "local"


def _status(status: str) -> str:
    if status in set(JobStatus):
        return "t.status = :status"
    if status in OPEN:
        return (
            "EXISTS (SELECT 1 FROM executions AS e WHERE e.job = t.job AND e.state = :status"
            " AND e.state IN ('QUEUED', 'RUNNING', 'RETRYING'))"
        )
    return "t.last_state = :status"


def list_jobs(query: JobQuery) -> Sql:
    where, values = jobs_where(query)
    down = query.order == "desc"
    later = "<" if down else ">"
    direction = "DESC" if down else "ASC"
    job = "j.id" if is_narrow(query) else "t.job"
    if query.sort == "created_at":  # an id begins with the instant of its creation
        order = f"{job} {direction}"
        after = f"{job} {later} unhex(:after_id, '-')"
    elif query.sort == "name":
        order = f"j.name {direction}, j.id {direction}"
        after = f"(j.name, j.id) {later} (:after_value, unhex(:after_id, '-'))"
    else:  # jobs without a next run come last in both directions
        order = f"{NEXT} IS NULL, {NEXT} {direction}, t.job {direction}"
        row = f"(t.due_at, t.job) {later} (:after_value, unhex(:after_id, '-'))"
        tail = f"{NEXT} IS NULL AND t.job {later} unhex(:after_id, '-')"
        after = f"iif(:after_value IS NULL, {tail}, {NEXT} IS NULL OR {row})"
    if query.after is not None:
        where += f" AND {after}"
    rows = JOB_ROW
    if query.sort == "name" or is_narrow(query):
        # CROSS JOIN fixes which table leads, and so whose index gives the order.
        rows = rows.replace("FROM timers AS t CROSS JOIN jobs AS j", "FROM jobs AS j CROSS JOIN timers AS t")
    return f"{rows} WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :offset", values


def soonest_jobs(query: JobQuery) -> Sql:
    """The first page by next run, from the index of due timers: no sort of a million rows to show twenty."""
    where, values = jobs_where(query)
    direction = "DESC" if query.order == "desc" else "ASC"
    return (
        f"{JOB_ROW} WHERE t.due_at IS NOT NULL AND t.due_at < {LATEST} AND {where}"
        f" ORDER BY t.due_at {direction}, t.job {direction} LIMIT :limit OFFSET :offset",
        values,
    )


def count_jobs(query: JobQuery) -> Sql:
    where, values = jobs_where(query)
    return f"SELECT count(*) AS row FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE {where}", values


def executions_where(query: ExecutionQuery) -> Sql:
    values = execution_values(query)
    # An id begins with the instant it is scheduled for, so a time span is a range of the primary key.
    values |= {f"{name}_id": make_id(values[name], bytes(10)) for name in ("since", "until") if name in values}
    where = ["e.tenant = :tenant", *given(values, _OF_EXECUTIONS)]
    if query.state in OPEN and query.job_id is not None:
        where.append("e.state IN ('QUEUED', 'RUNNING', 'RETRYING')")
    if query.tenant != "default":
        where.append("e.tenant <> 'default'")
    if query.owner is not None:
        narrow = " AND owner <> 'local'" if query.owner != "local" else ""
        where.append(f"e.job IN (SELECT id FROM jobs WHERE tenant = :tenant AND owner = :owner{narrow})")
    if query.dead:
        where.append("e.dead = 1")
    if last := given(values, _OF_ATTEMPTS):
        of_last = ["l.execution = e.id", "l.attempt = e.attempt", *last]
        where.append(f"EXISTS (SELECT 1 FROM attempts AS l WHERE {' AND '.join(of_last)})")
    if query.runnable:
        where.append("EXISTS (SELECT 1 FROM timers AS t WHERE t.job = e.job AND t.status <> 'CANCELLED')")
    return " AND ".join(where), values


def get_execution(execution_id: str, tenant: str) -> Sql:
    values = {"id": execution_id, "tenant": tenant}
    return f"{EXECUTION_ROW} WHERE e.id = unhex(:id, '-') AND e.tenant = :tenant", values


def list_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    order = "e.id DESC" if query.job_id is None else "e.scheduled_at DESC, e.id DESC"
    if query.after is not None and query.job_id is None:
        where += " AND e.id < unhex(:after, '-')"
    elif query.after is not None:
        where += " AND (e.scheduled_at, e.id) < (:after_at, unhex(:after, '-'))"
    return f"{EXECUTION_ROW} WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :offset", values


def count_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    return f"SELECT count(*) AS row FROM executions AS e WHERE {where}", values


def list_audit(query: AuditQuery) -> Sql:
    values = audit_values(query)
    where = " AND ".join(["tenant = :tenant", *given(values, _OF_AUDIT)])
    return (
        f"SELECT json_array(number, json(entry)) AS row FROM audit WHERE {where} ORDER BY number DESC LIMIT :limit",
        values,
    )
