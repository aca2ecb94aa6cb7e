"""What the parts of a node emit about their work: a struct for each kind, emitted at one place each.

A part emits a page, a commit, a request or a turn: never one execution at a time. It does not know who subscribes.
Values may be large (specs, results): a subscriber takes what it needs and keeps no reference to the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from duetime.domain.alerts import Alert
from duetime.domain.budgets import JobStanding
from duetime.domain.commands import Command
from duetime.domain.errors import DuetimeError
from duetime.domain.execution import AttemptEnd, Claim


class Emitted(msgspec.Struct, frozen=True, gc=False):
    """The base of all kinds."""


class Written(Emitted, frozen=True, gc=False):
    """The store port: a batch of commands was applied. A command that was refused has its DuetimeError as answer."""

    commands: Sequence[Command]
    answers: Sequence[object]
    seconds: float


class WriteFailed(Emitted, frozen=True, gc=False):
    """The store port: a whole batch of commands failed. It is not always known whether it was applied."""

    commands: Sequence[Command]
    error: Exception
    seconds: float


class Committed(Emitted, frozen=True, gc=False):
    """The store's writer: a transaction was committed. `commands`: of all callers that it wrote together."""

    commands: int
    seconds: float


class Read(Emitted, frozen=True, gc=False):
    """The store port: a read has ended. `error`: it failed."""

    name: str  # of the port's method
    seconds: float
    error: Exception | None = None


class AttemptsEnded(Emitted, frozen=True, gc=False):
    """Recorder and reconciler: ends of attempts were written, except those that the store refused."""

    at: int
    results: Sequence[tuple[Claim, AttemptEnd]]
    refused: Collection[str]  # execution ids
    seconds: float = 0.0  # that the write took


class QueueWaited(Emitted, frozen=True, gc=False):
    """The dispatcher: of a page of claims, the one that was added last has left the queue. `seconds`: its wait."""

    seconds: float


class TurnFailed(Emitted, frozen=True, gc=False):
    """A service of the engine: a turn failed, and will be retried."""

    service: str
    error: str


class ShardsMoved(Emitted, frozen=True, gc=False):
    """Membership: this node has gained or lost shards."""

    gained: int
    lost: int
    owned: int


class Fenced(Emitted, frozen=True, gc=False):
    """The engine: the lease of this node has expired or was taken. It joins again as a new node."""

    node: int


class TakenOver(Emitted, frozen=True, gc=False):
    """The reconciler: a cycle has ended. `returned`: executions of expired nodes and workers that it returned."""

    at: int
    returned: int


class AlertsMoved(Emitted, frozen=True, gc=False):
    """The evaluator of alerts: these alerts have begun to fire or have resolved, and that is written."""

    at: int
    alerts: Sequence[Alert]


class AlertsEvaluated(Emitted, frozen=True, gc=False):
    """The evaluator of alerts: a turn has ended. `omitted`: subjects beyond the most alerts of a rule."""

    rules: int
    firing: int
    omitted: int
    seconds: float


class ObjectivesRead(Emitted, frozen=True, gc=False):
    """Objectives: the standings of all known jobs, after some of them were read again. Only on the node that reads."""

    standings: Sequence[JobStanding]


class NotificationRefused(Emitted, frozen=True, gc=False):
    """A notification could not be stored."""

    error: DuetimeError


class JobRefused(Emitted, frozen=True, gc=False):
    """The API: a job, or a change of one, was refused."""

    error: DuetimeError


class RequestServed(Emitted, frozen=True, gc=False):
    """The gate: a response has begun. `route` is a template, not a path: paths have ids."""

    method: str
    route: str
    status: int
    seconds: float  # until the first byte: a stream has no other end
    request_id: str = ""
    tenant: str = ""  # empty if the caller was not identified


class LoopLagged(Emitted, frozen=True, gc=False):
    """The event loop, several times a second: by how much a short sleep was longer than asked for."""

    seconds: float


class GarbageCollected(Emitted, frozen=True, gc=False):
    """The interpreter: the garbage collector has stopped the process for a moment."""

    generation: int
    seconds: float


class SpansExported(Emitted, frozen=True, gc=False):
    """The exporter of traces: spans were sent to the collector, or lost because it does not take them in time."""

    sent: int
    lost: int
