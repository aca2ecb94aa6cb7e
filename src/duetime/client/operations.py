"""The operations of the API. Each builds a `Call`, a `Listed` or a `Followed`, which the clients send.

A new route is a function here and a line in each of `sync.py` and `aio.py`. A request with optional fields is a dict of
the given ones: the server has defaults for the others, and may accept values that are newer than this client.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, cast

import msgspec

from duetime.client import models as m
from duetime.client.batch import Definition
from duetime.client.calls import (
    IDEMPOTENCY_KEY,
    Call,
    Followed,
    Frame,
    Listed,
    Value,
    get,
    given,
    path_of,
    send,
    with_query,
)
from duetime.client.errors import UnknownAnswer

Instant = datetime | str
IfMatch = int | str | None

RESET = m.Event(None, "reset", {"message": "the connection broke; events may have been lost: read the lists again"})


# Jobs


def create_job(job: Definition, *, idempotency_key: str | None = None) -> Call[m.CreatedJob]:
    """Create a job, given as a struct of `duetime.domain.job` or as a dict.

    It is sent with an idempotency key, by default a random one, so that a retry after a broken connection creates no
    second job. With your own key, this also works across processes, for a day.
    """
    key = idempotency_key or secrets.token_hex(16)
    return send("POST", path_of("jobs"), m.CreatedJob, job, may_repeat=True, **{IDEMPOTENCY_KEY: key})


def list_jobs(
    *,
    status: m.StatusWord | m.StateWord | None = None,
    type: m.TypeWord | None = None,
    name: str | None = None,
    tag: str | None = None,
    owner: str | None = None,
    sort: Literal["created_at", "next_run_time", "name"] | None = None,
    order: Literal["asc", "desc"] | None = None,
) -> Listed[m.JobPage, m.Job]:
    """List your jobs; for admins all jobs. `name`: a part of it. `tag`: `key` or `key=value`. `owner`: for admins."""
    query = {"status": status, "type": type, "name": name, "tag": tag, "owner": owner, "sort": sort, "order": order}
    return Listed(path_of("jobs"), m.JobPage, lambda page: page.jobs, query)


def get_job(job_id: str) -> Call[m.Job]:
    """Return the job with its counts and lateness. Its `version` is for `if_match`."""
    return get(path_of("jobs", job_id), m.Job)


def put_job_by_key(key: str, job: Definition, *, if_match: IfMatch = None) -> Call[m.CreatedJob]:
    """Create the job with this key, or replace its definition. With `if_match` (a version) it never creates."""
    return send("PUT", path_of("jobs", "by-key", key), m.CreatedJob, job, may_repeat=True, **_if_match(if_match))


def change_job(job_id: str, changes: Definition, *, if_match: IfMatch = None) -> Call[m.Job]:
    """Change the named fields; None resets one that has a default.

    With `if_match` (a version) it raises PreconditionFailed if the job was changed since. It also does if a retry
    follows an interrupted try that was carried out: the error then has a note.
    """
    return send("PATCH", path_of("jobs", job_id), m.Job, changes, may_repeat=True, **_if_match(if_match))


def cancel_job(job_id: str) -> Call[m.JobMessage]:
    """End a job for good, and cancel its running executions. Its history stays."""
    return _act_on_job(job_id, "cancel", may_repeat=True)


def purge_job(job_id: str) -> Call[m.JobMessage]:
    """Remove a job with its history."""
    return send("DELETE", with_query(path_of("jobs", job_id), {"purge": True}), m.JobMessage)


def pause_job(job_id: str) -> Call[m.JobMessage]:
    """Pause a job: it plans no executions until it is resumed."""
    return _act_on_job(job_id, "pause", may_repeat=True)


def resume_job(job_id: str) -> Call[m.JobMessage]:
    """Resume a paused job. Instants that passed meanwhile are recorded as skipped."""
    return _act_on_job(job_id, "resume")


def run_job(job_id: str) -> Call[m.QueuedRun]:
    """Run a job once, now."""
    return send("POST", path_of("jobs", job_id, "run"), m.QueuedRun)


def retry_job(job_id: str) -> Call[m.QueuedRun]:
    """Run a job again, if its last execution failed."""
    return send("POST", path_of("jobs", job_id, "retry"), m.QueuedRun)


def job_status(job_id: str) -> Call[m.JobGlance]:
    """Return the status of a job, and how many executions are running and waiting."""
    return get(path_of("jobs", job_id, "status"), m.JobGlance)


def job_executions(job_id: str, *, state: m.StateWord | None = None) -> Listed[m.ExecutionPage, m.Execution]:
    """List a job's executions, latest first. A page also has the last spans of `skipped` instants."""
    return _executions(path_of("jobs", job_id, "executions"), state=state)


def job_next(job_id: str, *, count: int | None = None) -> Call[m.Coming]:
    """Return a job's next instants: 10, or up to 1,000."""
    return get(path_of("jobs", job_id, "next"), m.Coming, count=count)


def job_why(job_id: str) -> Call[m.Why]:
    """Explain what a job will do next, and what blocks it."""
    return get(path_of("jobs", job_id, "why"), m.Why)


