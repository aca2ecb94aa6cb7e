"""Plans due timers: which of a timer's instants run, which are skipped and why, and when it is due next.

An instant at most `GRACE` late is simply late and runs. Older instants were missed because no node could run them: the
job's catch-up policy decides. Every instant that does not run is in a `Skipped` span for the ledger.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from duetime.domain.endpoints import endpoint_of
from duetime.domain.execution import Claim
from duetime.domain.held_specs import StoredSpec
from duetime.domain.ids import execution_id
from duetime.domain.instants import DAY, HOUR, LATEST, MINUTE, SECOND, format_instant
from duetime.domain.job import Overlap
from duetime.domain.schedule import Every, OnDemand, Timetable, timetable
from duetime.domain.states import Trigger

GRACE = 10 * SECOND  # longer than a handover between nodes takes, so a handover makes executions late, not missed
MOST_COUNTED = 2_000  # a span of missed instants is counted up to here; beyond, its count is unknown (None)

_LOOKBACKS = (MINUTE, HOUR, DAY, 30 * DAY, 366 * DAY)

# What to do with an execution if its job has an open execution when it is written; see domain/overlap.py.
IF_OPEN = {
    Overlap.ALLOW: "run",
    Overlap.SKIP: "skip",
    Overlap.QUEUE_ONE: "hold_one",
    Overlap.QUEUE_ALL: "hold",
    Overlap.CANCEL_RUNNING: "cancel",
}

Place = tuple[int, str, str]  # sort key by which timers are read: the timer's due instant, tenant and job


class DueTimer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A timer with all that planning needs of its job."""

    job_id: str
    tenant: str
    due_at: int
    version: int  # of the job: a change after this was read makes the plan stale
    fired: int  # executions of the timetable so far: without skipped and manual ones
    recurs: bool
    created_at: int
    spec: StoredSpec
    places: int = 1  # of the memory for claims (`domain.held_specs`)

    @property
    def place(self) -> Place:
        return self.due_at, self.tenant, self.job_id


