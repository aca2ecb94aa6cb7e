"""What is done to jobs."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.job import JobSpec
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
    """What a create answered, kept so that a repeat with the same key and body gets the same answer."""

    tenant: str
    key: str
    fingerprint: str  # of the request's body
    response: str


class CreateJobs(Command, frozen=True):
    """Add jobs and their timers. Answers None.

    Refused with Conflict when a key is taken in the tenant. With `idempotency`: answers the stored response (str) if
    the key is known with the same fingerprint, and refuses IdempotencyKeyReused if with another.
    Refused: QuotaExceeded if `quota` has not so many left; InsufficientStorage if the store is full.
    """

    now: int
    jobs: tuple[NewJob, ...]
    idempotency: IdempotencyRecord | None = None
    quota: Quota | None = None
    audit: tuple[Entry, ...] = ()


class ChangeJob(Command, frozen=True):
    """Replace a job's spec. Answers the new version.

    With `replan` it is next due at `due_at`, its runs counted from zero if `restart`; if it has no run left and nothing
    open, it is COMPLETED, and a COMPLETED one that has is PENDING again. Without, it stays due as it is: a fire since
    the job was read is not undone. Of `skipped`, what the timer has moved past meanwhile is left out.
    Refused: NotFound; PreconditionFailed if `version` is another; Conflict if the key is taken or the job is CANCELLED;
    InsufficientStorage if it grows and the store is full.
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


class PauseJob(Command, frozen=True):
    """Stop planning runs; `due_at` is kept as the instant from which skipped ones are counted. Answers the status.

    Pausing a paused job changes nothing. Refused: NotFound; Conflict if it is COMPLETED or CANCELLED.
    """

    now: int
    tenant: str
    job_id: str
    by: str
    reason: str
    audit: Entry | None = None


class ResumeJob(Command, frozen=True):
    """Plan runs again from `due_at`, and write what passed meanwhile to the ledger. Answers the status.

    Refused: NotFound; Conflict if it is not PAUSED, or changed since it was read (`version`).
    """

    now: int
    tenant: str
    job_id: str
    version: int
    due_at: int | None
    skipped: Skipped | None
    audit: Entry | None = None


class CancelJob(Command, frozen=True):
    """End a job: no further run; executions that wait are CANCELLED. Answers ids of those running, to be stopped.

    Of `skipped`, the overdue instants that now never run, what the timer has moved past meanwhile is left out.
    Cancelling a cancelled job changes nothing. Refused: NotFound.
    """

    now: int
    tenant: str
    job_id: str
    skipped: tuple[Skipped, ...] = ()
    audit: Entry | None = None


class PurgeJob(Command, frozen=True):
    """Remove a job with its history, up to `limit` executions of it. Answers whether more is left.

    As long as more is left, the job is CANCELLED and what waited of it too: repeat until it is gone.
    Refused: NotFound; Conflict while one of its executions is running.
    """

    tenant: str
    job_id: str
    limit: int = 2000
    audit: Entry | None = None


class Reencrypt(Command, frozen=True):
    """Put definitions whose secrets were encrypted again in place of those that were read. Answers how many were.

    `changes` names (job id, version, definition): a job that has another version meanwhile is left alone. It stays the
    same job, of the same version.
    """

    changes: tuple[tuple[str, int, JobSpec], ...]


class SweepJobs(Command, frozen=True):
    """Remove jobs that are long over, among the `limit` jobs after `after_job_id`. Answers `Swept`.

    One is removed if it has no key, is CANCELLED, or COMPLETED and does not recur, if its last run ended and it was
    last changed before `before`, and if nothing is left of its history.
    A notification that was delivered with its only run, before `delivered_before`, goes sooner and with its history:
    one that was not is a dead letter, and stays as long as others. The audit says which jobs went, but not of
    notifications: it does not say that they came.
    """

    now: int
    before: int
    after_job_id: str
    limit: int
    delivered_before: int = 0


class Swept(msgspec.Struct, frozen=True):
    removed: int
    last_job_id: str | None  # of those that were looked at; None: there are no more
