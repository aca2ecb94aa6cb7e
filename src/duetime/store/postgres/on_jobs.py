"""Commands on jobs: create, change, pause, resume, cancel, purge. Each holds its job's timer until the commit."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, IdempotencyKeyReused, PreconditionFailed
from duetime.domain.job import JobStatus
from duetime.domain.plan import Skipped
from duetime.domain.states import State
from duetime.store.postgres.statements import JOBS, Statements, tags_of, text_of


class JobCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def create_jobs(self, command: c.CreateJobs) -> str | None:
        record = command.idempotency
        if record is not None and (answered := await self._answered(record, command.now)) is not None:
            return answered
        jobs = command.jobs
        try:
            await self._db.run(
                "create_jobs", now=command.now, ids=[job.job_id for job in jobs], tenants=[job.tenant for job in jobs],
                keys=[job.key for job in jobs], names=[job.name for job in jobs], types=[job.type for job in jobs],
                owners=[job.owner for job in jobs], shards=[job.shard for job in jobs],
                recurs=[job.recurs for job in jobs], due_ats=[job.due_at for job in jobs],
                tags=[tags_of(job.spec) for job in jobs], specs=[text_of(job.spec) for job in jobs],
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            raise _key_taken(jobs[0].key if len(jobs) == 1 else None) from None
        self._db.moved.update((job.tenant, JOBS, 0) for job in jobs)
        return None

    async def _answered(self, record: c.IdempotencyRecord, now: int) -> str | None:
        """What was answered under this key before; if nothing was, the key is taken with this answer."""
        if await self._db.value(
            "add_idempotency_key", tenant=record.tenant, key=record.key, fingerprint=record.fingerprint,
            response=record.response, now=now,
        ):  # fmt: skip
            return None
        stored = await self._db.row("get_idempotency_key", tenant=record.tenant, key=record.key)
        if stored is None:
            raise Conflict(f"Idempotency-Key '{record.key}' has just been forgotten; send the request again")
        if stored[0] != record.fingerprint:
            raise IdempotencyKeyReused(
                f"Idempotency-Key '{record.key}' was used with another body; send a new key for a new request"
            )
        return str(stored[1])

    async def change_job(self, command: c.ChangeJob) -> int:
        status, version, due_at, resume_at = await self._db.timer(command.tenant, command.job_id)
        if version != command.version:
            raise PreconditionFailed(
                f"job {command.job_id} has version {version}, not {command.version}; read it again and repeat"
            )
        if status == JobStatus.CANCELLED:
            raise Conflict(f"job {command.job_id} is CANCELLED and can't be changed; create a new one")
        try:
            await self._db.run(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, tags=tags_of(command.spec), spec=text_of(command.spec),
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            raise _key_taken(command.key) from None
        if not command.replan:
            await self._db.run("keep_timer", job=command.job_id)
            return int(version) + 1
        await self._db.run(
            "change_timer", job=command.job_id, recurs=command.recurs, due_at=command.due_at,
            restart=command.restart, status=JobStatus.PENDING if status == JobStatus.COMPLETED else status,
        )  # fmt: skip
        await self._write_off(command.skipped, resume_at if status == JobStatus.PAUSED else due_at, command.now)
        await self._db.complete_jobs([command.job_id])
        return int(version) + 1

    async def _write_off(self, skipped: Sequence[Skipped], owed_from: int | None, now: int) -> None:
        """What is skipped goes to the ledger, but for what was fired since it was worked out: that has its decision."""
        if owed_from is None:
            return
        rows = [
            span if span.first_at >= owed_from else msgspec.structs.replace(span, first_at=owed_from, count=None)
            for span in skipped
            if span.until_at > owed_from
        ]
        if rows:
            await self._db.add_skips(rows, now)

    async def pause_job(self, command: c.PauseJob) -> JobStatus:
        status, _, due_at, _ = await self._db.timer(command.tenant, command.job_id)
        if status == JobStatus.PAUSED:
            return JobStatus.PAUSED
        if status != JobStatus.PENDING:
            raise Conflict(f"job {command.job_id} is {status}; only a PENDING job can be paused")
        await self._db.run("set_timer", job=command.job_id, status=JobStatus.PAUSED, due_at=None, resume_at=due_at)
        await self._db.run(
            "set_pause", job=command.job_id, by=command.by, at=command.now, reason=command.reason, now=command.now
        )
        return JobStatus.PAUSED

    async def resume_job(self, command: c.ResumeJob) -> JobStatus:
        status, version, _, _ = await self._db.timer(command.tenant, command.job_id)
        if status != JobStatus.PAUSED:
            raise Conflict(f"job {command.job_id} is {status}; only a PAUSED job can be resumed")
        if version != command.version:
            raise Conflict(f"job {command.job_id} was changed meanwhile; read it again and repeat")
        await self._db.run(
            "set_timer", job=command.job_id, status=JobStatus.PENDING, due_at=command.due_at, resume_at=None
        )
        await self._db.run("set_pause", job=command.job_id, by=None, at=None, reason=None, now=command.now)
        if command.skipped is not None:
            await self._db.add_skips([command.skipped], command.now)
        await self._db.complete_jobs([command.job_id])
        return JobStatus((await self._db.timer(command.tenant, command.job_id))[0])

    async def cancel_job(self, command: c.CancelJob) -> list[str]:
        status, _, due_at, resume_at = await self._db.timer(command.tenant, command.job_id)
        opened = await self._db.rows("lock_open_runs_of", job=command.job_id)
        await self._end(command.job_id, status, opened, command.now)
        await self._write_off(command.skipped, resume_at if status == JobStatus.PAUSED else due_at, command.now)
        running = [execution_id for execution_id, state in opened if state == State.RUNNING]
        if running:
            await self._db.run("request_cancel", jobs=[command.job_id] * len(running), ids=running)
        return running

    async def _end(self, job_id: str, status: str, opened: Sequence[asyncpg.Record], now: int | None) -> None:
        if status != JobStatus.CANCELLED:
            await self._db.run("set_timer", job=job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
        waiting = [execution_id for execution_id, state in opened if state != State.RUNNING]
        if waiting:
            await self._db.cancel_waiting([job_id] * len(waiting), waiting, "cancelled", now)

    async def purge_job(self, command: c.PurgeJob) -> bool:
        status, _, _, _ = await self._db.timer(command.tenant, command.job_id)
        opened = await self._db.rows("lock_open_runs_of", job=command.job_id)
        if any(state == State.RUNNING for _, state in opened):
            raise Conflict(f"job {command.job_id} has a running execution; cancel it first, then purge")
        removed = 0
        for tenant, state, day, count in await self._db.rows(
            "purge_executions", job=command.job_id, limit=command.limit
        ):
            self._db.moved[tenant, state, day] -= count
            removed += count
        if removed == command.limit:
            await self._end(command.job_id, status, opened, None)
            return True
        await self._db.run("purge_job", job=command.job_id)
        self._db.moved[command.tenant, JOBS, 0] -= 1
        return False


def _key_taken(key: str | None) -> Conflict:
    return Conflict(
        f"a job with key '{key}' exists already; change it with PUT /api/v1/jobs/by-key/{key}, or choose another key"
        if key
        else "a job with one of these keys exists already; keys are unique in a tenant"
    )
