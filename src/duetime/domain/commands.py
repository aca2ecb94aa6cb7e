"""Every write there is, as data. Applying a command reads no clock and no random source: all it needs is in it.

A command is atomic and fails alone; commands applied together are committed together. What a command answers is in
its docstring. Where it has an `audit` entry, that is written if, and only if, the command changes something.
Rows are `array_like` structs: they go to the store's SQL as one JSON page, in their fields' order.
"""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.breaker import End, Rules
from duetime.domain.execution import Attempted, Run
from duetime.domain.identity import Role, Tier
from duetime.domain.instants import SECOND
from duetime.domain.job import JobSpec
from duetime.domain.limits import Quota
from duetime.domain.plan import PlannedRun, Skipped, TimerMove
from duetime.domain.states import State, Trigger


class Command(msgspec.Struct, frozen=True):
    """Base of all commands."""


class NewJob(msgspec.Struct, frozen=True, array_like=True):
    job_id: str
    tenant: str
    key: str | None
    name: str
    type: str
    owner: str
    shard: int
    recurs: bool
    due_at: int
    spec: JobSpec


class IdempotencyRecord(msgspec.Struct, frozen=True):
    """What a create answered, kept so that a repeat with the same key and body gets the same answer."""

    tenant: str
    key: str
    fingerprint: str  # of the request's body
    response: str


class CreateJobs(Command, frozen=True):
    """Add jobs and their timers. Answers None.

    Refused with Conflict when a key is taken in the tenant. With `idempotency`: answers the stored response (str) if
    the key is known with the same fingerprint, and refuses IdempotencyKeyReused if with another.
    Refused: QuotaExceeded if `quota` has not so many left; InsufficientStorage if the store is full.
    """

    now: int
    jobs: tuple[NewJob, ...]
    idempotency: IdempotencyRecord | None = None
    quota: Quota | None = None
    audit: tuple[Entry, ...] = ()


class ChangeJob(Command, frozen=True):
    """Replace a job's spec. Answers the new version.

    With `replan` it is next due at `due_at`, its runs counted from zero if `restart`; if it has no run left and nothing
    open, it is COMPLETED, and a COMPLETED one that has is PENDING again. Without, it stays due as it is: a fire since
    the job was read is not undone. Of `skipped`, what the timer has moved past meanwhile is left out.
    Refused: NotFound; PreconditionFailed if `version` is another; Conflict if the key is taken or the job is CANCELLED;
    InsufficientStorage if it grows and the store is full.
    """

    now: int
    tenant: str
    job_id: str
    version: int
    key: str | None
    name: str
    type: str
    recurs: bool
    due_at: int | None
    spec: JobSpec
    replan: bool = True
    restart: bool = False
    skipped: tuple[Skipped, ...] = ()
    audit: Entry | None = None


class PauseJob(Command, frozen=True):
    """Stop planning runs; `due_at` is kept as the instant from which skipped ones are counted. Answers the status.

    Pausing a paused job changes nothing. Refused: NotFound; Conflict if it is COMPLETED or CANCELLED.
    """

    now: int
    tenant: str
    job_id: str
    by: str
    reason: str
    audit: Entry | None = None


class ResumeJob(Command, frozen=True):
    """Plan runs again from `due_at`, and write what passed meanwhile to the ledger. Answers the status.

    Refused: NotFound; Conflict if it is not PAUSED, or changed since it was read (`version`).
    """

    now: int
    tenant: str
    job_id: str
    version: int
    due_at: int | None
    skipped: Skipped | None
    audit: Entry | None = None


class CancelJob(Command, frozen=True):
    """End a job: no further run; executions that wait are CANCELLED. Answers ids of those running, to be stopped.

    Of `skipped`, the overdue instants that now never run, what the timer has moved past meanwhile is left out.
    Cancelling a cancelled job changes nothing. Refused: NotFound.
    """

    now: int
    tenant: str
    job_id: str
    skipped: tuple[Skipped, ...] = ()
    audit: Entry | None = None


class PurgeJob(Command, frozen=True):
    """Remove a job with its history, up to `limit` executions of it. Answers whether more is left.

    As long as more is left, the job is CANCELLED and what waited of it too: repeat until it is gone.
    Refused: NotFound; Conflict while one of its executions is running.
    """

    tenant: str
    job_id: str
    limit: int = 2000
    audit: Entry | None = None


