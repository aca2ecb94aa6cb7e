"""The rules for commands on a stored job: whether its status allows the command, and what the command leaves behind.

A store reads the job's timer, calls these functions, and writes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from duetime.domain.audit import Entry, own_entry
from duetime.domain.capacity import Load, loads
from duetime.domain.commands import ChangeJob, CreateJobs, IdempotencyRecord, PauseJob, ResumeJob
from duetime.domain.errors import Conflict, IdempotencyKeyReused, PreconditionFailed
from duetime.domain.job import JobStatus
from duetime.domain.plan import Skipped

_is_reserved = attrgetter("is_reserved")


class StoredTimer(NamedTuple):
    status: str  # a JobStatus
    version: int
    due_at: int | None
    resume_at: int | None  # while paused: when it would be due

    @property
    def owed_from(self) -> int | None:
        """Returns the first instant without a decision."""
        return self.resume_at if self.status == JobStatus.PAUSED else self.due_at


def check_change(timer: StoredTimer, command: ChangeJob) -> None:
    if timer.version != command.version:
        raise PreconditionFailed(
            f"job {command.job_id} has version {timer.version}, not {command.version}; read it again and repeat"
        )
    check_changeable(command.job_id, timer.status)


def check_changeable(job_id: str, status: str) -> None:
    if status == JobStatus.CANCELLED:
        raise Conflict(f"job {job_id} is CANCELLED and can't be changed; create a new one")


def status_after_change(status: str) -> str:
    """Returns the status with which a change plans a job again. One that has no instant left is completed later."""
    return JobStatus.PENDING if status == JobStatus.COMPLETED else status


def check_pause(timer: StoredTimer, job_id: str) -> None:
    if timer.status != JobStatus.PENDING:
        raise Conflict(f"job {job_id} is {timer.status}; only a PENDING job can be paused")


def pause_entry(command: PauseJob, status: str) -> Entry:
    """Returns the audit entry of a pause: the user's, or one of Duetime if Duetime itself paused the job."""
    after = {"status": JobStatus.PAUSED, "reason": command.reason}
    entry = command.audit or own_entry(command.now, command.tenant, "job.pause", command.job_id, after)
    return entry.filled({"status": status}, after)


def check_resume(timer: StoredTimer, command: ResumeJob) -> None:
    if timer.status != JobStatus.PAUSED:
        raise Conflict(f"job {command.job_id} is {timer.status}; only a PAUSED job can be resumed")
    if timer.version != command.version:
        raise Conflict(f"job {command.job_id} was changed meanwhile; read it again and repeat")


def check_run(job_id: str, status: str) -> None:
    if status == JobStatus.CANCELLED:
        raise Conflict(f"job {job_id} is CANCELLED; create a new one to run it")


def check_purge(job_id: str, *, is_running: bool) -> None:
    if is_running:
        raise Conflict(f"job {job_id} has a running execution; cancel it first, then purge")


def still_owed(skipped: Iterable[Skipped], owed_from: int | None) -> list[Skipped]:
    """Returns the skipped instants without those that have fired since: these have a decision."""
    if owed_from is None:
        return []
    return [
        span if span.first_at >= owed_from else replace(span, first_at=owed_from, count=None)
        for span in skipped
        if span.until_at > owed_from
    ]


def check_repeat(record: IdempotencyRecord, fingerprint: str) -> None:
    """Raises IdempotencyKeyReused if the key was stored with another body."""
    if fingerprint != record.fingerprint:
        raise IdempotencyKeyReused(
            f"Idempotency-Key '{record.key}' was used with another body; send a new key for a new request"
        )


def loads_of(creates: Sequence[CreateJobs], sizes: Sequence[int]) -> Iterator[tuple[bool, dict[str, Load]]]:
    """Yields the loads that creates add, apart for those that room is reserved for: (is it reserved, by tenant).

    `sizes`: of all their jobs, in order.
    """
    if not any(map(_is_reserved, creates)):  # true of every page of a burst
        yield False, loads([job.tenant for create in creates for job in create.jobs], sizes)
        return
    marked = [(create.is_reserved, job.tenant) for create in creates for job in create.jobs]
    for wanted in sorted({mark for mark, _ in marked}):
        chosen = [(tenant, size) for (mark, tenant), size in zip(marked, sizes, strict=True) if mark is wanted]
        yield wanted, loads([tenant for tenant, _ in chosen], [size for _, size in chosen])


def key_taken(keys: list[str | None]) -> Conflict:
    """Returns the error for new keys, one of which another job has."""
    if len(keys) == 1 and (key := keys[0]):
        return Conflict(
            f"a job with key '{key}' exists already; change it with PUT /api/v1/jobs/by-key/{key}, or choose another "
            "key"
        )
    return Conflict("a job with one of these keys exists already; keys are unique in a tenant")
