"""Commands on jobs: create, change, pause, resume, cancel, purge. Each locks its job's timer until the commit."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from duetime.domain import commands as c
from duetime.domain.audit import cancelled, own_entry
from duetime.domain.capacity import Load, loads
from duetime.domain.errors import Conflict, IdempotencyKeyReused, PreconditionFailed
from duetime.domain.job import JobStatus
from duetime.domain.plan import Skipped
from duetime.domain.states import State
from duetime.store.postgres.on_chains import Chains
from duetime.store.postgres.statements import ALL, BYTES, Statements, tags_of, text_of


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
        specs, sizes = zip(*[text_of(job.spec) for job in jobs], strict=True)
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
            raise _key_taken(jobs[0].key if len(jobs) == 1 else None) from None
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
        spec, size = text_of(command.spec)
        try:
            old_size = await self._db.value(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, tags=tags_of(command.spec), size=size, spec=spec,
            )  # fmt: skip
        except asyncpg.UniqueViolationError:
            raise _key_taken(command.key) from None
        await self._chains.change(command.job_id, command.tenant, command.spec)
        self._db.make_room({command.tenant: Load(0, size - int(old_size))})
        self._db.note(command.audit)
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
        """Adds skipped instants to the ledger, except those that have fired since: these have a decision."""
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
        after = {"status": JobStatus.PAUSED, "reason": command.reason}
        own = own_entry(command.now, command.tenant, "job.pause", command.job_id, after)
        self._db.note(command.audit or own, {"status": status}, after)
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
        now_is = JobStatus((await self._db.timer(command.tenant, command.job_id))[0])
        self._db.note(command.audit, {"status": status}, {"status": now_is})
        return now_is

    async def cancel_job(self, command: c.CancelJob) -> list[str]:
        status, _, due_at, resume_at = await self._db.timer(command.tenant, command.job_id)
        opened = await self._db.rows("lock_open_runs_of", job=command.job_id)
        await self._end(command.job_id, status, opened, command.now)
        await self._write_off(command.skipped, resume_at if status == JobStatus.PAUSED else due_at, command.now)
        running = [execution_id for execution_id, state in opened if state == State.RUNNING]
        if running:
            await self._db.run("request_cancel", jobs=[command.job_id] * len(running), ids=running)
        if status != JobStatus.CANCELLED:
            await self._db.run("touch_job", job=command.job_id, now=command.now)
            self._db.note(command.audit, {"status": status}, {"status": JobStatus.CANCELLED})
        return running

    async def _end(self, job_id: str, status: str, opened: Sequence[asyncpg.Record], now: int | None) -> None:
        if status != JobStatus.CANCELLED:
            await self._db.run("set_timer", job=job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
            await self._chains.remove(job_id)
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
            if status != JobStatus.CANCELLED and command.audit is not None:
                self._db.note(cancelled(command.audit, status))
            return True
        size = await self._db.value("purge_job", job=command.job_id)
        self._db.make_room({command.tenant: Load(-1, -int(size))})
        self._db.note(command.audit)
        return False

    async def reencrypt(self, command: c.Reencrypt) -> int:
        jobs = sorted(command.changes, key=lambda change: change[:2])  # all that lock several use this order
        texts = [text_of(spec) for _, _, spec in jobs]
        rows = await self._db.rows(
            "reencrypt", jobs=[job_id for job_id, _, _ in jobs], versions=[version for _, version, _ in jobs],
            sizes=[size for _, size in texts], specs=[text for text, _ in texts],
        )  # fmt: skip
        for tenant, grown in rows:
            self._db.moved[tenant, BYTES, 0] += grown
            self._db.moved[ALL, BYTES, 0] += grown
        return len(rows)


def _key_taken(key: str | None) -> Conflict:
    return Conflict(
        f"a job with key '{key}' exists already; change it with PUT /api/v1/jobs/by-key/{key}, or choose another key"
        if key
        else "a job with one of these keys exists already; keys are unique in a tenant"
    )
