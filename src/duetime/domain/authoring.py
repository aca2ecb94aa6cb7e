"""Builds the commands that create, change, resume and cancel jobs. Pure: time and random bytes are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duetime.domain.commands import CancelJob, ChangeJob, NewJob, ResumeJob
from duetime.domain.errors import InvalidRequest
from duetime.domain.ids import make_id, shard_of
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.plan import Skipped, skipped_since, skipped_while_paused
from duetime.domain.redirection import redirection_problems
from duetime.domain.schedule import Once, Timetable, first_due, never_due, timetable
from duetime.domain.stored_jobs import check_changeable
from duetime.domain.validation import check_spec


def new_job(spec: JobSpec, tenant: str, owner: str, now: int, random_bytes: bytes) -> NewJob:
    """Returns the new job. Raises InvalidRequest or InvalidSchedule, naming the field."""
    check_spec(spec)
    job_id = make_id(now, random_bytes)
    due_at, recurs = first_due(spec, job_id, now)
    return NewJob(job_id, tenant, spec.key, spec.name, spec.type, owner, shard_of(job_id), recurs, due_at, spec)


def change_job(
    job_id: str, tenant: str, version: int, created_at: int, status: JobStatus, old: JobSpec, new: JobSpec,
    due_at: int | None, fired: int, now: int, sent: Mapping[str, Any] | None = None,
) -> ChangeJob:  # fmt: skip
    """Returns the change. If the job's times changed, the change plans the next due instant again.

    `due_at` is when the job is next due, or would be if it were not paused. Instants that passed unfired go to the
    ledger. A new schedule is a new timetable, whose runs are counted from zero; after other changes the count goes on.
    `sent`: the change as it was sent; None: all of `new` was sent. Raises InvalidRequest, also if secrets would be sent
    to another target and are not included again.
    """
    check_spec(new, old)
    if errors := tuple(redirection_problems(old, new, sent)):
        raise InvalidRequest("; ".join(f"{error.pointer}: {error.message}" for error in errors), errors)
    check_changeable(job_id, status)
    table = timetable(new, job_id, created_at)
    restart = new.schedule != old.schedule
    replan, next_due_at = _replan(job_id, table, old, new, due_at, 0 if restart else fired, now)
    skipped: tuple[Skipped, ...] = ()
    if replan and due_at is not None:
        reason = "paused" if status is JobStatus.PAUSED else "changed"
        skipped = _passed(timetable(old, job_id, created_at), job_id, tenant, due_at, now, reason, next_due_at)
    return ChangeJob(
        now, tenant, job_id, version, new.key, new.name, new.type, table.recurs, next_due_at, new, replan, restart,
        skipped,
    )  # fmt: skip


def _replan(
    job_id: str, table: Timetable, old: JobSpec, new: JobSpec, due_at: int | None, fired: int, now: int
) -> tuple[bool, int | None]:
    """Returns whether a change moves the next run, and to when. Raises InvalidSchedule if no run is left."""
    is_over = new.max_runs is not None and fired >= new.max_runs
    if _when(new) == _when(old):
        if is_over:
            return due_at is not None, None
        if due_at is None and table.recurs and new.max_runs != old.max_runs:
            return True, table.next_after(now)
        return False, due_at
    if isinstance(table.schedule, Once):
        if new.schedule == old.schedule and due_at is None:
            return False, None  # its only run is over; other bounds add no run
        next_due_at, _ = first_due(new, job_id, now)
    else:
        following = table.next_after(now)
        if following is None:
            raise never_due(new)
        next_due_at = following
    return True, None if is_over else next_due_at


def _when(spec: JobSpec) -> tuple[Any, ...]:
    return (spec.schedule, spec.timezone, spec.dst, spec.start_at, spec.end_at, spec.jitter_seconds)


def _passed(
    table: Timetable, job_id: str, tenant: str, first_at: int, now: int, reason: str, kept_at: int | None
) -> tuple[Skipped, ...]:
    """Returns the ledger's entries for the instants from `first_at` to now, without the one that is kept."""
    if kept_at is None or not first_at <= kept_at <= now:
        spans = [skipped_since(table, job_id, tenant, first_at, now + 1, reason)]
    else:
        spans = [skipped_since(table, job_id, tenant, first_at, kept_at, reason)]
        following = table.next_after(kept_at)
        if following is not None:
            spans.append(skipped_since(table, job_id, tenant, following, now + 1, reason))
    return tuple(span for span in spans if span is not None)


def cancel_job(
    job_id: str, tenant: str, created_at: int, status: JobStatus, spec: JobSpec, due_at: int | None, now: int
) -> CancelJob:
    """Returns the command. `due_at` as in `change_job`: instants that passed unfired go to the ledger."""
    if due_at is None or due_at > now:
        return CancelJob(now, tenant, job_id)
    reason = "paused" if status is JobStatus.PAUSED else "cancelled"
    table = timetable(spec, job_id, created_at)
    return CancelJob(now, tenant, job_id, _passed(table, job_id, tenant, due_at, now, reason, None))


def resume_job(
    job_id: str, tenant: str, version: int, created_at: int, spec: JobSpec, resume_at: int | None, now: int
) -> ResumeJob:
    """Returns the command. The instants that passed during the pause go to the ledger. A one-off job does not run."""
    table = timetable(spec, job_id, created_at)
    if resume_at is None or resume_at > now:
        return ResumeJob(now, tenant, job_id, version, resume_at, None)
    skipped = skipped_while_paused(table, job_id, tenant, resume_at, now)
    return ResumeJob(now, tenant, job_id, version, table.next_after(now) if table.recurs else None, skipped)
