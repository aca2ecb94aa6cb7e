"""What is done to executions: they are fired, claimed, ended, given back, run again."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.execution import Attempted, Run
from duetime.domain.instants import SECOND
from duetime.domain.plan import PlannedRun, Skipped, TimerMove
from duetime.domain.states import Trigger

CLAIM_BYTES = 4 * 1024 * 1024  # of definitions
MOST_ENDPOINTS = 1_000  # of a tenant, that a claim beside full ones looks at


class Fire(Command, frozen=True):
    """Write a page of decisions: executions in, timers moved, in one transaction. Answers `Fired`.

    A timer that is no longer due at `due_at`, or whose job has another version, was decided or changed by someone
    else: its runs are not written. Executions are born claimed by `node` if `claim`, else QUEUED.
    A run that turns out SKIPPED, or whose instant has an execution already, does not count towards `fired`.
    `epochs` names (shard, epoch) of every shard in the page; none: there are no other owners to fear.
    Refused: StaleWrite if `node` is void; StaleEpoch if a shard is at another epoch. Until it is committed, no
    FenceShards of these shards and no EndNodes of this node is applied.
    """

    node: int
    now: int
    claim: bool
    moves: tuple[TimerMove, ...]
    runs: tuple[PlannedRun, ...]
    skips: tuple[Skipped, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()


class Fired(msgspec.Struct, frozen=True):
    """What of a page came out otherwise than planned; mostly nothing."""

    stale_jobs: frozenset[str] = frozenset()
    not_claimed: frozenset[str] = frozenset()  # executions that were skipped or held, by id
    to_cancel: tuple[str, ...] = ()  # running executions that a newer run replaces


class AddRun(Command, frozen=True):
    """A run outside the timetable (manual, retry), QUEUED. Answers its execution id, which must begin with `now`.

    Refused: NotFound; Conflict if the job is CANCELLED.
    """

    now: int
    tenant: str
    job_id: str
    execution_id: str
    trigger: Trigger
    audit: Entry | None = None


class Claim(Command, frozen=True):
    """Claim up to `limit` waiting executions of `tenants` for `node`. Answers a list of Run.

    Each tenant gives the same number at most, so that one that has many waiting leaves the others theirs. The jobs'
    definitions have up to `bytes` together; each tenant gives the same part of that at most, but one execution at
    least. Of a tenant the highest priority comes first, and within a priority what has waited longest.
    `only` names what a worker can run, by endpoint; without, it is what every node can (`domain.endpoints`). An
    endpoint is a hash, which two tenants may share: a worker of another tenant claims nothing, and is refused.
    `full_endpoints` names (tenant, endpoint) that have no room and are left out. Of such a tenant, and with `only`, an
    endpoint gives all it can before the next one of that priority does. One whose job's definition can't be
    read is FAILED, a dead letter until it can be. Refused: StaleWrite if `node` is void, or another tenant's worker.
    """

    node: int
    now: int
    limit: int
    tenants: tuple[str, ...]
    full_endpoints: tuple[tuple[str, int], ...] = ()
    only: tuple[int, ...] = ()
    bytes: int = CLAIM_BYTES

    @property
    def each(self) -> int:
        """How many a tenant gives at most."""
        return max(1, self.limit // max(1, len(self.tenants)))

    @property
    def bytes_each(self) -> int:
        """How many bytes a tenant gives at most, if it is more than one execution."""
        return self.bytes // max(1, len(self.tenants))

    def full_of(self, tenant: str) -> tuple[int, ...]:
        """The endpoints of a tenant that have no room."""
        return tuple(endpoint for owner, endpoint in self.full_endpoints if owner == tenant)


class Finish(Command, frozen=True):
    """Write the ends of attempts. Answers the ids that were refused: their token is old or they are not RUNNING.

    One that was asked to stop is not tried again: where its attempt says QUEUED or RETRYING, it is CANCELLED.
    A job that comes `after` others, the last of which has ended now in the way that it waits for, is due at `now`.
    """

    node: int
    now: int
    attempts: tuple[Attempted, ...]


class Release(Command, frozen=True):
    """Give claimed executions that were never started back: QUEUED again, no attempt counted. Answers None."""

    node: int
    now: int
    runs: tuple[Run, ...]


class CancelExecution(Command, frozen=True):
    """Answers the state: CANCELLED if it waited, RUNNING if its node must now be told.

    Refused: NotFound; Conflict if it is terminal.
    """

    now: int
    tenant: str
    execution_id: str
    audit: Entry | None = None


class Redrive(Command, frozen=True):
    """Run dead letters again, each as a new execution (trigger retry). Answers a list of those pairs that were driven.

    `pairs` names (dead execution, new execution, whose id begins with `now`). One that is no longer dead, or whose job
    is CANCELLED, is left alone. Those that are driven are due in the order of `pairs`, `per_second` of them at most; or
    all at once. `driven` were driven before by the same request, with the same `now`: at that pace they come first.
    """

    now: int
    tenant: str
    pairs: tuple[tuple[str, str], ...]
    audit: Entry | None = None
    per_second: float | None = None
    driven: int = 0

    def due_at(self, number: int) -> int:
        """When the one before which `number` others of this command are driven may run."""
        if self.per_second is None:
            return self.now
        return self.now + int((self.driven + number) * SECOND / self.per_second)


class SaveProgress(Command, frozen=True):
    """Keep what a running attempt says of how far it is. Answers whether that claim still holds.

    `value` is JSON; None forgets it. An execution of another tenant is none of the claim.
    """

    tenant: str
    execution_id: str
    job_id: str
    attempt: int
    token: int
    value: str | None
