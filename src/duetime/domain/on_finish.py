"""On-finish commands: notifications about an execution that has ended, and the pause of its job after a 410.

Each command is applied in the commit that ends the execution, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from duetime.domain.commands import Command, OnFinish, PauseJob
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import format_instant
from duetime.domain.limits import Limit
from duetime.domain.states import ErrorType, State
from duetime.domain.subscriptions import about_job, is_notification, notification

Subscriptions = Sequence[tuple[str, Sequence[str]]]  # a URL, and the events that are sent to it

# The reason of an ended execution if a notification about its end could not be stored.
UNSENT = "notification_refused"

_GONE = 410
_LAST = 2**80 - 1
_KINDS = {
    State.COMPLETED: ("on_success", "execution.completed"),
    State.FAILED: ("on_failure", "execution.failed"),
    State.TIMEOUT: ("on_failure", "execution.failed"),
}


def has_on_finish_commands(claim: Claim, end: AttemptEnd) -> bool:
    """Returns whether there may be any. Most executions have none, and this check is cheap."""
    webhooks = claim.spec.webhooks
    has_url = webhooks.on_failure is not None or webhooks.on_success is not None
    return end.state in _KINDS and (has_url or end.http_status == _GONE)


def on_finish_commands(
    claim: Claim, end: AttemptEnd, now: int, random_bytes: bytes, subscriptions: Subscriptions = (),
    limit: Limit | None = None,
) -> list[OnFinish]:  # fmt: skip
    """Returns the commands for the end of this attempt.

    `random_bytes`: ten bytes, for the ids of new jobs. `limit`: of notifications. A notification is a job owned by the
    owner of the job it reports on.
    """
    if end.state not in _KINDS:
        return []
    commands: list[Command] = []
    ids = _random_ids(random_bytes)
    spec, (field, event) = claim.spec, _KINDS[end.state]
    body = _body(claim, end, event)
    url: str | None = getattr(spec.webhooks, field)
    if url is not None:
        commands.append(
            notification(claim.tenant, "", url, f"{field} of {spec.name}", event, body, now, next(ids), limit)
        )
    events = {event: body}
    if end.http_status == _GONE and end.error_type is ErrorType.HTTP_ERROR:
        commands.append(PauseJob(now, claim.tenant, claim.job_id, "duetime", "its target answered 410 Gone"))
        events["job.paused"] = about_job("job.paused", claim.job_id, spec.name, spec.key, "duetime", now)
    if not is_notification(spec):
        for url, wanted in subscriptions:
            for name, about in events.items():
                if name in wanted:
                    label = f"{name} of {spec.name}"
                    commands.append(notification(claim.tenant, "", url, label, name, about, now, next(ids), limit))
    return [OnFinish(claim.execution_id, claim.attempt, claim.token, end.state, command) for command in commands]


def _random_ids(random_bytes: bytes) -> Iterator[bytes]:
    """Yields ten bytes for each id. An id does not use the last four bits."""
    first = int.from_bytes(random_bytes, "big")
    return ((first + step & _LAST).to_bytes(10, "big") for step in count(0, 16))


def _body(claim: Claim, end: AttemptEnd, kind: str) -> dict[str, Any]:
    """Returns the body as Standard Webhooks recommends: what happened, when, and to what. Without the response."""
    return {
        "type": kind,
        "timestamp": format_instant(end.ended_at),
        "data": {
            "job_id": claim.job_id,
            "job_name": claim.spec.name,
            "key": claim.spec.key,
            "execution_id": claim.execution_id,
            "state": end.state,
            "scheduled_at": format_instant(claim.scheduled_at),
            "start_time": None if end.started_at is None else format_instant(end.started_at),
            "end_time": format_instant(end.ended_at),
            "attempt": end.attempt,
            "trigger": claim.trigger,
            "http_status": end.http_status,
            "exit_code": end.exit_code,
            "error_type": end.error_type,
            "error_message": end.error_message,
        },
    }
