"""Commands on jobs: create, change, pause, resume, cancel, purge. Each locks its job's timer until the commit."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from duetime.domain import commands as c
from duetime.domain.audit import cancelled
from duetime.domain.capacity import Load, loads
from duetime.domain.errors import Conflict
from duetime.domain.job import JobStatus
from duetime.domain.states import State
from duetime.domain.stored_jobs import (
    check_change,
    check_pause,
    check_purge,
    check_repeat,
    check_resume,
    key_taken,
    pause_entry,
    status_after_change,
    still_owed,
)
from duetime.store.postgres.on_chains import Chains
from duetime.store.postgres.statements import Statements, sized_text_of, tags_of
from duetime.store.totals import ALL, BYTES


class JobCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements
        self._chains = Chains(statements)

    async def create_jobs(self, command: c.CreateJobs) -> str | None:
        record = command.idempotency
        if record is not None and (answered := await self._answered(record, command.now)) is not None:
            return answered
        await self.create_together([command])
        return None

    async def create_together(self, creates: Sequence[c.CreateJobs]) -> None:
        """Writes all jobs as one page. If it raises, the caller must roll back all of them."""
        for create in creates:
            if create.quota is not None:
                self._db.take_quota(create.quota, len(create.jobs), create.now)
            self._db.pending.entries.extend(create.audit)
        jobs = [job for create in creates for job in create.jobs]
        nows = [create.now for create in creates for _ in create.jobs] if len(creates) > 1 else [creates[0].now]
        specs, sizes = zip(*[sized_text_of(job.spec) for job in jobs], strict=True)
        self._db.make_room(loads([job.tenant for job in jobs], sizes))
        try:
            await self._db.run(
                "create_jobs", nows=nows, same_now=nows[0], ids=[job.job_id for job in jobs],
                tenants=[job.tenant for job in jobs],
                keys=[job.key for job in jobs], names=[job.name for job in jobs], types=[job.type for job in jobs],
                owners=[job.owner for job in jobs], shards=[job.shard for job in jobs],
                recurs=[job.recurs for job in jobs], due_ats=[job.due_at for job in jobs],
                tags=[tags_of(job.spec) for job in jobs], sizes=sizes, specs=specs,
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            raise key_taken([job.key for job in jobs]) from None
        await self._chains.add(jobs)

    async def _answered(self, record: c.IdempotencyRecord, now: int) -> str | None:
        """Returns the response stored under this key. If there is none, stores this one and returns None."""
        if await self._db.value(
            "add_idempotency_key", tenant=record.tenant, key=record.key, fingerprint=record.fingerprint,
            response=record.response, now=now,
        ):  # fmt: skip
            return None
        stored = await self._db.row("get_idempotency_key", tenant=record.tenant, key=record.key)
        if stored is None:
            raise Conflict(f"Idempotency-Key '{record.key}' has just been forgotten; send the request again")
        fingerprint, response = stored
        check_repeat(record, fingerprint)
        return str(response)

    async def change_job(self, command: c.ChangeJob) -> int:
        timer = await self._db.timer(command.tenant, command.job_id)
        check_change(timer, command)
        spec, size = sized_text_of(command.spec)
        try:
            old_size = await self._db.value(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, tags=tags_of(command.spec), size=size, spec=spec,
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            raise key_taken([command.key]) from None
        await self._chains.change(command.job_id, command.tenant, command.spec)
        self._db.make_room({command.tenant: Load(0, size - int(old_size))})
        self._db.note(command.audit)
        if not command.replan:
            await self._db.run("keep_timer", job=command.job_id)
            return timer.version + 1
        await self._db.run(
            "change_timer", job=command.job_id, recurs=command.recurs, due_at=command.due_at,
            restart=command.restart, status=status_after_change(timer.status),
        )  # fmt: skip
        self._db.count_jobs(command.tenant, timer.status, status_after_change(timer.status))
        await self._db.add_skips(still_owed(command.skipped, timer.owed_from), command.now)
        await self._db.complete_jobs([command.job_id])
        return timer.version + 1

    async def pause_job(self, command: c.PauseJob) -> JobStatus:
        timer = await self._db.timer(command.tenant, command.job_id)
        if timer.status == JobStatus.PAUSED:
            return JobStatus.PAUSED
        check_pause(timer, command.job_id)
        await self._db.run(
            "set_timer", job=command.job_id, status=JobStatus.PAUSED, due_at=None, resume_at=timer.due_at
        )
        self._db.count_jobs(command.tenant, timer.status, JobStatus.PAUSED)
        await self._db.run(
            "set_pause", job=command.job_id, by=command.by, at=command.now, reason=command.reason, now=command.now
        )
        self._db.note(pause_entry(command, timer.status))
        return JobStatus.PAUSED

    async def resume_job(self, command: c.ResumeJob) -> JobStatus:
        timer = await self._db.timer(command.tenant, command.job_id)
        check_resume(timer, command)
        await self._db.run(
            "set_timer", job=command.job_id, status=JobStatus.PENDING, due_at=command.due_at, resume_at=None
        )
        self._db.count_jobs(command.tenant, timer.status, JobStatus.PENDING)
        await self._db.run("set_pause", job=command.job_id, by=None, at=None, reason=None, now=command.now)
        if command.skipped is not None:
            await self._db.add_skips([command.skipped], command.now)
        await self._db.complete_jobs([command.job_id])
        now_is = JobStatus((await self._db.timer(command.tenant, command.job_id)).status)
        self._db.note(command.audit, {"status": timer.status}, {"status": now_is})
        return now_is

    async def cancel_job(self, command: c.CancelJob) -> list[str]:
        timer = await self._db.timer(command.tenant, command.job_id)
        opened = await self._db.rows("lock_open_runs_of", job=command.job_id)
        await self._end(command.tenant, command.job_id, timer.status, opened, command.now)
        await self._db.add_skips(still_owed(command.skipped, timer.owed_from), command.now)
        running = [execution_id for execution_id, state in opened if state == State.RUNNING]
        if running:
            await self._db.run("request_cancel", jobs=[command.job_id] * len(running), ids=running)
        if timer.status != JobStatus.CANCELLED:
            await self._db.run("touch_job", job=command.job_id, now=command.now)
            self._db.note(command.audit, {"status": timer.status}, {"status": JobStatus.CANCELLED})
        return running

    async def _end(
        self, tenant: str, job_id: str, status: str, opened: Sequence[asyncpg.Record], now: int | None
    ) -> None:
        if status != JobStatus.CANCELLED:
            await self._db.run("set_timer", job=job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
            self._db.count_jobs(tenant, status, JobStatus.CANCELLED)
            await self._chains.remove(job_id)
        waiting = [execution_id for execution_id, state in opened if state != State.RUNNING]
        if waiting:
            await self._db.cancel_waiting([job_id] * len(waiting), waiting, "cancelled", now)

    async def purge_job(self, command: c.PurgeJob) -> bool:
        status = (await self._db.timer(command.tenant, command.job_id)).status
        opened = await self._db.rows("lock_open_runs_of", job=command.job_id)
        check_purge(command.job_id, is_running=any(state == State.RUNNING for _, state in opened))
        removed = 0
        for tenant, state, day, count in await self._db.rows(
            "purge_executions", job=command.job_id, limit=command.limit
        ):
            self._db.moved[tenant, state, day] -= count
            removed += count
        if removed == command.limit:
            await self._end(command.tenant, command.job_id, status, opened, None)
            if status != JobStatus.CANCELLED and command.audit is not None:
                self._db.note(cancelled(command.audit, status))
            return True
        size = await self._db.value("purge_job", job=command.job_id)
        self._db.make_room({command.tenant: Load(-1, -int(size))})
        self._db.count_jobs(command.tenant, status, None)
        self._db.note(command.audit)
        return False

    async def reencrypt(self, command: c.Reencrypt) -> int:
        jobs = sorted(command.changes, key=lambda change: change[:2])  # all that lock several use this order
        texts = [sized_text_of(spec) for _, _, spec in jobs]
        rows = await self._db.rows(
            "reencrypt", jobs=[job_id for job_id, _, _ in jobs], versions=[version for _, version, _ in jobs],
            sizes=[size for _, size in texts], specs=[text for text, _ in texts],
        )  # fmt: skip
        for tenant, grown in rows:
            self._db.moved[tenant, BYTES, 0] += grown
            self._db.moved[ALL, BYTES, 0] += grown
        return len(rows)
