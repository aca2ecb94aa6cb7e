"""What the end of an execution brings about beside its record: word to whoever wants it, and the pause after a 410.

Each is a command that is carried out in the commit of the end itself, or not at all.
"""

from __future__ import annotations

from typing import Any

from duetime.domain.audit import own_entry
from duetime.domain.commands import Command, CreateJobs, FollowUp, NewJob, PauseJob
from duetime.domain.execution import Attempted, Run
from duetime.domain.ids import make_id, shard_of
from duetime.domain.instants import format_instant
from duetime.domain.job import HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import hide_spec
from duetime.domain.states import ErrorType, State

EVENT_TAG = "duetime.event"
_LONGEST_NAME = 255
_GONE = 410
_KINDS = {
    State.COMPLETED: ("on_success", "execution.completed"),
    State.FAILED: ("on_failure", "execution.failed"),
    State.TIMEOUT: ("on_failure", "execution.failed"),
}


def has_follow_ups(run: Run, attempted: Attempted) -> bool:
    """Whether there may be any: nearly never, and quickly told."""
    return attempted.state in _KINDS and (
        attempted.http_status == _GONE
        or run.spec.webhooks.on_failure is not None
        or run.spec.webhooks.on_success is not None
    )


def follow_ups(run: Run, attempted: Attempted, now: int, entropy: bytes) -> list[FollowUp]:
    """What follows from the end of this attempt. `entropy`: ten bytes, for the id of a job."""
    commands: list[Command] = []
    if attempted.state in _KINDS:
        field, kind = _KINDS[attempted.state]
        url: str | None = getattr(run.spec.webhooks, field)
        if url is not None:
            commands.append(_word(run, attempted, url, f"{field} of {run.spec.name}", kind, now, entropy))
        if attempted.http_status == _GONE and attempted.error_type is ErrorType.HTTP_ERROR:
            commands.append(PauseJob(now, run.tenant, run.job_id, "duetime", "its target answered 410 Gone"))
    return [
        FollowUp(run.execution_id, run.attempt, run.token, attempted.state, command) for command in commands
    ]  # fmt: skip


def _word(run: Run, attempted: Attempted, url: str, name: str, kind: str, now: int, entropy: bytes) -> CreateJobs:
    """A request of its own, which is sent, signed, tried again and shown as every other. Its owner is the job's."""
    spec = HttpJob(
        name=name[:_LONGEST_NAME], schedule="immediate", tags={EVENT_TAG: kind},
        payload=HttpRequest(url, body=_body(run, attempted, kind)),
    )  # fmt: skip
    job_id = make_id(now, entropy)
    job = NewJob(job_id, run.tenant, None, spec.name, spec.type, "", shard_of(job_id), False, now, spec)
    noted = own_entry(now, run.tenant, "job.create", job_id, hide_spec(spec))
    return CreateJobs(now, (job,), audit=(noted,))


def _body(run: Run, attempted: Attempted, kind: str) -> dict[str, Any]:
    """As Standard Webhooks recommends: what happened, when, and to what. Nothing of what the target answered."""
    return {
        "type": kind,
        "timestamp": format_instant(attempted.ended_at),
        "data": {
            "job_id": run.job_id,
            "job_name": run.spec.name,
            "key": run.spec.key,
            "execution_id": run.execution_id,
            "state": attempted.state,
            "scheduled_at": format_instant(run.scheduled_at),
            "start_time": None if attempted.started_at is None else format_instant(attempted.started_at),
            "end_time": format_instant(attempted.ended_at),
            "attempt": attempted.attempt,
            "trigger": run.trigger,
            "http_status": attempted.http_status,
            "exit_code": attempted.exit_code,
            "error_type": attempted.error_type,
            "error_message": attempted.error_message,
        },
    }