class Fire(Command, frozen=True):
    """Write a page of decisions: executions in, timers moved, in one transaction. Answers `Fired`.

    A timer that is no longer due at `due_at`, or whose job has another version, was decided or changed by someone
    else: its runs are not written. Executions are born claimed by `node` if `claim`, else QUEUED.
    A run that turns out SKIPPED, or whose instant has an execution already, does not count towards `fired`.
    `epochs` names (shard, epoch) of every shard in the page; none: there are no other owners to fear.
    Refused: StaleWrite if `node` is void; StaleEpoch if a shard is at another epoch. Until it is committed, no Seal of
    these shards and no EndNodes of this node comes in between.
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
    """Claim up to `limit` waiting executions for `node`, highest priority first. Answers a list of Run.

    `only` names what a worker can run, by endpoint; without, it is what every node can (`domain.endpoints`).
    Within a priority, what has waited longest comes first. Endpoints that have no room are left out; then, and with
    `only`, an endpoint gives all it can before the next one of that priority does. One whose job's definition can't be
    read is FAILED, a dead letter until it can be. Refused: StaleWrite if `node` is void.
    """

    node: int
    now: int
    limit: int
    full_endpoints: tuple[int, ...] = ()
    only: tuple[int, ...] = ()


class Finish(Command, frozen=True):
    """Write the ends of attempts. Answers the ids that were refused: their token is old or they are not RUNNING.

    One that was asked to stop is not tried again: where its attempt says QUEUED or RETRYING, it is CANCELLED.
    A job that comes `after` others, the last of which has ended now in the way that it waits for, is due at `now`.
    """

    node: int
    now: int
    attempts: tuple[Attempted, ...]


class FollowUp(Command, frozen=True):
    """Carry out `command` if this very commit ends that execution with that attempt, token and state.

    Answers what the command answers, or None if it does not. It comes after the Finish, in the same batch: so it is
    carried out once, however often the batch has to be sent. A new job in it that has no owner ('') gets the owner of
    the job whose execution has ended.
    """

    execution_id: str
    attempt: int
    token: int
    state: State
    command: Command


class CountEnds(Command, frozen=True):
    """Count ends of executions for their circuits; given together with the Finish that writes them, and after it.

    What is not how its execution ended (a Finish refused it) is left out. Answers (circuit, Circuit or None) of each as
    it stands then; None: it is closed.
    """

    now: int
    ends: tuple[End, ...]
    rules: Rules


class TakeProbe(Command, frozen=True):
    """Make an execution the one that tries an open circuit, if it is time for one. Of many at once, one is it.

    Answers the Circuit as it stands then, with its probe; None: it is closed.
    """

    now: int
    circuit: int
    execution_id: str
    rules: Rules


class CloseCircuit(Command, frozen=True):
    """Forget what a circuit's target did: runs are let through again. Answers None. Refused: NotFound."""

    now: int
    tenant: str
    circuit: int
    audit: Entry | None = None


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


class TakeRequests(Command, frozen=True):
    """Take `wanted` of a user's requests, or as many as are left; `given_back` were taken before and not used.

    Answers (how many were taken, when the bucket is full again in µs).
    """

    now: int
    quota: Quota
    wanted: int
    given_back: int = 0


class NewKey(msgspec.Struct, frozen=True):
    """An API key, without its secret: only a hash of that is kept."""

    key_id: str
    tenant: str
    user_id: str
    name: str
    role: Role
    tier: Tier
    scopes: tuple[str, ...]
    secret_hash: str
    created_by: str
    expires_at: int | None = None


class AddKey(Command, frozen=True):
    """Answers None."""

    now: int
    key: NewKey
    audit: Entry | None = None


class RevokeKey(Command, frozen=True):
    """No request with this key is taken from here on. Answers None; revoking again changes nothing.

    Refused: NotFound.
    """

    now: int
    tenant: str
    key_id: str
    audit: Entry | None = None


class TouchKeys(Command, frozen=True):
    """These keys were used at `now`. Answers None."""

    now: int
    key_ids: tuple[str, ...]


