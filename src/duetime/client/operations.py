"""The operations of the API. Each builds a `Call`, a `Listed` or a `Followed`, which the clients send.

A new route is a function here and a line in each of `sync.py` and `aio.py`. A request with optional fields is a dict of
the given ones: the server has defaults for the others, and may accept values that are newer than this client.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast

import msgspec

from duetime.client import models as m
from duetime.client.batch import Definition
from duetime.client.calls import IDEMPOTENCY_KEY, Call, Followed, Frame, Listed, Value, get, path_of, send, with_query
from duetime.client.errors import UnknownAnswer
from duetime.wire.connections import ConnectionRequest
from duetime.wire.signing import RotateRequest

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
    return send("POST", path_of("dead-letters", "redrive"), m.Redriven, _given(wanted))


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
    return send("POST", path_of("schedules", "preview"), m.Preview, _given(wanted), may_repeat=True)


def events(*, after: int | None = None) -> Followed[m.Event]:
    """Follow the events of your jobs (for admins of all jobs). The stream does not end.

    `after`: the number of the event to continue after. After an event of the kind `reset`, read the lists again.
    """
    return Followed(path_of("events"), _event, after, gap=RESET)


def create_api_key(
    name: str,
    *,
    user_id: str | None = None,
    role: m.RoleWord | None = None,
    tier: m.TierWord | None = None,
    scopes: Iterable[m.RightWord] | None = None,
    expires_in_days: float | None = None,
) -> Call[m.MadeKey]:
    """For admins: create a key, for yourself unless `user_id` is given. Its secret is only in this response."""
    wanted = {
        "name": name, "user_id": user_id, "role": role, "tier": tier, "scopes": None if scopes is None else [*scopes],
        "expires_in_days": expires_in_days,
    }  # fmt: skip
    return send("POST", path_of("api-keys"), m.MadeKey, _given(wanted))


def list_api_keys() -> Call[m.KeyList]:
    """For admins: list the tenant's keys, latest first, without their secrets."""
    return get(path_of("api-keys"), m.KeyList)


def revoke_api_key(key_id: str) -> Call[m.KeyMessage]:
    """For admins: revoke a key for good."""
    return send("DELETE", path_of("api-keys", key_id), m.KeyMessage)


def audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    resource: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Listed[m.AuditPage, m.AuditEntry]:
    """For admins: list who changed what, latest first."""
    query = {"actor": actor, "action": action, "resource": resource, "from": since, "to": until}
    return Listed(path_of("audit"), m.AuditPage, lambda page: page.entries, query)


def list_workers(*, limit: int = 100, cursor: str | None = None) -> Call[m.WorkerList]:
    """For admins: list the tenant's workers, latest first, page by page."""
    return get(path_of("workers"), m.WorkerList, limit=limit, cursor=cursor)


def list_connections() -> Call[m.ConnectionList]:
    """For admins: list the databases of SQL jobs, without their passwords."""
    return get(path_of("connections"), m.ConnectionList)


def put_connection(name: str, url: str) -> Call[m.Connection]:
    """For admins: register a database for SQL jobs, or change its URL, which can't be read back."""
    return send("PUT", path_of("connections", name), m.Connection, ConnectionRequest(url), may_repeat=True)


def remove_connection(name: str) -> Call[m.ConnectionMessage]:
    """For admins: remove a database. Jobs that use it fail from then on."""
    return send("DELETE", path_of("connections", name), m.ConnectionMessage)


def list_alert_channels() -> Call[m.ChannelList]:
    """For admins: list where notices of alerts are sent, without the tokens."""
    return get(path_of("alert-channels"), m.ChannelList)


def put_alert_channel(name: str, url: str, *, kind: str | None = None) -> Call[m.AlertChannel]:
    """For admins: add an alert channel, or change its URL, which can't be read back.

    `kind`: webhook or apprise; by default webhook for http:// and https://, otherwise apprise.
    """
    body = {"url": url, "kind": kind}
    return send("PUT", path_of("alert-channels", name), m.AlertChannel, body, may_repeat=True)


def remove_alert_channel(name: str) -> Call[m.ChannelMessage]:
    """For admins: remove an alert channel. Notices to it fail from then on."""
    return send("DELETE", path_of("alert-channels", name), m.ChannelMessage)


