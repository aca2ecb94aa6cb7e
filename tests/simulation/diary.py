"""Records the requests of targets and the final state of the store, for the checker of the cluster tests."""

from __future__ import annotations

from typing import Any

from cluster.checker import AcknowledgedJob, History, instant, shown
from duetime.domain.commands import ClaimExecutions, Command, Fire, Fired, NewJob
from duetime.domain.plan import NewExecution
from duetime.ports.executor import Attempt
from duetime.ports.store import ExecutionRecord, Store
from duetime.testing import HandClock
from samples import TENANT, executions_of


class Diary:
    """`wrongs`: decisions before their instant, by the clock of the machine that decided, and requests without a claim.

    If the clock of a machine is set back after its decision, while the response is in flight or the claim waits for a
    place, the machine still sends what it has claimed.
    """

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.lines: list[dict[str, Any]] = []
        self.wrongs: list[str] = []
        self._claims: set[tuple[str, int]] = set()  # execution and token

    def decided(self, command: Command, answer: Any, machine_now: int) -> None:
        """Records a command that the store has applied, sent when the clock of the sender read `machine_now`."""
        if isinstance(command, Fire):
            for move in command.moves:
                self._look(move.job_id, move.due_at, machine_now)
            for planned in command.executions:
                self._look(planned.execution_id, planned.scheduled_at, machine_now)
                if command.claim and isinstance(answer, Fired) and _is_claimed(planned, answer):
                    self._claims.add((planned.execution_id, 1))
        elif isinstance(command, ClaimExecutions) and isinstance(answer, list):
            for claim in answer:
                self._look(claim.execution_id, claim.scheduled_at, machine_now)
                self._claims.add((claim.execution_id, claim.token))

    def _look(self, what: str, at: int, machine_now: int) -> None:
        if machine_now < at:
            self.wrongs.append(f"{what}: decided {at - machine_now} ms early, for {shown(at)}")

    def begin(self, attempt: Attempt) -> dict[str, Any]:
        claim = attempt.claim
        if (claim.execution_id, claim.token) not in self._claims:
            self.wrongs.append(f"{claim.execution_id}: sent with token {claim.token}, which no node has claimed")
        line = {
            "execution_id": claim.execution_id, "job_id": claim.job_id, "scheduled_at": shown(claim.scheduled_at),
            "attempt": claim.attempt, "token": claim.token, "trigger": claim.trigger,
            "t_start": self._clock.now(), "t_end": None, "status": None,
        }  # fmt: skip
        self.lines.append(line)
        return line

    def end(self, line: dict[str, Any], status: int | None) -> None:
        line |= {"t_end": self._clock.now(), "status": status}


def _is_claimed(planned: NewExecution, fired: Fired) -> bool:
    return planned.job_id not in fired.stale_jobs and planned.execution_id not in fired.not_claimed


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
