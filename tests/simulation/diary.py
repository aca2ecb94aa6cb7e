"""What the targets saw, and what the store says in the end, as the checker of the cluster tests reads it."""

from __future__ import annotations

from typing import Any

from cluster.checker import AcknowledgedJob, History, instant, shown
from duetime.domain.commands import NewJob
from duetime.ports.executor import Task
from duetime.ports.store import ExecutionRecord, Store
from duetime.testing import HandClock
from samples import TENANT, executions_of


class Diary:
    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.lines: list[dict[str, Any]] = []
        self.early: list[str] = []  # by the clock of the machine that sent it

    def begin(self, task: Task, machine_now: int) -> dict[str, Any]:
        if machine_now < task.scheduled_at:
            self.early.append(f"{task.execution_id} was sent {task.scheduled_at - machine_now} ms early")
        line = {
            "execution_id": task.execution_id, "job_id": task.job_id, "scheduled_at": shown(task.scheduled_at),
            "attempt": task.attempt, "token": task.token, "trigger": task.trigger, "t_start": self._clock.now(),
            "t_end": None, "status": None,
        }  # fmt: skip
        self.lines.append(line)
        return line

    def end(self, line: dict[str, Any], status: int | None) -> None:
        line |= {"t_end": self._clock.now(), "status": status}


def acknowledged(job: NewJob, now: int) -> AcknowledgedJob:
    end_at = None if job.spec.end_at is None else instant(job.spec.end_at)
    return AcknowledgedJob(job.job_id, job.spec.schedule, now, end_at=end_at, most_attempts=8)


async def history_of(store: Store, jobs: list[AcknowledgedJob], lines: list[dict[str, Any]], until: int) -> History:
    executions: list[dict[str, Any]] = []
    skipped: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        executions += [_row(record) for record in await executions_of(store, job.job_id)]
        spans = await store.list_skipped(job.job_id, 1000)
        skipped[job.job_id] = [{"first_at": shown(s.first_at), "until_at": shown(s.until_at)} for s in spans]
    stored = [job.job_id for job in jobs if await store.get_job(TENANT, job.job_id) is not None]
    return History(jobs, lines, executions, skipped, frozenset(stored), until)


def _row(record: ExecutionRecord) -> dict[str, Any]:
    return {
        "execution_id": record.execution_id, "job_id": record.job_id, "scheduled_at": shown(record.scheduled_at),
        "trigger": record.trigger, "state": record.state, "attempt": record.attempt, "reason": record.reason,
        "end_time": None if record.ended_at is None else shown(record.ended_at),
    }  # fmt: skip
