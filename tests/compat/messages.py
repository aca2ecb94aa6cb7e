"""How the present version handles each recorded operation: how it reads the request, what it sends, what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from compat.frozen import Exchange
from duetime.api.bodies import change_spec, decode, decode_spec
from duetime.client import models as client
from duetime.client.errors import ProblemBody
from duetime.domain import work
from duetime.wire import (
    audit,
    circuits,
    cluster,
    connections,
    executions,
    health,
    identity,
    jobs,
    schedules,
    signing,
    subscriptions,
)
from duetime.wire.problems import Problem

Read = Callable[[Any], object]
SOME_JOB = b'{"name": "some", "schedule": "@daily", "payload": {"url": "http://127.0.0.1/"}}'


class Kind(NamedTuple):
    """`request`: the type of the body for the server; None: no body. `server`: the type it sends; `client` reads it."""

    request: Read | None
    server: Any
    client: Any


def _body(kind: Any) -> Read:
    return lambda sent: decode(_encoded(sent), kind)


def _encoded(sent: Any) -> bytes:
    return b"" if sent is None else json.dumps(sent).encode()


def _job(sent: Any) -> object:
    return decode_spec(_encoded(sent))


def _change(sent: Any) -> object:
    change_spec(decode_spec(SOME_JOB), sent)
    return sent


def _batch(sent: Any) -> object:
    return [_job(job) for job in sent]


_PAGE = Kind(None, executions.ExecutionList, client.ExecutionPage)
_MESSAGE = Kind(None, jobs.JobMessage, client.JobMessage)
_QUEUED = Kind(None, executions.QueuedRun, client.QueuedRun)
_JOB = Kind(_change, jobs.JobView, client.Job)

KINDS: dict[str, Kind] = {
    "add_subscription": Kind(
        _body(subscriptions.SubscriptionRequest), subscriptions.SubscriptionView, client.Subscription
    ),
    "cancel_execution": Kind(None, executions.ExecutionView, client.Execution),
    "cancel_job": _MESSAGE,
    "change_job": _JOB,
    "close_circuit": Kind(None, circuits.CircuitMessage, client.CircuitMessage),
    "create_api_key": Kind(_body(identity.KeyRequest), identity.MadeKey, client.MadeKey),
    "create_job": Kind(_job, jobs.CreatedJob, client.CreatedJob),
    "create_jobs": Kind(_batch, jobs.BatchResult, client.BatchResult),
    "delete_job": _MESSAGE,
    "get_cluster": Kind(None, cluster.Cluster, client.Cluster),
    "get_execution": Kind(None, executions.ExecutionDetail, client.ExecutionDetail),
    "get_execution_logs": Kind(None, executions.Logs, client.Logs),
    "get_health": Kind(None, health.Health, client.Health),
    "get_job": Kind(None, jobs.JobView, client.Job),
    "get_job_status": Kind(None, jobs.JobGlance, client.JobGlance),
    "get_job_why": Kind(None, jobs.Why, client.Why),
    "get_signing_key": Kind(None, signing.SigningKeyView, client.SigningKey),
    "list_api_keys": Kind(None, identity.KeyList, client.KeyList),
    "list_audit": Kind(None, audit.AuditList, client.AuditPage),
    "list_circuits": Kind(None, circuits.CircuitList, client.CircuitList),
    "list_connections": Kind(None, connections.ConnectionList, client.ConnectionList),
    "list_dead_letters": _PAGE,
    "list_executions": _PAGE,
    "list_job_executions": _PAGE,
    "list_job_next": Kind(None, jobs.Coming, client.Coming),
    "list_jobs": Kind(None, jobs.JobList, client.JobPage),
    "list_subscriptions": Kind(None, subscriptions.SubscriptionList, client.SubscriptionList),
    "list_workers": Kind(None, cluster.WorkerList, client.WorkerList),
    "pause_job": _MESSAGE,
    "preview_schedule": Kind(_body(schedules.PreviewRequest), schedules.Preview, client.Preview),
    "put_connection": Kind(_body(connections.ConnectionRequest), connections.ConnectionView, client.Connection),
    "put_job": _JOB,
    "put_job_by_key": Kind(_job, jobs.JobView | jobs.CreatedJob, client.CreatedJob),
    "redrive_dead_letters": Kind(_body(executions.RedriveRequest), executions.Redriven, client.Redriven),
    "remove_connection": Kind(None, connections.ConnectionMessage, client.ConnectionMessage),
    "remove_subscription": Kind(None, subscriptions.SubscriptionMessage, client.SubscriptionMessage),
    "resume_job": _MESSAGE,
    "retry_execution": _QUEUED,
    "retry_job": _QUEUED,
    "revoke_api_key": Kind(None, identity.KeyMessage, client.KeyMessage),
    "rotate_signing_key": Kind(_body(signing.RotateRequest), signing.SigningKeyView, client.SigningKey),
    "run_job": _QUEUED,
    "worker_join": Kind(_body(work.Joining), work.Joined, work.Joined),
    "worker_leave": Kind(_body(work.Leaving), None, None),
    "worker_poll": Kind(_body(work.Polling), work.Polled, work.Polled),
    "worker_report": Kind(_body(work.Reporting), work.Reported, work.Reported),
}


def kind_of(one: Exchange) -> Kind:
    """The types of a successful operation, or of a refused one."""
    if one.status >= 400:
        return Kind(None, Problem, ProblemBody)
    if one.operation == "follow_events":
        return Kind(None, None, None)
    kind = KINDS[one.operation]
    if one.operation == "put_job_by_key":  # it creates a job, or returns the job that it changed
        return kind._replace(server=jobs.CreatedJob if one.status == 201 else jobs.JobView)
    return kind


def request_of(one: Exchange) -> Any:
    """The lines of a batch. The recording of a single line is its JSON."""
    if one.operation != "create_jobs":
        return one.request
    return [json.loads(line) for line in one.request.splitlines()] if isinstance(one.request, str) else [one.request]


def is_stream(one: Exchange) -> bool:
    return one.headers.get("accept") == "text/event-stream" and one.status == 200


def missing(recorded: Any, present: Any, path: str = "") -> list[str]:
    """Returns the places at which `present` lacks a recorded value, or has another one. It may have more."""
    if isinstance(present, msgspec.Raw):
        present = msgspec.json.decode(present)
    if isinstance(recorded, dict):
        fields = _fields(present) if isinstance(present, msgspec.Struct) else present
        if not isinstance(fields, dict):
            return [f"{path}: {recorded} became {present!r}"]
        found = [f"{path}/{name} is missing" for name in sorted(recorded.keys() - fields.keys())]
        for name in sorted(recorded.keys() & fields.keys()):
            found += missing(recorded[name], fields[name], f"{path}/{name}")
        return found
    if isinstance(recorded, list):
        if not isinstance(present, Sequence) or len(present) != len(recorded):
            return [f"{path}: {recorded} became {present!r}"]
        return [
            line for index, item in enumerate(recorded) for line in missing(item, present[index], f"{path}/{index}")
        ]
    if isinstance(present, datetime):
        recorded = datetime.fromisoformat(recorded)
    return [] if present == recorded else [f"{path}: {recorded!r} became {present!r}"]


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    """All fields under their names in messages, including those with their defaults."""
    config = struct.__struct_config__
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    fields = {encoded: getattr(struct, name) for name, encoded in names}
    return fields if config.tag is None else {str(config.tag_field): config.tag, **fields}


def structs_in(value: Any) -> Iterator[type[msgspec.Struct]]:
    """The types of all structs in a value."""
    match value:
        case msgspec.Struct():
            yield type(value)
            for item in _fields(value).values():
                yield from structs_in(item)
        case dict():
            for item in value.values():
                yield from structs_in(item)
        case list() | tuple():
            for item in value:
                yield from structs_in(item)
