"""Builds the SQL of lists for users: filters and orders from fixed pieces. Values are always bound."""

from __future__ import annotations

from typing import Any

from duetime.domain.ids import instant_of, is_id, make_id
from duetime.domain.instants import LATEST
from duetime.domain.job import JobStatus
from duetime.domain.states import OPEN
from duetime.ports.store import AuditQuery, ExecutionQuery, JobQuery
from duetime.store.reads import Sql
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


def get_job(job_id: str, tenant: str) -> Sql:
    values = {"job": job_id, "tenant": tenant}
    return f"{HELD_JOB_ROW} WHERE j.id = unhex(:job, '-') AND j.tenant = :tenant", values


def get_job_by_key(key: str, tenant: str) -> Sql:
    return f"{HELD_JOB_ROW} WHERE j.tenant = :tenant AND j.key = :key", {"key": key, "tenant": tenant}


def jobs_where(query: JobQuery) -> Sql:
    where, values = ["t.tenant = :tenant", "j.tenant = :tenant"], {"tenant": query.tenant}
    if query.status is not None:
        where.append(_status(query.status))
        values["status"] = query.status
    if is_narrow(query):  # SQLite uses a partial index only if its condition is here
        where.append("j.tenant <> 'default'" if query.owner is None else "j.owner <> 'local'")
    for column in ("type", "owner"):
        if (value := getattr(query, column)) is not None:
            where.append(f"j.{column} = :{column}")
            values[column] = value
    if query.name is not None:
        where.append("instr(lower(j.name), lower(:name)) > 0")
        values["name"] = query.name
    if query.tag is not None:
        key, value = query.tag
        condition = "tag.key = :tag_key" + ("" if value is None else " AND tag.value = :tag_value")
        where.append(f"EXISTS (SELECT 1 FROM json_each(j.spec, '$.tags') AS tag WHERE {condition})")
        values |= {"tag_key": key} | ({} if value is None else {"tag_value": value})
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
        values |= {"after_value": query.after[0], "after_id": query.after[1]}
    values |= {"limit": query.limit, "offset": query.offset}
    rows = JOB_ROW
    if query.sort == "name" or is_narrow(
        query
    ):  # CROSS JOIN fixes which table leads, and so whose index gives the order
        rows = rows.replace("FROM timers AS t CROSS JOIN jobs AS j", "FROM jobs AS j CROSS JOIN timers AS t")
    return f"{rows} WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :offset", values


def soonest_jobs(query: JobQuery) -> Sql:
    """The first page by next run, from the index of due timers: no sort of a million rows to show twenty."""
    where, values = jobs_where(query)
    direction = "DESC" if query.order == "desc" else "ASC"
    values |= {"limit": query.limit, "offset": query.offset}
    return (
        f"{JOB_ROW} WHERE t.due_at IS NOT NULL AND t.due_at < {LATEST} AND {where}"
        f" ORDER BY t.due_at {direction}, t.job {direction} LIMIT :limit OFFSET :offset",
        values,
    )


def count_jobs(query: JobQuery) -> Sql:
    where, values = jobs_where(query)
    return f"SELECT count(*) AS row FROM jobs AS j JOIN timers AS t ON t.job = j.id WHERE {where}", values


def executions_where(query: ExecutionQuery) -> Sql:
    where = ["e.tenant = :tenant"]
    values: dict[str, Any] = {"tenant": query.tenant}
    if query.job_id is not None:
        where.append("e.job = unhex(:job, '-')")
        values["job"] = query.job_id
    if query.state is not None:
        where.append("e.state = :state")
        values["state"] = query.state
        if query.state in OPEN and query.job_id is not None:
            where.append("e.state IN ('QUEUED', 'RUNNING', 'RETRYING')")
    if query.tenant != "default":
        where.append("e.tenant <> 'default'")
    if query.owner is not None:
        narrow = " AND owner <> 'local'" if query.owner != "local" else ""
        where.append(f"e.job IN (SELECT id FROM jobs WHERE tenant = :tenant AND owner = :owner{narrow})")
        values["owner"] = query.owner
    if query.dead:
        where.append("e.dead = 1")
    # An id begins with the instant it is scheduled for, so a time span is a range of the primary key.
    for name, at, sign in (("since", query.since, ">="), ("until", query.until, "<")):
        if at is not None:
            where.append(f"e.id {sign} unhex(:{name}, '-') AND e.scheduled_at {sign} :{name}_at")
            values |= {name: make_id(at, bytes(10)), f"{name}_at": str(at)}
    if query.error_type is not None or query.http_status is not None:
        where.append(_last_attempt(query, values))
    if query.runnable:
        where.append("EXISTS (SELECT 1 FROM timers AS t WHERE t.job = e.job AND t.status <> 'CANCELLED')")
    return " AND ".join(where), values


def _last_attempt(query: ExecutionQuery, values: dict[str, Any]) -> str:
    conditions = ["l.execution = e.id", "l.attempt = e.attempt"]
    if query.error_type is not None:
        conditions.append("l.error_type = :error_type")
        values["error_type"] = query.error_type
    if query.http_status is not None:
        conditions.append("l.http_status >= :status_from AND l.http_status < :status_below")
        values |= {"status_from": str(query.http_status[0]), "status_below": str(query.http_status[1])}
    return f"EXISTS (SELECT 1 FROM attempts AS l WHERE {' AND '.join(conditions)})"


def get_execution(execution_id: str, tenant: str) -> Sql:
    values = {"id": execution_id, "tenant": tenant}
    return f"{EXECUTION_ROW} WHERE e.id = unhex(:id, '-') AND e.tenant = :tenant", values


def list_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    if query.after is not None:
        if query.job_id is None:
            where += " AND e.id < unhex(:after, '-')"
        else:
            # The instant comes from the id: the row itself may have been pruned.
            where += " AND (e.scheduled_at, e.id) < (:after_at, unhex(:after, '-'))"
            values["after_at"] = instant_of(query.after)
        values["after"] = query.after
    order = "e.id DESC" if query.job_id is None else "e.scheduled_at DESC, e.id DESC"
    values |= {"limit": str(query.limit), "offset": str(query.offset)}
    return f"{EXECUTION_ROW} WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :offset", values


def count_executions(query: ExecutionQuery) -> Sql:
    where, values = executions_where(query)
    return f"SELECT count(*) AS row FROM executions AS e WHERE {where}", values


def list_audit(query: AuditQuery) -> Sql:
    where, values = ["tenant = :tenant"], {"tenant": query.tenant, "limit": query.limit}
    if query.resource is not None:
        # Jobs that were created in a batch share one entry. Their ids begin with the entry's instant.
        batch = "resource = '' AND entry ->> 0 = :created_at AND instr(entry, :resource) > 0"
        where.append(f"(resource = :resource OR ({batch}))")
        values |= {
            "resource": query.resource,
            "created_at": instant_of(query.resource) if is_id(query.resource) else -1,
        }
    for place, value, sign in (
        (2, query.actor, "="), (5, query.action, "="), (0, query.since, ">="), (0, query.until, "<")
    ):  # fmt: skip
        if value is not None:
            name = f"value{len(values)}"
            where.append(f"entry ->> {place} {sign} :{name}")
            values[name] = value
    if query.before is not None:
        where.append("number < :before")
        values["before"] = query.before
    return (
        f"SELECT json_array(number, json(entry)) AS row FROM audit WHERE {' AND '.join(where)}"
        " ORDER BY number DESC LIMIT :limit",
        values,
    )