# Executions


def list_executions(
    *,
    state: m.StateWord | None = None,
    job_id: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Listed[m.ExecutionPage, m.Execution]:
    """List executions of your jobs (for admins of all jobs), scheduled at or after `since` and before `until`."""
    return _executions(path_of("executions"), state=state, job_id=job_id, **{"from": since, "to": until})


def get_execution(execution_id: str) -> Call[m.ExecutionDetail]:
    """Return an execution with its attempts."""
    return get(path_of("executions", execution_id), m.ExecutionDetail)


def logs(execution_id: str, *, after: int | None = None, lines: int | None = None) -> Call[m.Logs]:
    """Return the log of an execution as one text: at most `lines` lines (10,000), after the line `after`. If there is
    more, pass `next_after` of the response as `after`."""
    return get(path_of("executions", execution_id, "logs"), m.Logs, after=after, lines=lines)


def follow_logs(execution_id: str, *, after: int | None = None) -> Followed[m.LogEntry]:
    """Follow the log of an execution until it ends. `after`: the number of the entry to continue after."""
    path = path_of("executions", execution_id, "logs")
    return Followed(path, lambda frame: m.LogEntry(frame.number, frame.data), after, end="end")


def cancel_execution(execution_id: str) -> Call[m.Execution]:
    """Cancel an execution, even if it is running."""
    return send("POST", path_of("executions", execution_id, "cancel"), m.Execution)


def retry_execution(execution_id: str) -> Call[m.QueuedRun]:
    """Run an execution's job again, as a new execution."""
    return send("POST", path_of("executions", execution_id, "retry"), m.QueuedRun)


def dead_letters(
    *,
    job_id: str | None = None,
    error_type: str | None = None,
    http_status: int | str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Listed[m.ExecutionPage, m.Execution]:
    """List executions that have used up their attempts. `http_status`: such as 503, or "5xx"."""
    filters = {"job_id": job_id, "error_type": error_type, "http_status": http_status, "from": since, "to": until}
    return _executions(path_of("dead-letters"), **filters)


def redrive(
    ids: Iterable[str] | None = None,
    *,
    job_id: str | None = None,
    error_type: str | None = None,
    http_status: int | str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    limit: int | None = None,
    per_second: float | None = None,
) -> Call[m.Redriven]:
    """Run dead letters again: these `ids`, or the latest that match the filters, up to `limit` (100).

    `per_second`: at most this many are due in a second.
    """
    filters = {"job_id": job_id, "error_type": error_type, "http_status": http_status, "from": since, "to": until}
    wanted = {"ids": None if ids is None else list(ids), **filters, "limit": limit, "per_second": per_second}
    if wanted["ids"] == []:  # the server would run all
        raise ValueError("redrive was given no ids; leave them out to run the latest dead letters again")
    return send("POST", path_of("dead-letters", "redrive"), m.Redriven, given(wanted))


# The rest


def preview_schedule(
    schedule: str,
    *,
    timezone: str | None = None,
    dst: Definition | None = None,
    after: Instant | None = None,
    count: int | None = None,
) -> Call[m.Preview]:
    """Describe a schedule, with its next instants (10, or up to 100) and warnings. Nothing is created."""
    wanted = {"schedule": schedule, "timezone": timezone, "dst": dst, "after": after, "count": count}
    return send("POST", path_of("schedules", "preview"), m.Preview, given(wanted), may_repeat=True)


def events(*, after: int | None = None) -> Followed[m.Event]:
    """Follow the events of your jobs (for admins of all jobs). The stream does not end.

    `after`: the number of the event to continue after. After an event of the kind `reset`, read the lists again.
    """
    return Followed(path_of("events"), _event, after, gap=RESET)


def request(
    method: str,
    path: str,
    *,
    query: Mapping[str, Value] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    may_repeat: bool | None = None,
) -> Call[Any]:
    """Send a request to any path of the server, such as /api/v1/jobs. Returns the decoded JSON.

    `may_repeat`: whether it may be retried after a broken connection. By default only a GET is.
    """
    may_repeat = method == "GET" if may_repeat is None else may_repeat
    path = with_query(path, query or {})
    return send(method, path, cast(type[Any], Any), body, may_repeat=may_repeat, **(headers or {}))


def _act_on_job(job_id: str, action: str, may_repeat: bool = False) -> Call[m.JobMessage]:
    return send("POST", path_of("jobs", job_id, action), m.JobMessage, may_repeat=may_repeat)


def _executions(path: str, **query: Value) -> Listed[m.ExecutionPage, m.Execution]:
    return Listed(path, m.ExecutionPage, lambda page: page.executions, query)


def _if_match(version: IfMatch) -> dict[str, str]:
    if version is None:
        return {}
    return {"If-Match": f'"{version}"' if isinstance(version, int) else version}


def _event(frame: Frame) -> m.Event:
    try:
        return m.Event(frame.number, frame.kind, msgspec.json.decode(frame.data, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise UnknownAnswer(f"the data of an event '{frame.kind}' can't be read: {error}", 200) from None