def test_alert_channel(name: str) -> Call[m.ChannelTest]:
    """For admins: send a test notice. The execution of the job that is returned tells whether it arrived."""
    return send("POST", path_of("alert-channels", name, "test"), m.ChannelTest)


def list_subscriptions() -> Call[m.SubscriptionList]:
    """For admins: list the URLs that get notifications."""
    return get(path_of("subscriptions"), m.SubscriptionList)


def add_subscription(url: str, *, events: Sequence[str] = ()) -> Call[m.Subscription]:
    """For admins: send notifications of these events, or of all, to a URL."""
    return send("POST", path_of("subscriptions"), m.Subscription, {"url": url, "events": list(events)})


def remove_subscription(subscription_id: str) -> Call[m.SubscriptionMessage]:
    """For admins: remove a subscription."""
    return send("DELETE", path_of("subscriptions", subscription_id), m.SubscriptionMessage)


def get_signing_key() -> Call[m.SigningKey]:
    """For admins: return the secret with which the tenant's receivers verify requests."""
    return get(path_of("signing-key"), m.SigningKey)


def rotate_signing_key(*, overlap_seconds: int = 86_400) -> Call[m.SigningKey]:
    """For admins: sign with a new key. The current key also signs, for `overlap_seconds`."""
    return send("POST", path_of("signing-key", "rotate"), m.SigningKey, RotateRequest(overlap_seconds))


def list_circuits() -> Call[m.CircuitList]:
    """List targets that failed since they last succeeded, open circuits first."""
    return get(path_of("circuits"), m.CircuitList)


def close_circuit(circuit: str) -> Call[m.CircuitMessage]:
    """For admins: reset a target's failures, so that it is called again."""
    return send("DELETE", path_of("circuits", circuit), m.CircuitMessage)


def cluster() -> Call[m.Cluster]:
    """For admins: return the living nodes with their roles, leases and shards."""
    return get(path_of("cluster"), m.Cluster)


def observability_now() -> Call[m.Now]:
    """For admins: return the worst jobs of the last minutes, and which tenants and targets take the nodes' places. For
    the operator: of all tenants."""
    return get(path_of("observability", "now"), m.Now)


def health(*, verbose: bool = False) -> Call[m.Health]:
    """Return the health of the server, also when it is degraded."""
    call = get("/health", m.Health, verbose=verbose or None)
    return msgspec.structs.replace(call, also_takes=503)


def ready() -> Call[m.Readiness]:
    """Return whether the node that responds should get requests, also when it should not."""
    return msgspec.structs.replace(get("/health/ready", m.Readiness), also_takes=503)


def stats() -> Call[m.Stats]:
    """For admins: count jobs by status and executions by state, those that are late, and those due within an hour."""
    return get(path_of("stats"), m.Stats)


def observability() -> Call[m.ObservabilityMetrics]:
    """For admins: return rates, errors, durations and lateness over 1, 5 and 15 minutes, of the whole cluster."""
    return get(path_of("observability", "metrics"), m.ObservabilityMetrics)


def histograms(
    *,
    since: Instant | None = None,
    until: Instant | None = None,
    bucket_seconds: int | None = None,
    type: m.TypeWord | None = None,
) -> Call[m.Histograms]:
    """For admins: return durations, lateness and outcomes of the tenant's jobs by time: of the last hour by default."""
    path = path_of("observability", "histograms")
    return get(path, m.Histograms, **{"from": since, "to": until, "bucket": bucket_seconds, "type": type})


def job_histograms(
    job_id: str, *, since: Instant | None = None, until: Instant | None = None, bucket_seconds: int | None = None
) -> Call[m.Histograms]:
    """Return durations, lateness and outcomes of a job by time: of the last hour by default."""
    path = path_of("jobs", job_id, "histograms")
    return get(path, m.Histograms, **{"from": since, "to": until, "bucket": bucket_seconds})


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


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _if_match(version: IfMatch) -> dict[str, str]:
    if version is None:
        return {}
    return {"If-Match": f'"{version}"' if isinstance(version, int) else version}


def _event(frame: Frame) -> m.Event:
    try:
        return m.Event(frame.number, frame.kind, msgspec.json.decode(frame.data, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise UnknownAnswer(f"the data of an event '{frame.kind}' can't be read: {error}", 200) from None
