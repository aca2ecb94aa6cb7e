"""Commands on executions: fire, claim, finish, release, cancel, redrive."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import SECOND
from duetime.domain.plan import NewExecution, Skipped, TimerMove
from duetime.domain.states import State, Trigger

CLAIM_BYTES = 4 * 1024 * 1024  # of definitions
MOST_ENDPOINTS = 1_000  # of a tenant, that a claim reads if some of the tenant's endpoints are full


class Fired(msgspec.Struct, frozen=True):
    """The differences between a page's plan and the rows written; mostly none."""

    stale_jobs: frozenset[str] = frozenset()
    not_claimed: frozenset[str] = frozenset()  # ids of executions that were skipped or held
    to_cancel: tuple[str, ...] = ()  # running executions that a newer execution replaces
    skipped: frozenset[str] = frozenset()  # ids of executions that overlap another of their job, of `not_claimed`


class Fire(Command[Fired], frozen=True):
    """Write a page of decisions in one transaction: add executions, move timers. Returns `Fired`.

    If a timer is no longer due at `due_at`, or its job has another version, another process fired or changed it: its
    executions are not written. New executions are claimed by `node` if `claim`, else QUEUED.
    An execution that becomes SKIPPED, or whose instant has an execution already, does not count towards `fired`.
    `epochs` lists (shard, epoch) of every shard in the page. It is empty if shards can have no other owner.
    Fails with StaleWrite if `node` is fenced; StaleEpoch if a shard is at another epoch. Until it is committed, no
    FenceShards of these shards and no FenceNodes of this node is applied.
    """

    node: int
    now: int
    claim: bool
    moves: tuple[TimerMove, ...]
    executions: tuple[NewExecution, ...]
    skips: tuple[Skipped, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()


class AddExecution(Command[str], frozen=True):
    """Add a QUEUED execution outside the timetable (manual, retry). Returns its id, which must begin with `now`.

    Fails with NotFound; Conflict if the job is CANCELLED.
    """

    now: int
    tenant: str
    job_id: str
    execution_id: str
    trigger: Trigger
    audit: Entry | None = None


class ClaimExecutions(Command[list[Claim]], frozen=True):
    """Claim up to `limit` waiting executions of `tenants` for `node`. Returns a list of Claim.

    `limit` is divided equally among the tenants, so that a tenant with many waiting executions leaves room for others.
    The jobs' definitions have at most `bytes` together, also divided equally, but each tenant gets at least one
    execution. Within a tenant the highest priority comes first, and within a priority the longest wait.
    `only` lists the endpoints that a worker can run; if empty, those that every node can (`domain.endpoints`). An
    endpoint is a hash, which two tenants may share: a worker of another tenant claims nothing, and is refused.
    `full_endpoints` lists (tenant, endpoint) that have no room and are left out. For such a tenant, and with `only`,
    all executions of one endpoint in a priority are claimed before those of the next endpoint. An execution whose job's
    definition can't be read becomes FAILED, a dead letter until the definition can be read. Fails with StaleWrite if
    `node` is fenced, or a worker of another tenant.
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
        """Returns the most executions claimed of one tenant."""
        return max(1, self.limit // max(1, len(self.tenants)))

    @property
    def bytes_each(self) -> int:
        """Returns the most bytes of definitions claimed of one tenant, if it is more than one execution."""
        return self.bytes // max(1, len(self.tenants))

    def full_of(self, tenant: str) -> tuple[int, ...]:
        """Returns the endpoints of a tenant that have no room."""
        return tuple(endpoint for owner, endpoint in self.full_endpoints if owner == tenant)


class Finish(Command[list[str]], frozen=True):
    """Write the ends of attempts. Returns the ids that were refused: their token is old or they are not RUNNING.

    An execution whose cancellation was requested is not retried: instead of QUEUED or RETRYING, it becomes CANCELLED.
    A job that runs `after` others is due at `now` once the last of them has ended in the state that it waits for.
    """

    node: int
    now: int
    ends: tuple[AttemptEnd, ...]


class Release(Command[None], frozen=True):
    """Return claimed executions that never started to QUEUED. No attempt is counted. Returns None."""

    node: int
    now: int
    claims: tuple[Claim, ...]


class CancelExecution(Command[State], frozen=True):
    """Cancel an execution. Returns its state: CANCELLED if it waited, RUNNING if its node has to stop it.

    Fails with NotFound; Conflict if the execution is terminal.
    """

    now: int
    tenant: str
    execution_id: str
    audit: Entry | None = None


class Redrive(Command[list[tuple[str, str]]], frozen=True):
    """Run dead letters again, each as a new execution (trigger retry). Returns a list of the redriven pairs.

    `pairs` lists (dead execution, new execution, whose id begins with `now`). One that is no longer dead, or whose job
    is CANCELLED, is left alone. New executions are due in the order of `pairs`, at most `per_second`, or all at once if
    that is None. The same request redrove `driven` before, with the same `now`: at that rate they come first.
    """

    now: int
    tenant: str
    pairs: tuple[tuple[str, str], ...]
    audit: Entry | None = None
    per_second: float | None = None
    driven: int = 0

    def due_at(self, number: int) -> int:
        """Returns when a redriven execution is due that `number` others of this command precede."""
        if self.per_second is None:
            return self.now
        return self.now + int((self.driven + number) * SECOND / self.per_second)


class SaveProgress(Command[bool], frozen=True):
    """Store the progress that a running attempt reports. Returns whether its claim is still valid.

    `value` is JSON; None deletes the progress. For an execution of another tenant the claim is not valid.
    """

    tenant: str
    execution_id: str
    job_id: str
    attempt: int
    token: int
    value: str | None
