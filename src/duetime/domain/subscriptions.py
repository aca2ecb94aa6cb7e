"""Notifications of events in a tenant: the events that a URL can subscribe to, and the body that is sent.

A notification is a job, as for the webhooks of a job (`on_finish.py`): durable, signed, tried again, visible. No
notification is sent about a notification.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.errors import Conflict
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import format_instant
from duetime.domain.job import HttpJob, JobSpec
from duetime.domain.limits import ALL_USERS, Limit, Quota
from duetime.domain.payloads import HttpRequest

EVENT_TAG = "duetime.event"
EventName = Literal["execution.completed", "execution.failed", "job.paused", "job.resumed", "job.cancelled"]
EVENTS: tuple[EventName, ...] = get_args(EventName)
MOST_SUBSCRIPTIONS = 20  # of a tenant: each event makes as many jobs
_LONGEST_NAME = 255


def check_subscriptions(count: int) -> None:
    """Raises Conflict if a tenant with `count` subscriptions can't add one."""
    if count >= MOST_SUBSCRIPTIONS:
        raise Conflict(f"there are {count} subscriptions, which is the most a tenant may have; remove one first")


def is_notification(spec: JobSpec) -> bool:
    """Returns whether a job is a notification: no notification is sent about it."""
    return EVENT_TAG in spec.tags


def notification(
    tenant: str, owner: str, url: str, name: str, event: str, body: dict[str, Any], now: int, random_bytes: bytes,
    limit: Limit | None = None,
) -> CreateJobs:  # fmt: skip
    """Returns the command that creates a notification: a job that is signed, tried again and shown like others.

    It counts towards `limit`, which all notifications of the tenant share, and towards the tenant's room for jobs.
    """
    spec = HttpJob(
        name=name[:_LONGEST_NAME], schedule="immediate", tags={EVENT_TAG: event}, payload=HttpRequest(url, body=body)
    )
    job_id = make_id(now, random_bytes)
    job = NewJob(job_id, tenant, None, spec.name, spec.type, owner, shard_of(job_id), False, now, spec)
    return CreateJobs(now, (job,), quota=None if limit is None else Quota(tenant, ALL_USERS, limit))


def about_job(event: str, job_id: str, name: str, key: str | None, by: str, now: int) -> dict[str, Any]:
    """Returns the body of a notification about a change of a job."""
    data = {"job_id": job_id, "job_name": name, "key": key, "by": by}
    return {"type": event, "timestamp": format_instant(now), "data": data}
