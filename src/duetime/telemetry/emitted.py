"""What the parts of a node emit about their work: a struct for each kind, emitted at one place each.

A part emits a page, a commit, a request or a turn: never one execution at a time. It does not know who subscribes.
Values may be large (specs, results): a subscriber takes what it needs and keeps no reference to the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

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


class SpansExported(Emitted, frozen=True, gc=False):
    """The exporter of traces: spans were sent to the collector, or lost because it does not take them in time."""

    sent: int
    lost: int