class AddSubscription(Command, frozen=True):
    """From here on this URL is told of these events of the tenant. Answers None. Refused: Conflict if it has many."""

    now: int
    tenant: str
    subscription_id: str
    url: str
    events: tuple[str, ...]
    created_by: str
    audit: Entry | None = None


class RemoveSubscription(Command, frozen=True):
    """Answers None. Refused: NotFound."""

    tenant: str
    subscription_id: str
    audit: Entry | None = None


class Sequel(Command, frozen=True):
    """Carry out `first`, and if it is not refused `then` with it, in one commit. Answers what the first answers.

    One of `then` that is refused is left out, and spoils nothing.
    """

    first: Command
    then: tuple[Command, ...]


class PutConnection(Command, frozen=True):
    """A database that SQL jobs may use: a new one, or another URL for one that is there. Answers None."""

    now: int
    tenant: str
    name: str
    url: str  # sealed
    shown: str  # the same, as people may see it
    created_by: str
    audit: Entry | None = None


class RemoveConnection(Command, frozen=True):
    """Answers None. Refused: NotFound."""

    tenant: str
    name: str
    audit: Entry | None = None


class ResealConnection(Command, frozen=True):
    """Put a URL that was sealed anew in place of the one that was read. Answers whether that was still there."""

    tenant: str
    name: str
    old: str
    new: str


class Reseal(Command, frozen=True):
    """Put definitions whose secrets were sealed anew in place of those that were read. Answers how many were.

    `changes` names (job id, version, definition): a job that has another version meanwhile is left alone. It stays the
    same job, of the same version.
    """

    changes: tuple[tuple[str, int, JobSpec], ...]


class SaveProgress(Command, frozen=True):
    """Keep what a running attempt says of how far it is. Answers whether that claim still holds.

    `value` is JSON; None forgets it.
    """

    execution_id: str
    job_id: str
    attempt: int
    token: int
    value: str | None


class JoinWorker(Command, frozen=True):
    """A worker joins: to the ledger it is a node, with a row that says what it can run. Answers its id."""

    now: int
    tenant: str
    user_id: str
    name: str
    functions: tuple[str, ...]
    slots: int


class BeatWorkers(Command, frozen=True):
    """Signs of life. Answers the ids of those that have ended."""

    now: int
    workers: tuple[int, ...]


class StartNode(Command, frozen=True):
    """Join as `name`; an earlier node of the same name is void from here on. Answers the new node's id."""

    now: int
    name: str


class StopNode(Command, frozen=True):
    now: int
    node: int


class EndNodes(Command, frozen=True):
    """These nodes (or workers) are dead: void from here on, and what they run has lapsed. Answers None.

    Theirs is no Fire, Claim or Seal that is committed after this. A result is still accepted as long as its execution
    is RUNNING with that attempt and token: what was done was done.
    """

    now: int
    nodes: tuple[int, ...]


class Seal(Command, frozen=True):
    """`node` owns these (shard, epoch) from here on: no Fire of an earlier epoch is committed after this. Answers None.

    Repeating it changes nothing. Refused, all of it: StaleWrite if `node` is void; StaleEpoch if a shard is at a later
    epoch, or at this one for another node.
    """

    node: int
    shards: tuple[tuple[int, int], ...]


class Prune(Command, frozen=True):
    """Remove up to `limit` terminal executions (and their attempts) scheduled before `before`. Answers how many.

    Also drops ledger entries that ended before `skips_before`, idempotency keys of before `keys_before`, and circuits
    of which nothing was heard since `circuits_before`.
    `skips_before` is where the age that history may reach ends. A store that keeps each day apart may remove a whole
    day that lies before it at once, whatever the limit, and may leave the day that it lies in until that has passed.
    """

    before: int
    skips_before: int
    keys_before: int
    limit: int
    circuits_before: int = 0


class SweepJobs(Command, frozen=True):
    """Remove jobs of one run that is long over, among the `limit` jobs after `after_job_id`. Answers `Swept`.

    One is removed if it does not recur, has no key and is COMPLETED, if its last run ended before `before`, and if
    nothing is left of its history.
    """

    now: int
    before: int
    after_job_id: str
    limit: int


class Swept(msgspec.Struct, frozen=True):
    removed: int
    last_job_id: str | None  # of those that were looked at; None: there are no more
