"""Notices: jobs that tell people of an alert, one job for each channel, so that each is tried again by itself. Pure.

Room is reserved for notices: a full store does not refuse them, and a tenant's quotas for jobs and notifications do not
count them. In return each tenant may have `MOST_AN_HOUR`. A notice is removed soon after it was delivered
(`SweepJobs`), as notifications are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import HOUR, format_instant
from duetime.domain.job import NoticeJob
from duetime.domain.limits import ALL_USERS, Limit, Quota
from duetime.domain.payloads import LONGEST_TEXT, LONGEST_TITLE, Notice
from duetime.domain.subscriptions import EVENT_TAG

OWNER = "duetime"
MOST_AN_HOUR = 600  # of one tenant: an alert that needs more is grouped
MOST_DATA_BYTES = 16_384
LIMIT = Limit("notices", MOST_AN_HOUR, HOUR)
PRIORITY = 9

_LAST = 2**80 - 1


def create_notices(tenant: str, notice: Notice, now: int, random_bytes: bytes, owner: str = OWNER) -> CreateJobs:
    """Returns the command that creates a notice: a job for each of its channels.

    `random_bytes`: ten bytes, for the ids. Write it with `OnFinish`, `WithNotifications` or alone.
    """
    first = int.from_bytes(random_bytes, "big")
    jobs = tuple(
        _job(tenant, owner, msgspec.structs.replace(notice, channels=(channel,)), now, _random(first, place))
        for place, channel in enumerate(dict.fromkeys(notice.channels))
    )
    return CreateJobs(now, jobs, quota=Quota(tenant, ALL_USERS, LIMIT), is_reserved=True)


def make_notice(
    channels: Iterable[str], title: str, body: str, *, severity: str, status: str, dedup_key: str = "",
    data: Mapping[str, Any] | None = None,
) -> Notice:  # fmt: skip
    """Returns a notice within its bounds: a long text is cut, and data that is too large is left out.

    It may have more channels than one job of a notice: `create_notices` makes a job of each.
    """
    to, kept = tuple(channels), dict(data or {})
    if len(msgspec.json.encode(kept)) > MOST_DATA_BYTES:
        kept = {"left_out": f"the data has more than {MOST_DATA_BYTES} bytes"}
    fields = {
        "channels": to[:1], "title": _cut(title, LONGEST_TITLE) or "alert", "body": _cut(body, LONGEST_TEXT),
        "severity": severity, "status": status, "dedup_key": dedup_key[:255], "data": kept,
    }  # fmt: skip
    return msgspec.structs.replace(msgspec.convert(fields, Notice), channels=to)


def webhook_body(notice: Notice, at: int) -> dict[str, Any]:
    """Returns the body for a webhook, as Standard Webhooks recommends: what happened, when, and to what."""
    data = {
        "title": notice.title, "body": notice.body, "severity": notice.severity, "status": notice.status,
        "dedup_key": notice.dedup_key,
    }  # fmt: skip
    return {
        "type": f"alert.{notice.status}",
        "timestamp": format_instant(at),
        "data": data if not notice.data else {**data, "data": notice.data},
    }


def _job(tenant: str, owner: str, notice: Notice, now: int, random_bytes: bytes) -> NewJob:
    tags = {EVENT_TAG: f"alert.{notice.status}"}  # so no notification is sent about it, and it is swept as they are
    spec = NoticeJob(name=notice.title, schedule="immediate", priority=PRIORITY, tags=tags, payload=notice)
    job_id = make_id(now, random_bytes)
    return NewJob(job_id, tenant, None, spec.name, spec.type, owner, shard_of(job_id), False, now, spec)


def _random(first: int, place: int) -> bytes:
    """Returns ten bytes for an id, which does not use the last four bits."""
    return (first + 16 * place & _LAST).to_bytes(10, "big")


def _cut(text: str, most: int) -> str:
    clean = text.replace("\0", "\ufffd")
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
