"""Commands on jobs: create, change, pause, resume, cancel, purge."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import cast

import apsw
import msgspec

from duetime.domain import commands as c
from duetime.domain.audit import cancelled
from duetime.domain.capacity import Load, loads, size_of
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
from duetime.store.sqlite.on_chains import Chains
from duetime.store.sqlite.statements import Statements, encoded, page
from duetime.store.totals import ALL, BYTES


class JobCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements
        self._chains = Chains(statements)

    def create_jobs(self, command: c.CreateJobs) -> str | None:
        record = command.idempotency
        if record is not None:
            stored = self._db.row("get_idempotency_key", tenant=record.tenant, key=record.key)
            if stored is not None:
                fingerprint, response = stored
                check_repeat(record, fingerprint)
                return cast(str, response)
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
            raise key_taken([job.key for job, _ in jobs]) from None
        # A separate page without the specs, so that the wide rows are not parsed twice.
        timers = [(job.job_id, job.tenant, job.shard, job.recurs, job.due_at) for job, _ in jobs]
        self._db.run("create_timers", timers=page(timers))
        self._chains.add([job for job, _ in jobs])

    def change_job(self, command: c.ChangeJob) -> int:
        timer = self._db.timer(command.tenant, command.job_id)
        check_change(timer, command)
        spec = page(command.spec)
        size = size_of(spec.encode())
        old_size = self._db.value("get_size", job=command.job_id)
        try:
            self._db.run(
                "change_job", job=command.job_id, key=command.key, name=command.name, type=command.type,
                now=command.now, spec=spec, size=size,
            )  # fmt: skip
        except apsw.ConstraintError:
            raise key_taken([command.key]) from None
        self._chains.change(command.job_id, command.tenant, command.spec)
        self._db.make_room({command.tenant: Load(0, size - old_size)})
        self._db.note(command.audit)
        if not command.replan:
            self._db.run("keep_timer", job=command.job_id)
            return timer.version + 1
        self._db.run(
            "change_timer", job=command.job_id, recurs=command.recurs, due_at=command.due_at,
            restart=command.restart, status=status_after_change(timer.status),
        )  # fmt: skip
        self._db.count_jobs(command.tenant, timer.status, status_after_change(timer.status))
        self._db.add_skips(still_owed(command.skipped, timer.owed_from), command.now)
        self._db.complete_jobs([command.job_id])
        return timer.version + 1

    def pause_job(self, command: c.PauseJob) -> JobStatus:
        timer = self._db.timer(command.tenant, command.job_id)
        if timer.status == JobStatus.PAUSED:
            return JobStatus.PAUSED
        check_pause(timer, command.job_id)
        self._db.run("set_timer", job=command.job_id, status=JobStatus.PAUSED, due_at=None, resume_at=timer.due_at)
        self._db.count_jobs(command.tenant, timer.status, JobStatus.PAUSED)
        self._db.run(
            "set_pause", job=command.job_id, by=command.by, at=command.now, reason=command.reason, now=command.now
        )
        self._db.note(pause_entry(command, timer.status))
        return JobStatus.PAUSED

    def resume_job(self, command: c.ResumeJob) -> JobStatus:
        timer = self._db.timer(command.tenant, command.job_id)
        check_resume(timer, command)
        self._db.run("set_timer", job=command.job_id, status=JobStatus.PENDING, due_at=command.due_at, resume_at=None)
        self._db.count_jobs(command.tenant, timer.status, JobStatus.PENDING)
        self._db.run("set_pause", job=command.job_id, by=None, at=None, reason=None, now=command.now)
        if command.skipped is not None:
            self._db.add_skips([command.skipped], command.now)
        self._db.complete_jobs([command.job_id])
        now_is = JobStatus(self._db.timer(command.tenant, command.job_id).status)
        self._db.note(command.audit, {"status": timer.status}, {"status": now_is})
        return now_is

    def cancel_job(self, command: c.CancelJob) -> list[str]:
        timer = self._db.timer(command.tenant, command.job_id)
        self._end(command.tenant, command.job_id, timer.status, command.now)
        self._db.add_skips(still_owed(command.skipped, timer.owed_from), command.now)
        self._db.run("request_cancel_of_running", job=command.job_id)
        if timer.status != JobStatus.CANCELLED:
            self._db.run("touch_job", job=command.job_id, now=command.now)
            self._db.note(command.audit, {"status": timer.status}, {"status": JobStatus.CANCELLED})
        return [row[0] for row in self._db.rows("list_running_of_job", job=command.job_id)]

    def _end(self, tenant: str, job_id: str, status: str, now: int | None) -> None:
        if status != JobStatus.CANCELLED:
            self._db.run("set_timer", job=job_id, status=JobStatus.CANCELLED, due_at=None, resume_at=None)
            self._db.count_jobs(tenant, status, JobStatus.CANCELLED)
            self._chains.remove(job_id)
        waiting = dict(self._db.rows("count_waiting_of_job", job=job_id))
        if waiting:
            self._db.run("cancel_waiting", job=job_id, now=now)
            moved = {(tenant, state): -count for state, count in waiting.items()}
            self._db.count({**moved, (tenant, State.CANCELLED): sum(waiting.values())})

    def purge_job(self, command: c.PurgeJob) -> bool:
        status = self._db.timer(command.tenant, command.job_id).status
        check_purge(command.job_id, is_running=self._db.row("list_running_of_job", job=command.job_id) is not None)
        ids = self._db.value("list_purgeable", job=command.job_id, limit=command.limit)
        removed = self._db.remove_executions(ids) if ids is not None else 0
        if removed == command.limit:
            self._end(command.tenant, command.job_id, status, None)
            if status != JobStatus.CANCELLED and command.audit is not None:
                self._db.note(cancelled(command.audit, status))
            return True
        size = self._db.value("get_size", job=command.job_id)
        for name in ("purge_skips", "purge_timer", "purge_job"):
            self._db.run(name, job=command.job_id)
        self._chains.remove(command.job_id)
        self._db.make_room({command.tenant: Load(-1, -size)})
        self._db.count_jobs(command.tenant, status, None)
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