class NewExecution(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A due instant that will run; a row of the Fire command.

    It repeats fields of its claim: a command holds all that it needs, and must not carry whole job definitions.
    """

    execution_id: str
    job_id: str
    tenant: str
    scheduled_at: int
    trigger: Trigger
    priority: int
    endpoint: int
    if_open: str
    has_siblings: bool = False  # the page holds other executions of this job: they are decided together


class TimerMove(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A timer's step from one due instant to the next (None: none is left); a row of the Fire command.

    If `max_runs` ends the job, `or_due_at` is when it is due next should one of these executions not count.
    """

    job_id: str
    due_at: int
    version: int
    next_due_at: int | None
    executions: int
    or_due_at: int | None = None


class Skipped(msgspec.Struct, frozen=True, array_like=True):
    """A span of instants that do not run, from `first_at` up to, not including, `until_at`: a row of the ledger."""

    job_id: str
    tenant: str
    first_at: int
    until_at: int
    count: int | None
    reason: str

    def as_event(self) -> dict[str, object]:
        """Returns the data of the event that tells of this span. (It has no execution: the ledger has the span.)"""
        return {
            "execution_id": None,
            "job_id": self.job_id,
            "state": "SKIPPED",
            "reason": self.reason,
            "count": self.count,
            "first_at": format_instant(self.first_at),
            "until_at": format_instant(self.until_at),
        }


class FirePlan(NamedTuple):
    """A page of decisions. `claims` is parallel to `executions`: each one's claim, if it is claimed when written."""

    first_number: int
    moves: list[TimerMove]
    executions: list[NewExecution]
    claims: list[Claim]
    skips: list[Skipped]

    def only(self, numbers: Sequence[int]) -> FirePlan:
        """Returns the moves and executions with these numbers, of a plan with one of each for each timer."""
        first, moves, executions, claims, skips = self
        return FirePlan(
            first, [moves[n] for n in numbers], [executions[n] for n in numbers], [claims[n] for n in numbers], skips
        )

    def joined(self, other: FirePlan) -> FirePlan:
        return FirePlan(
            self.first_number, self.moves + other.moves, self.executions + other.executions,
            self.claims + other.claims, self.skips + other.skips,
        )  # fmt: skip


def ended_jobs(moves: Iterable[TimerMove], stale: Container[str]) -> list[str]:
    """Returns the jobs that may have no run left although none of their executions ends: nothing of them has run."""
    return [m.job_id for m in moves if m.next_due_at is None and not m.executions and m.job_id not in stale]


def plan(timers: Sequence[DueTimer], now: int, random_number: int) -> FirePlan:
    """Plan a page of due timers. No timer's `due_at` may lie after `now`.

    `random_number` is a random number of 72 bits. The page's executions are numbered from it.
    """
    page = FirePlan(random_number, [], [], [], [])
    for timer in timers:
        if now - timer.due_at <= GRACE and not timer.recurs:
            _plan_once(timer, page)
        else:
            _plan_timer(timer, now, page)
    return page


class AheadPlan(NamedTuple):
    """Timers planned before they are due, with one move and one execution each, in the order of the timers.

    It equals the result of `plan` at each timer's instant, and so is valid until one of them is missed, or due again.
    """

    page: FirePlan
    next_due_at: int

    def cut(self, begin: int, end: int, now: int) -> FirePlan | None:
        """Returns the plan of the timers from `begin` up to `end`, or None if it is too old and must be made again."""
        first, moves, executions, claims, skips = self.page
        if now >= self.next_due_at or now - executions[begin].scheduled_at > GRACE:
            return None
        return FirePlan(first + begin, moves[begin:end], executions[begin:end], claims[begin:end], skips)


def plan_ahead(timers: Sequence[DueTimer], random_number: int) -> AheadPlan | None:
    """Decide timers before they are due, in order of their instants. None if they are not plain: plan them when due."""
    page = FirePlan(random_number, [], [], [], [])
    for timer in timers:
        if not timer.recurs:
            _plan_once(timer, page)
        else:
            _plan_timer(timer, timer.due_at, page)
    if page.skips or not len(page.executions) == len(page.moves) == len(timers):
        return None
    return AheadPlan(
        page, min((move.next_due_at for move in page.moves if move.next_due_at is not None), default=LATEST)
    )


def _plan_once(timer: DueTimer, page: FirePlan) -> None:
    """The hot path of a burst: one instant, on time, and none after it."""
    page.moves.append(TimerMove(timer.job_id, timer.due_at, timer.version, None, 1))
    _add_execution(page, timer, timer.due_at, Trigger.SCHEDULE, IF_OPEN[timer.spec.overlap])


def _plan_timer(timer: DueTimer, now: int, page: FirePlan) -> None:
    spec = timer.spec
    table = timetable(spec, timer.job_id, timer.created_at)
    if now - timer.due_at <= GRACE:
        instants, next_due_at = _on_time(timer, table, now)
    else:
        instants = _instants_to_run(timer, table, now)
        next_due_at = table.next_after(now) if timer.recurs else None
    or_due_at = None
    if spec.max_runs is not None:
        left = max(0, spec.max_runs - timer.fired)
        if len(instants) >= left:
            or_due_at = instants[left] if len(instants) > left else next_due_at
            instants, next_due_at = instants[:left], None
    page.moves.append(TimerMove(timer.job_id, timer.due_at, timer.version, next_due_at, len(instants), or_due_at))

    first_kept = instants[0] if instants else now + 1
    if timer.due_at < first_kept:
        count = _count(table, timer.due_at, first_kept)
        page.skips.append(Skipped(timer.job_id, timer.tenant, timer.due_at, first_kept, count, "missed"))
    if_open = IF_OPEN[spec.overlap]
    on_time = Trigger.AFTER if isinstance(table.schedule, OnDemand) else Trigger.SCHEDULE
    for at in instants:
        trigger = on_time if now - at <= GRACE else Trigger.CATCH_UP
        _add_execution(page, timer, at, trigger, if_open, len(instants) > 1)


def _add_execution(
    page: FirePlan, timer: DueTimer, at: int, trigger: Trigger, if_open: str, has_siblings: bool = False
) -> None:
    spec = timer.spec
    new_id = execution_id(at, page.first_number + len(page.executions))
    endpoint = endpoint_of(spec, timer.tenant)
    page.executions.append(
        NewExecution(new_id, timer.job_id, timer.tenant, at, trigger, spec.priority, endpoint, if_open, has_siblings)
    )
    page.claims.append(
        Claim(new_id, timer.job_id, timer.tenant, at, trigger, spec.priority, endpoint, 1, 1, False, spec, timer.places)
    )


def _on_time(timer: DueTimer, table: Timetable, now: int) -> tuple[list[int], int | None]:
    """Returns the instants from the timer's up to now, and the next one. Nearly every fire has one instant."""
    instants, following = [timer.due_at], table.next_after(timer.due_at)
    while following is not None and following <= now:
        instants.append(following)
        following = table.next_after(following)
    return instants, following


def _instants_to_run(timer: DueTimer, table: Timetable, now: int) -> list[int]:
    """Returns the instants from the timer's due instant up to now that run: always the latest ones, oldest first."""
    catch_up = timer.spec.catch_up
    in_window = max(timer.due_at, now - max(catch_up.window_seconds * SECOND, GRACE))
    in_grace = max(timer.due_at, now - GRACE)
    if not timer.recurs or isinstance(table.schedule, OnDemand):
        keep_from = in_grace if catch_up.policy == "skip" else in_window
        return [timer.due_at] if timer.due_at >= keep_from else []
    if catch_up.policy == "all":
        return _latest(table, in_window, now, catch_up.max_runs)
    late = _latest(table, in_grace, now, catch_up.max_runs)
    if late or catch_up.policy == "skip":
        return late
    return _latest(table, in_window, now, 1)


def _latest(table: Timetable, since: int, now: int, most: int) -> list[int]:
    """Returns the last `most` instants in [since, now], oldest first. It looks back only as far as it must."""
    found: list[int] = []
    for lookback in _LOOKBACKS:
        begin = max(since, now - lookback)
        found = _instants(table, begin, now)
        if len(found) >= most or begin == since:
            break
    return found[-most:]


def _instants(table: Timetable, begin: int, end: int) -> list[int]:
    found = []
    at = table.next_after(begin - 1)
    while at is not None and at <= end:
        found.append(at)
        at = table.next_after(at)
    return found


# Jobs that share a timetable missed the same instants: after a long downtime a page counts them once, not for each job.
@lru_cache(maxsize=1024)
def _count(table: Timetable, first_at: int, until_at: int) -> int | None:
    """Returns how many instants lie in [first_at, until_at), or None if they are too many to count one by one."""
    if isinstance(table.schedule, Every):
        until_at = min(until_at, table.end_at + table.jitter + 1)
        return max(1, -(-(until_at - first_at) // table.schedule.period))
    if isinstance(table.schedule, OnDemand):
        return 1
    count, at = 0, table.next_after(first_at - 1)
    while at is not None and at < until_at:
        count += 1
        if count > MOST_COUNTED:
            return None
        at = table.next_after(at)
    return count


def skipped_while_paused(table: Timetable, job_id: str, tenant: str, first_at: int, now: int) -> Skipped | None:
    """Returns the ledger's entry for the instants between a pause and its end."""
    return skipped_since(table, job_id, tenant, first_at, now + 1, "paused")


def skipped_since(
    table: Timetable, job_id: str, tenant: str, first_at: int, until_at: int, reason: str
) -> Skipped | None:
    """Returns the ledger's entry for the instants in [first_at, until_at); `first_at` is one of them."""
    if first_at >= until_at:
        return None
    return Skipped(job_id, tenant, first_at, until_at, _count(table, first_at, until_at), reason)
