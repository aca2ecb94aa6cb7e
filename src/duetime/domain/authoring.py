"""What people do to jobs, as commands: create, change, resume. Pure: the instant and the chance are arguments."""

from __future__ import annotations

from typing import Any

from duetime.domain.commands import ChangeJob, NewJob, ResumeJob
from duetime.domain.errors import Conflict
from duetime.domain.ids import make_id, shard_of
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.plan import skipped_while_paused
from duetime.domain.schedule import Once, first_due, timetable
from duetime.domain.validation import check_spec


def new_job(spec: JobSpec, tenant: str, owner: str, now: int, entropy: bytes) -> NewJob:
    """Raises InvalidRequest or InvalidSchedule, naming the field."""
    check_spec(spec)
    job_id = make_id(now, entropy)
    due_at, recurs = first_due(spec, job_id, now)
    return NewJob(job_id, tenant, spec.key, spec.name, spec.type, owner, shard_of(job_id), recurs, due_at, spec)


def change_job(
    job_id: str, tenant: str, version: int, created_at: int, status: JobStatus, old: JobSpec, new: JobSpec,
    due_at: int | None, now: int,
) -> ChangeJob:  # fmt: skip
    """Plans the next run again if anything about its time changed; else it stays as it was."""
    check_spec(new)
    table = timetable(new, job_id, created_at)
    if _when(new) == _when(old):
        next_due_at = due_at
    elif isinstance(table.schedule, Once):
        next_due_at, _ = first_due(new, job_id, now)
    else:
        next_due_at = table.next_after(now)
    if status is JobStatus.CANCELLED:
        raise Conflict(f"job {job_id} is CANCELLED and can't be changed; create a new one")
    return ChangeJob(now, tenant, job_id, version, new.key, new.name, new.type, table.recurs, next_due_at, new)


def _when(spec: JobSpec) -> tuple[Any, ...]:
    return (
        spec.schedule, spec.timezone, spec.dst, spec.start_at, spec.end_at, spec.jitter_seconds, spec.max_runs
    )  # fmt: skip


def resume_job(
    job_id: str, tenant: str, version: int, created_at: int, spec: JobSpec, resume_at: int | None, now: int
) -> ResumeJob:
    """What passed while paused goes to the ledger; a one-off that passed is due no more."""
    table = timetable(spec, job_id, created_at)
    if resume_at is None or resume_at > now:
        return ResumeJob(now, tenant, job_id, version, resume_at, None)
    skipped = skipped_while_paused(table, job_id, tenant, resume_at, now)
    return ResumeJob(now, tenant, job_id, version, table.next_after(now) if table.recurs else None, skipped)
