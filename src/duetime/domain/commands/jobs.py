"""Commands on jobs."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.limits import Quota
from duetime.domain.plan import Skipped


class NewJob(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    tenant: str
    key: str | None
    name: str
    type: str
    owner: str
    shard: int
    recurs: bool
    due_at: int
    spec: JobSpec


class IdempotencyRecord(msgspec.Struct, frozen=True):
    """The response to a create, stored so that a repeat with the same key and body gets the same response."""

    tenant: str
    key: str
    fingerprint: str  # of the request's body
    response: str


class CreateJobs(Command[str | None], frozen=True):
    """Add jobs and their timers. Returns None.

    With `idempotency`: returns the stored response (str) if the key is known with the same fingerprint, and fails with
    IdempotencyKeyReused if it is known with another. Fails with Conflict if a job's key is taken in the tenant;
    QuotaExceeded if fewer jobs are left of `quota`; InsufficientStorage if the store is full.
    `is_reserved`: room is reserved for these jobs, so a full store does not refuse them; `quota` bounds them.
    """

    now: int
    jobs: tuple[NewJob, ...]
    idempotency: IdempotencyRecord | None = None
    quota: Quota | None = None
    audit: tuple[Entry, ...] = ()
    is_reserved: bool = False


class ChangeJob(Command[int], frozen=True):
    """Replace a job's spec. Returns the new version.

    With `replan` the job is next due at `due_at`, and `restart` sets its count of runs to zero. A job with no due
    instant left and no open execution becomes COMPLETED; a COMPLETED job that has one becomes PENDING again. Without
    `replan` the job's timer stays as it is: a Fire since the job was read is not undone. Instants in `skipped` that the
    timer has already passed are left out. Fails with NotFound; PreconditionFailed if the job has another version than
    `version`; Conflict if the key is taken or the job is CANCELLED; InsufficientStorage if the spec grows and the store
    is full.
    """

    now: int
    tenant: str
    job_id: str
    version: int
    key: str | None
    name: str
    type: str
    recurs: bool
    due_at: int | None
    spec: JobSpec
    replan: bool = True
    restart: bool = False
    skipped: tuple[Skipped, ...] = ()
    audit: Entry | None = None


class PauseJob(Command[JobStatus], frozen=True):
    """Stop planning executions. `due_at` is kept: skipped instants are counted from there. Returns the job's status.

    Pausing a paused job changes nothing. Fails with NotFound; Conflict if the job is COMPLETED or CANCELLED.
    """

    now: int
    tenant: str
    job_id: str
    by: str
    reason: str
    audit: Entry | None = None


class ResumeJob(Command[JobStatus], frozen=True):
    """Plan executions again from `due_at`, and write the instants skipped meanwhile to the ledger. Returns the status.

    Fails with NotFound; Conflict if the job is not PAUSED, or changed since it was read (`version`).
    """

    now: int
    tenant: str
    job_id: str
    version: int
    due_at: int | None
    skipped: Skipped | None
    audit: Entry | None = None


class CancelJob(Command[list[str]], frozen=True):
    """Cancel a job and its waiting executions. Returns the ids of its running executions, which have to be stopped.

    `skipped` are the overdue instants that will never run; those that the timer has already passed are left out.
    Cancelling a cancelled job changes nothing. Fails with NotFound.
    """

    now: int
    tenant: str
    job_id: str
    skipped: tuple[Skipped, ...] = ()
    audit: Entry | None = None


class PurgeJob(Command[bool], frozen=True):
    """Remove a job with its history, up to `limit` executions at a time. Returns whether more are left.

    While more are left, the job and its waiting executions are CANCELLED: repeat the command until the job is removed.
    Fails with NotFound; Conflict while one of its executions is running.
    """

    tenant: str
    job_id: str
    limit: int = 2000
    audit: Entry | None = None


class Reencrypt(Command[int], frozen=True):
    """Replace stored definitions by the same ones with secrets encrypted again. Returns how many were replaced.

    `changes` lists (job id, version, definition). A job that has another version now is left as it is. The job's
    version does not change.
    """

    changes: tuple[tuple[str, int, JobSpec], ...]


class Swept(msgspec.Struct, frozen=True):
    removed: int
    last_job_id: str | None  # the last job that was read; None: there are no more
    jobs: tuple[tuple[str, str], ...] = ()  # (id, tenant) of the removed jobs, without notifications


class SweepJobs(Command[Swept], frozen=True):
    """Remove jobs that ended long ago, among the `limit` jobs after `after_job_id`. Returns `Swept`.

    A job is removed if it has no key, is CANCELLED, or COMPLETED and does not recur, if its last execution ended and it
    was last changed before `before`, and if none of its history is left.
    A notification whose only execution delivered it before `delivered_before` is removed sooner, with its history. One
    that was not delivered is a dead letter, and stays as long as other jobs. The audit records the removal of jobs, but
    not of notifications, as it does not record their creation.
    """

    now: int
    before: int
    after_job_id: str
    limit: int
    delivered_before: int = 0
