"""Commands on jobs: create, change, pause, resume, cancel, purge."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import cast

import apsw
import msgspec

from duetime.domain import commands as c
from duetime.domain.audit import cancelled, own_entry
from duetime.domain.capacity import Load, loads, size_of
from duetime.domain.errors import Conflict, IdempotencyKeyReused, PreconditionFailed
from duetime.domain.job import JobStatus
from duetime.domain.plan import Skipped
from duetime.domain.states import State
from duetime.store.sqlite.on_chains import Chains
from duetime.store.sqlite.statements import ALL, BYTES, Statements, encoded, page


class JobCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements
        self._chains = Chains(statements)

    def create_jobs(self, command: c.CreateJobs) -> str | None:
        record = command.idempotency
        if record is not None:
            stored = self._db.row("get_idempotency_key", tenant=record.tenant, key=record.key)
            if stored is not None:
                if stored[0] != record.fingerprint:
                    raise IdempotencyKeyReused(
                        f"Idempotency-Key '{record.key}' was used with another body; send a new key for a new request"
                    )
                return cast(str, stored[1])
        self.create_together([command])
        if record is not None:
            self._db.run(
                "add_idempotency_key", tenant=record.tenant, key=record.key, fingerprint=record.fingerprint,
                response=record.response, now=command.now,
            )  # fmt: skip
        return None

    def create_together(self, creates: Sequence[c.CreateJobs]) -> None:
        """Writes all jobs as one page. If it raises, the caller must roll back all of them."""
        for quota, group in groupby(creates, key=attrgetter("quota")):
            page_of = list(group)
            if quota is not None:
                self._db.take_quota(quota, sum(len(create.jobs) for create in page_of), page_of[-1].now)
        for create in creates:
            self._db.entries.extend(create.audit)
        jobs = [(job, create.now) for create in creates for job in create.jobs]
        specs = [encoded(job.spec) for job, _ in jobs]
        sizes = [size_of(spec) for spec in specs]
        self._db.make_room(loads([job.tenant for job, _ in jobs], sizes))
        rows = [
            (job.job_id, job.tenant, job.key, job.name, job.type, job.owner, now, size, msgspec.Raw(spec))
            for (job, now), size, spec in zip(jobs, sizes, specs, strict=True)
        ]
        try:
            self._db.run("create_jobs", jobs=page(rows))
        except apsw.ConstraintError:
            raise _key_taken(jobs[0][0].key if len(jobs) == 1 else None) from None
        # A separate page without the specs, so that the wide rows are not parsed twice.
        timers = [(job.job_id, job.tenant, job.shard, job.recurs, job.due_at) for job, _ in jobs]
        self._db.run("create_timers", timers=page(timers))
        self._chains.add([job for job, _ in jobs])

    def change_job(self, command: c.ChangeJob) -> int:
        status, version, due_at, resume_at = self._db.timer(command.tenant, command.job_id)
        if version != command.version:
            raise PreconditionFailed(
                f"job {command.job_id} has version {version}, not {command.version}; read it again and repeat"
            )
        if status == JobStatus.CANCELLED:
            raise Conflict(f"job {command.job_id} is CANCELLED and can't be changed; create a new one")
        spec = page(command.spec)
        size = size_of(spec.encode())
        row = self._db.row("get_size", job=command.job_id)
        assert row is not None
        try:
            self._db.run(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, spec=spec, size=size,
            )  # fmt: skip
        except apsw.ConstraintError:
            raise _key_taken(command.key) from None
        self._chains.change(command.job_id, command.tenant, command.spec)
        self._db.make_room({command.tenant: Load(0, size - row[0])})
        self._db.note(command.audit)
        if not command.replan:
            self._db.run("keep_timer", job=command.job_id)
            return cast(int, version) + 1
        self._db.run(
            "change_timer", job=command.job_id, recurs=command.recurs, due_at=command.due_at,
            restart=command.restart, status=JobStatus.PENDING if status == JobStatus.COMPLETED else status,
        )  # fmt: skip
        self._write_off(command.skipped, resume_at if status == JobStatus.PAUSED else due_at, command.now)
        self._db.run("complete_jobs", jobs=page([command.job_id]))
        return cast(int, version) + 1

    def _write_off(self, skipped: Sequence[Skipped], owed_from: int | None, now: int) -> None:
        """Adds skipped instants to the ledger, except those that have fired since: these have a decision."""
        if owed_from is None:
            return
        rows = [
            span if span.first_at >= owed_from else msgspec.structs.replace(span, first_at=owed_from, count=None)
            for span in skipped
            if span.until_at > owed_from
        ]
        if rows:
            self._db.run("add_skips", skips=page(rows), now=now)

    def pause_job(self, command: c.PauseJob) -> JobStatus:
        status, _, due_at, _ = self._db.timer(command.tenant, command.job_id)
        if status == JobStatus.PAUSED:
            return JobStatus.PAUSED
        if status != JobStatus.PENDING:
            raise Conflict(f"job {command.job_id} is {status}; only a PENDING job can be paused")
        self._db.run("set_timer", job=command.job_id, status=JobStatus.PAUSED, due_at=None, resume_at=due_at)
        self._db.run(
            "set_pause",
            job=command.job_id,
            by=command.by,
            at=command.now,
            reason=command.reason,
            now=command.now,
        )
        after = {"status": JobStatus.PAUSED, "reason": command.reason}
        own = own_entry(command.now, command.tenant, "job.pause", command.job_id, after)
        self._db.note(command.audit or own, {"status": status}, after)
        return JobStatus.PAUSED

    def resume_job(self, command: c.ResumeJob) -> JobStatus:
        status, version, _, _ = self._db.timer(command.tenant, command.job_id)
        if status != JobStatus.PAUSED:
            raise Conflict(f"job {command.job_id} is {status}; only a PAUSED job can be resumed")
        if version != command.version:
            raise Conflict(f"job {command.job_id} was changed meanwhile; read it again and repeat")
        self._db.run("set_timer", job=command.job_id, status=JobStatus.PENDING, due_at=command.due_at, resume_at=None)
        self._db.run("set_pause", job=command.job_id, by=None, at=None, reason=None, now=command.now)
        if command.skipped is not None:
            self._db.run("add_skips", skips=page([command.skipped]), now=command.now)
        self._db.run("complete_jobs", jobs=page([command.job_id]))
        now_is = JobStatus(self._db.timer(command.tenant, command.job_id)[0])
        self._db.note(command.audit, {"status": status}, {"status": now_is})
        return now_is

    def cancel_job(self, command: c.CancelJob) -> list[str]:
        status, _, due_at, resume_at = self._db.timer(command.tenant, command.job_id)
        self._end(command.tenant, command.job_id, status, command.now)
        self._write_off(command.skipped, resume_at if status == JobStatus.PAUSED else due_at, command.now)
        self._db.run("request_cancel_of_running", job=command.job_id)
        if status != JobStatus.CANCELLED:
            self._db.run("touch_job", job=command.job_id, now=command.now)
            self._db.note(command.audit, {"status": status}, {"status": JobStatus.CANCELLED})
        return [row[0] for row in self._db.rows("list_running_of_job", job=command.job_id)]

    def _end(self, tenant: str, job_id: str, status: str, now: int | None) -> None:
        if status != JobStatus.CANCELLED:
            self._db.run("set_timer", job=job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
            self._chains.remove(job_id)
        waiting = dict(self._db.rows("count_waiting_of_job", job=job_id))
        if waiting:
            self._db.run("cancel_waiting", job=job_id, now=now)
            moved = {(tenant, state): -count for state, count in waiting.items()}
            self._db.count({**moved, (tenant, State.CANCELLED): sum(waiting.values())})

    def purge_job(self, command: c.PurgeJob) -> bool:
        status, _, _, _ = self._db.timer(command.tenant, command.job_id)
        if self._db.row("list_running_of_job", job=command.job_id) is not None:
            raise Conflict(f"job {command.job_id} has a running execution; cancel it first, then purge")
        row = self._db.row("list_purgeable", job=command.job_id, limit=command.limit)
        if row is not None and row[0] is not None:
            removed = self._db.remove_executions(row[0])
            if removed == command.limit:
                self._end(command.tenant, command.job_id, status, None)
                if status != JobStatus.CANCELLED and command.audit is not None:
                    self._db.note(cancelled(command.audit, status))
                return True
        size = self._db.row("get_size", job=command.job_id)
        assert size is not None
        for name in ("purge_skips", "purge_timer", "purge_job"):
            self._db.run(name, job=command.job_id)
        self._chains.remove(command.job_id)
        self._db.make_room({command.tenant: Load(-1, -size[0])})
        self._db.note(command.audit)
        return False

    def reencrypt(self, command: c.Reencrypt) -> int:
        done = 0
        for job_id, version, new in command.changes:
            spec = page(new)
            row = self._db.row("get_encrypted", job=job_id, version=version)
            if row is not None:
                (tenant, before), size = row, size_of(spec.encode())
                self._db.run("reencrypt", job=job_id, spec=spec, size=size)
                self._db.count({(ALL, BYTES): size - before, (tenant, BYTES): size - before})
                done += 1
        return done


def _key_taken(key: str | None) -> Conflict:
    return Conflict(
        f"a job with key '{key}' exists already; change it with PUT /api/v1/jobs/by-key/{key}, or choose another key"
        if key
        else "a job with one of these keys exists already; keys are unique in a tenant"
    )
