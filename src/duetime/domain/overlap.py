"""Overlap policies: decides what happens to due instants of a job that overlap open executions, or each other.

The store says which executions of a job are open. `settle` decides about a job's new ones of one page, in order:

    policy           with an open execution                   several instants together, with nothing open
    allow            all run                                  all run
    skip             all are skipped                          the oldest runs, the others wait for their turn
    queue_one        one waits, the others are skipped        the oldest runs, the others wait for their turn
    queue_all        all wait for their turn                  the oldest runs, the others wait for their turn
    cancel_running   the newest runs, what is open is         the newest runs, the others are skipped
                     cancelled, the others are skipped

Several instants are due together only if they are late and the catch-up policy lets them run: on time they would not
have overlapped. So none is skipped because of another, except where only the newest matters. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import SECOND
from duetime.domain.job import Overlap
from duetime.domain.plan import NewExecution, TimerMove

MOST_WAITING = 1_000  # executions of one job that wait for their turn; instants beyond that are skipped


class Open(NamedTuple):
    """A job's open executions when its instants are due: whether there are any, and how many wait for their turn.

    `waiting` need not be counted beyond `MOST_WAITING`.
    """

    is_open: bool
    waiting: int


NOTHING_OPEN = Open(False, 0)
_QUEUEING = frozenset({Overlap.QUEUE_ONE, Overlap.QUEUE_ALL})


class Settled(NamedTuple):
    """A page's executions by decision. Open ones of the jobs in `replaced` are cancelled before `to_run` starts."""

    to_run: list[NewExecution]
    held: list[NewExecution]
    skipped: list[NewExecution]
    replaced: list[str]


def settle(executions: Iterable[NewExecution], found: Mapping[str, Open]) -> Settled:
    """Decide about new executions of any jobs. Those of one job must come oldest first."""
    settled = Settled([], [], [], [])
    by_job = defaultdict[str, list[NewExecution]](list)
    for execution in executions:
        by_job[execution.job_id].append(execution)
    for job_id, siblings in by_job.items():
        _settle_job(siblings, found.get(job_id, NOTHING_OPEN), settled)
    return settled


def _settle_job(siblings: list[NewExecution], found: Open, settled: Settled) -> None:
    policy = siblings[0].if_open
    room = max(0, MOST_WAITING - found.waiting)
    if policy == "run":
        settled.to_run.extend(siblings)
        return
    if policy == "cancel":
        settled.to_run.append(siblings[-1])
        settled.skipped.extend(siblings[:-1])
        if found.is_open:
            settled.replaced.append(siblings[0].job_id)
        return
    if not found.is_open:
        settled.to_run.append(siblings[0])
        siblings = siblings[1:]
    elif policy == "skip":
        room = 0
    elif policy == "hold_one":
        room = 0 if found.waiting else 1
    settled.held.extend(siblings[:room])
    settled.skipped.extend(siblings[room:])


Uncounted = tuple[str, int, int | None]  # job, number of executions to subtract, when it is due next if it had ended


class NotRun(NamedTuple):
    """The executions of a page, by id, that the timer moves counted, but that were skipped, held or existed already."""

    skipped: frozenset[str]
    held: frozenset[str]
    decided: frozenset[str]  # their instants had an execution already: a clock was set back, for example

    @property
    def ids(self) -> frozenset[str]:
        return self.skipped | self.held | self.decided

    def jobs(self, executions: Iterable[NewExecution]) -> set[str]:
        """Returns the jobs that may have no run left."""
        ids = self.ids
        return {execution.job_id for execution in executions if execution.execution_id in ids}

    def uncounted(self, executions: Iterable[NewExecution], moves: Iterable[TimerMove]) -> list[Uncounted]:
        ids = self.skipped | self.decided
        numbers = Counter(execution.job_id for execution in executions if execution.execution_id in ids)
        or_due_at = {move.job_id: move.or_due_at for move in moves} if numbers else {}
        return [(job_id, number, or_due_at[job_id]) for job_id, number in numbers.items()]


def ids_of(executions: Iterable[NewExecution]) -> frozenset[str]:
    return frozenset(execution.execution_id for execution in executions)


def may_release_another(claim: Claim, end: AttemptEnd) -> bool:
    """Returns whether a held execution may wait for this end. If False, none does (or the clock was set back).

    Under any policy instants that are due together wait for each other. They are at least a second apart, so the first
    of them starts at least a second late.
    """
    begun_at = end.ended_at if end.started_at is None else end.started_at
    return claim.spec.overlap in _QUEUEING or begun_at - claim.scheduled_at >= SECOND
